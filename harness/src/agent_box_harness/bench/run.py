"""`scripts/bench`: choose where to measure, measure, print."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness import guest
from agent_box_harness.bench import guest as guest_bench
from agent_box_harness.bench import table, web, webhook
from agent_box_harness.bench.host import host_box
from agent_box_harness.bench.measure import Bench
from agent_box_harness.box import Box

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from agent_box_harness.bench.measure import Measurement
    from agent_box_harness.guest.image import Kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the bench."""
    parser.add_argument(
        "--where",
        choices=("auto", "host", "container"),
        default="auto",
        help="measure sessions on this machine or in the container guest"
        " (auto: the container where this is root, else the host)",
    )
    parser.add_argument("--quick", action="store_true", help="few samples, short idle times")
    parser.add_argument("--web", action="store_true", help="measure the browser side only")
    parser.add_argument("--webhook", action="store_true", help="measure webhooks only")
    parser.add_argument("--no-boot", action="store_true", help="leave boot and restore times out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def main(options: argparse.Namespace, repo: Path) -> int:
    """Run the bench; the exit status is 1 if a target was missed."""
    rows: list[Measurement] = []
    where = options.where
    if where == "auto":
        where = "container" if os.geteuid() == 0 else "host"
    for row in _rows(options, where, repo):
        rows.append(row)
        _say(f"  {row.what}: {table.number(row.median, row.unit)}")
    place = "on this machine" if where == "host" else "in the container guest"
    machine = (
        f"measured {place}: {os.cpu_count()} CPUs, {_cpu_model()}, Linux {platform.release()},"
        f" Python {platform.python_version()} on the host"
    )
    facts = [machine, "the reference was measured on two such CPUs, without systemd"]
    if options.json:
        data = [{**row.as_json(), "median": row.median} for row in rows]
        sys.stdout.write(json.dumps({"where": where, "facts": facts, "rows": data}) + "\n")
    else:
        sys.stdout.write("\n" + table.render(rows, facts))
    missed = [
        row.what
        for row in rows
        if table.verdict(row, table.YARDSTICKS.get(row.key, table.Yardstick())) == "MISSED"
    ]
    return 1 if missed else 0


def _rows(options: argparse.Namespace, where: str, repo: Path) -> Iterator[Measurement]:
    if where == "host":
        with host_box(repo) as box:
            os.environ.update(box.environment)  # what agent-box-session inherits
            yield from Bench(box.runtime_dir, box.command, options.quick).run()
    else:
        image = guest.build("test", repo=repo, agents=False, kinds=("container",), progress=_say)
        with (
            tempfile.TemporaryDirectory(prefix="agent-box-bench-") as folder,
            image.fresh("container", Path(folder)) as machine,
        ):
            box_in_guest = Box(machine)
            user = box_in_guest.users[0]
            if not options.web and not options.webhook:
                yield from guest_bench.in_container(box_in_guest, user, options.quick)
            if not options.webhook:
                yield from web.rows(box_in_guest, options.quick)
            if not options.web:
                yield from webhook.rows(box_in_guest, options.quick)
    if options.web or options.webhook:
        return
    if not options.no_boot:
        kinds: list[Kind] = ["qemu", "container"] if os.geteuid() == 0 else ["qemu"]
        yield from guest_bench.boots("test", kinds, _say)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _say(text: str) -> None:
    """Progress goes to standard error, so that --json stays clean."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
