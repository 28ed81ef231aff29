"""Measurements against one running supervisor.

Runs wherever the runtime is installed, as the user that owns the sessions (or as root):

    python3 -m agent_box_harness.bench.measure --runtime-dir /run/agent-box-alice

Sessions are plain shells, so that the box is measured and not somebody's CLI. Each sample uses
a fresh session, because the restart delay of one session grows with its crashes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box.control_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "bench-"
PATIENCE = 30.0  # seconds for a single session to become live


@dataclass
class Measurement:
    """One row: what was measured, how, and each sample. `unit` is ms, %, KB or MB."""

    key: str
    what: str
    unit: str
    method: str
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)

    def as_json(self) -> dict[str, Any]:
        """Plain data for `--json` and for the way out of a guest."""
        return asdict(self)


class Watcher:
    """Follows the supervisor's events on a connection of its own, and stamps them on arrival."""

    def __init__(self, runtime_dir: Path) -> None:
        self._client = Client(runtime_dir)
        self._changed = threading.Condition()
        self._views: dict[str, tuple[float, dict[str, Any]]] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        with contextlib.suppress(Exception):
            for event in self._client.subscribe():
                now = time.perf_counter()
                views = event.get("sessions", [event["session"]] if "session" in event else [])
                with self._changed:
                    for view in views:
                        self._views[view["name"]] = (now, view)
                    if event.get("event") == "removed":
                        self._views.pop(event["name"], None)
                    self._changed.notify_all()

    def live(self, name: str, not_pid: int | None = None) -> tuple[float, dict[str, Any]]:
        """Wait until a session runs (with another pid) and return when that was seen."""
        deadline = time.perf_counter() + PATIENCE
        with self._changed:
            while True:
                at, view = self._views.get(name, (0.0, {}))
                if view.get("state") == "running" and view.get("pid") not in (None, not_pid):
                    return at, view
                left = deadline - time.perf_counter()
                if left <= 0:
                    raise TimeoutError(f"{name} is not live after {PATIENCE:g} s: {view}")
                self._changed.wait(left)


class Bench:
    """Everything that is measured against one supervisor."""

    def __init__(self, runtime_dir: Path, command: list[str], quick: bool = False) -> None:
        self.runtime_dir = runtime_dir
        self.command = command
        self.client = Client(runtime_dir, timeout=60)
        self.watcher = Watcher(runtime_dir)
        self.samples = 5 if quick else 15
        self.rounds = 2 if quick else 5
        self.idle_seconds = 5.0 if quick else 30.0

    def run(self) -> Iterator[Measurement]:
        """Measure one row after the other; leaves no session of its own behind."""
        self.clean()
        others = [v["name"] for v in self.client.call("ls")["sessions"] if v["state"] == "running"]
        for name in others:
            self.client.call("stop", name=name)
        yield from self.idle(0)
        yield self.add("add-live", "add, until live (control socket)", self._add_by_socket)
        yield self.add("add-live-cli", "add, until live (agent-box-session add)", self._add_by_cli)
        yield self.respawn()
        yield self.processes()
        yield self.many(16)
        yield from self.idle(4)
        yield from self.idle(20)
        self.clean()
        for name in others:
            self.client.call("start", name=name)

    def clean(self) -> None:
        """Remove every session that a bench made."""
        for view in self.client.call("ls")["sessions"]:
            if view["name"].startswith(PREFIX):
                self.client.call("rm", name=view["name"])

    def _add_by_socket(self, name: str) -> None:
        self.client.call("add", name=name, agent="shell")

    def _add_by_cli(self, name: str) -> None:
        subprocess.run(
            [*self.command, "add", name, "--agent", "shell"],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def add(self, key: str, what: str, adder: Any) -> Measurement:
        """Time from asking for a session to seeing its program run."""
        method = "a fresh shell session a sample; from the call to the event 'running'"
        row = Measurement(key, what, "ms", method)
        for index in range(self.samples):
            name = f"{PREFIX}{key}-{index}"
            start = time.perf_counter()
            adder(name)
            at, _ = self.watcher.live(name)
            row.samples.append((at - start) * 1000)
            self.client.call("rm", name=name)
        return row

    def respawn(self) -> Measurement:
        """Time from kill -9 of a session's program to seeing its successor run."""
        method = "kill -9 of a fresh session's program; until 'running' with another pid"
        row = Measurement("respawn", "crash, until respawned (first retry)", "ms", method)
        for index in range(self.samples):
            name = f"{PREFIX}crash-{index}"
            self._add_by_socket(name)
            _, view = self.watcher.live(name)
            start = time.perf_counter()
            os.kill(view["pid"], signal.SIGKILL)
            at, _ = self.watcher.live(name, not_pid=view["pid"])
            row.samples.append((at - start) * 1000)
            self.client.call("rm", name=name)
        return row

    def processes(self) -> Measurement:
        """How many processes the machine forks for one start (the reference: 12 jq and more)."""
        method = "forks of the whole machine around one add (/proc/stat); the least of the samples"
        row = Measurement("forks", "processes forked for one start", "", method)
        for index in range(self.samples):
            name = f"{PREFIX}forks-{index}"
            before = forks()
            self._add_by_socket(name)
            self.watcher.live(name)
            row.samples.append(forks() - before)
            self.client.call("rm", name=name)
        row.samples = [min(row.samples)]
        return row

    def many(self, count: int) -> Measurement:
        """Time until `count` sessions that were asked for at once are all live."""
        method = f"{count} connections ask at the same moment; until the last is 'running'"
        row = Measurement(f"at-once-{count}", f"{count} sessions at once, until live", "ms", method)
        for index in range(self.rounds):
            names = [f"{PREFIX}many-{index}-{number}" for number in range(count)]
            gate = threading.Barrier(count + 1)
            threads = [threading.Thread(target=self._add_at, args=(gate, n)) for n in names]
            for thread in threads:
                thread.start()
            gate.wait()
            start = time.perf_counter()
            last = max(self.watcher.live(name)[0] for name in names)
            row.samples.append((last - start) * 1000)
            for thread in threads:
                thread.join()
            for name in names:
                self.client.call("rm", name=name)
        return row

    def _add_at(self, gate: threading.Barrier, name: str) -> None:
        with Client(self.runtime_dir, timeout=60) as client:
            client.call("status")  # connected before the start signal
            gate.wait()
            client.call("add", name=name, agent="shell")

    def idle(self, count: int) -> Iterator[Measurement]:
        """CPU and memory of the supervisor and the tmux server with `count` idle sessions."""
        present = sum(v["state"] == "running" for v in self.client.call("ls")["sessions"])
        for index in range(max(0, count - present)):
            name = f"{PREFIX}idle-{count}-{index}"
            self._add_by_socket(name)
            self.watcher.live(name)
        time.sleep(2)
        status = self.client.call("status")
        pids = {"supervisor": status["pid"], "tmux": status["server"]["pid"]}
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        start = time.perf_counter()
        time.sleep(self.idle_seconds)
        elapsed = time.perf_counter() - start
        cpu = f"run time in /proc/PID/task/*/schedstat over {self.idle_seconds:g} s, both processes"
        used = sum(cpu_seconds(pid) - before[name] for name, pid in pids.items())
        yield Measurement(
            f"idle-cpu-{count}",
            f"idle CPU, {count} sessions",
            "%",
            cpu,
            [used / elapsed * 100],
        )
        for name, pid in pids.items():
            yield Measurement(
                f"pss-{name}-{count}",
                f"memory of {name}, {count} sessions",
                "MB",
                "Pss in /proc/PID/smaps_rollup",
                [pss_megabytes(pid)],
            )


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used, with nanosecond resolution."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def pss_megabytes(pid: int) -> float:
    """Proportional set size in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"no Pss of process {pid}")


def forks() -> int:
    """Processes and threads that this machine has made since its boot."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("processes "):
            return int(line.split()[1])
    raise ValueError("no line 'processes' in /proc/stat")


def main(argv: list[str] | None = None) -> int:
    """Measure and print one JSON line a row, as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime-dir", type=Path, required=True)
    parser.add_argument("--command", default="agent-box-session", help="the session command")
    parser.add_argument("--quick", action="store_true", help="few samples")
    options = parser.parse_args(argv)
    for row in Bench(options.runtime_dir, options.command.split(), options.quick).run():
        sys.stdout.write(json.dumps(row.as_json()) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
