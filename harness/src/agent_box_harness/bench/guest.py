"""Measurements that need a guest: boot and restore times, and the box inside the container."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness import guest
from agent_box_harness.bench.measure import Measurement
from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_box_harness.box import Box
    from agent_box_harness.guest.image import Kind
    from agent_box_harness.machine import Machine

MEASURE = Path(__file__).with_name("measure.py")
IN_GUEST = "/run/agent-box-bench/measure.py"
RESTORES = 5


def in_container(box: Box, user: str, quick: bool) -> list[Measurement]:
    """Run `measure` inside a running guest, as root beside the user's own supervisor."""
    runtime_dir = box.document["users"][user]["runtimeDirectory"]
    box.machine.write_file(IN_GUEST, MEASURE.read_bytes(), mode=0o755)
    command = (
        f"$(agent-box-python 2>/dev/null || echo python3) {IN_GUEST} --runtime-dir {runtime_dir} "
        f"--command 'runuser -u {user} -- agent-box-session'{' --quick' if quick else ''}"
    )
    answer = box.run(command, timeout=900).check("measuring in the guest")
    return [Measurement(**json.loads(line)) for line in answer.out.splitlines()]


def boots(host: str, kinds: list[Kind], say: Callable[[str], None]) -> Iterator[Measurement]:
    """Time cold boots, and restores of the frozen guest."""
    image = guest.build(host, agents=False, kinds=tuple(kinds), progress=say)
    for kind in kinds:
        what = f"cold boot until all units are up ({kind})"
        row = Measurement(f"boot-{kind}", what, "ms", "power-on to systemd's own verdict")
        with tempfile.TemporaryDirectory(prefix="agent-box-bench-") as folder:
            start = time.perf_counter()
            with image.boot(kind, Path(folder)) as machine:
                verdict = machine.wait_ready()
                row.samples.append((time.perf_counter() - start) * 1000)
                row.what += f", {machine.description}"
        if verdict != "running":
            raise RequestFailedError(f"the {kind} guest is {verdict}, not running")
        yield row
    if "qemu" in kinds:
        snapshot = image.snapshot(progress=say)
        method = "clone of the frozen guest, until a root shell has answered"
        row = Measurement("guest-restore", "fresh guest from the snapshot", "ms", method)
        for _ in range(RESTORES):
            with tempfile.TemporaryDirectory(prefix="agent-box-bench-") as folder:
                row.samples.append(_restore(snapshot.clone, Path(folder)))
        yield row


def _restore(clone: Callable[[Path], Machine], folder: Path) -> float:
    start = time.perf_counter()
    with clone(folder) as machine:
        machine.succeed("true")
        return (time.perf_counter() - start) * 1000
