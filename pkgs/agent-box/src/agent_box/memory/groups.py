"""What control groups and processes use, as the kernel counts it.

A group counts all that was allocated in it: files in memory, buffers of sockets and what is left
by processes that are gone. So it does not matter over how many processes or groups below its own
a user spreads, nor what they are called.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "user.agent_box_oom"
"""Attribute of a group: how often something in it was ended for lack of memory."""

_RECLAIMABLE = ("active_file", "inactive_file", "slab_reclaimable")
_STARTED = 19  # of /proc/PID/stat, counted behind the name
_PAGES = ("RssAnon", "RssShmem", "VmSwap")


def counted(mount: Path) -> bool:
    """Tell whether control groups count memory here."""
    try:
        return "memory" in (mount / "cgroup.controllers").read_text().split()
    except OSError:
        return False


def of_slice(name: str) -> Path:
    """Return where a slice is: a dash in its name means "below"."""
    parts = name.removesuffix(".slice").split("-")
    return Path(*("-".join(parts[: end + 1]) + ".slice" for end in range(len(parts))))


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split()[:2] for line in text.splitlines())
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if pair[1:] and pair[1].isdigit()}


@dataclass(frozen=True)
class Group:
    """One control group; one that is gone weighs nothing."""

    path: Path

    @property
    def weight(self) -> int:
        """Bytes that only the end of something gives back, swapped ones included."""
        try:
            current = int((self.path / "memory.current").read_text())
            stat = _fields((self.path / "memory.stat").read_text())
        except (OSError, ValueError):
            return 0
        swapped = 0
        with contextlib.suppress(OSError, ValueError):  # a kernel without swap
            swapped = int((self.path / "memory.swap.current").read_text())
        return max(0, current - sum(stat.get(name, 0) for name in _RECLAIMABLE)) + swapped

    def below(self) -> list[Group]:
        """Return the groups below it that count for themselves."""
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            return [
                Group(Path(entry.path))
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
                and Path(entry.path, "memory.current").exists()
            ]
        return []

    def pids(self) -> Iterator[int]:
        """Yield the processes in it and in all groups below."""
        for folder, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError, ValueError):
                for word in Path(folder, "cgroup.procs").read_text().split():
                    yield int(word)

    def populated(self) -> bool:
        """Tell whether a process lives in it."""
        with contextlib.suppress(OSError):
            return "populated 1" in (self.path / "cgroup.events").read_text()
        return False

    def kill(self) -> None:
        """End all processes in it; new ones cannot escape."""
        try:
            (self.path / "cgroup.kill").write_text("1")
        except FileNotFoundError:
            for pid in self.pids():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        except OSError:
            return
        self.mark()

    def mark(self) -> None:
        """Note for the supervisor, which tells why its session ended."""
        with contextlib.suppress(OSError):
            os.setxattr(self.path, MARK, str(marks(self.path) + 1).encode())


def marks(path: Path) -> int:
    """Return how often something in a group was ended for lack of memory."""
    try:
        return int(os.getxattr(path, MARK))
    except (OSError, ValueError):
        return 0


@dataclass(frozen=True)
class Process:
    """One process."""

    pid: int
    name: str
    uid: int
    weight: int
    spared: bool
    """Root has lowered its score, as of a service that must live."""
    started: str
    """When, in ticks since the boot: of two with the same number, one is another."""

    def kill(self) -> None:
        """End it, unless its number is somebody else's by now."""
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(self.pid)
            try:
                now = process(self.pid)
                if now is not None and now.started == self.started:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def process(pid: int, proc: Path = Path("/proc")) -> Process | None:
    """Return a process; None for one that is gone and for threads of the kernel."""
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
        score = int((proc / str(pid) / "oom_score_adj").read_text())
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    fields = _fields(text)
    if "VmSize" not in fields:
        return None
    weight = sum(fields.get(name, 0) for name in _PAGES) << 10
    name = text.partition("\n")[0].removeprefix("Name:\t")
    started = stat.rpartition(")")[2].split()[_STARTED]
    return Process(pid, name, fields["Uid"], weight, score < 0, started)


def processes(proc: Path = Path("/proc")) -> Iterator[Process]:
    """Yield all processes but this one."""
    with os.scandir(proc) as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        found = process(pid, proc) if pid != os.getpid() else None
        if found is not None:
            yield found


def slice_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Return the path of a process's group, of systemd's hierarchy on old layouts."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return ""
    for start in ("0::/", "1:name=systemd:/"):
        for line in lines:
            if line.startswith(start) and line != start:
                return line.removeprefix(start)
    return ""


def wait_for_end(group: Group | None, pid: int | None, seconds: float) -> None:
    """Wait until what was ended is gone; memory comes back with its last process."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if group is not None and not group.populated():
            return
        if pid is not None and process(pid) is None:
            return
        time.sleep(0.02)
