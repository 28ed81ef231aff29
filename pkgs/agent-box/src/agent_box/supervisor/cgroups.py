"""One control group per session below the sandbox's delegated one.

systemd delegates the sandbox's group to the user (`Delegate=`) and keeps the tmux server in
a sub-group of its own (`DelegateSubgroup=`). The supervisor makes a sibling for every
session and sets its limits, so that one runaway harms only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box.errors import InternalError
from agent_box.memory.groups import marks

if TYPE_CHECKING:
    from agent_box.config import Limits

MOUNT = Path("/sys/fs/cgroup")
UNIFIED = MOUNT / "unified"
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def parse_memory(text: str | None, total: int) -> int | None:
    """Return the bytes that `text` means on a machine with `total` bytes of RAM."""
    if text is None or text in ("", "infinity"):
        return None
    try:
        if text.endswith("%"):
            return int(total * float(text[:-1]) / 100)
        unit = _UNITS.get(text[-1].upper())
        return int(float(text[:-1]) * unit) if unit else int(text)
    except ValueError:
        raise InternalError(
            f"the memory limit {text!r} is neither a size nor a percentage"
        ) from None


def _whole_pages(size: int | None) -> int | None:
    """Return `size` as the kernel will take it, so that what is shown is what is enforced."""
    return None if size is None else size - size % os.sysconf("SC_PAGE_SIZE")


def total_memory() -> int:
    """Return the machine's RAM in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Applied:
    """The limits of a session that the kernel really enforces; None where it does not."""

    memory_max: int | None = None
    tasks_max: int | None = None


class Groups:
    """The control groups of one sandbox, found through its tmux server."""

    def __init__(self, server_pid: int, limits: Limits) -> None:
        self.root = _delegated_root(server_pid)
        self.problem: str | None = None
        """Why limits are not enforced, for humans; None when they are."""
        self._memory = _whole_pages(parse_memory(limits.memory_max, total_memory()))
        self._tasks = limits.tasks_max
        if self.root is None:
            self.problem = "the sandbox has no control group of its own: no limits per session"
            return
        for controller in ("memory", "pids", "cpu"):
            with contextlib.suppress(OSError):
                (self.root / "cgroup.subtree_control").write_text(f"+{controller}")
        try:
            enabled = (self.root / "cgroup.subtree_control").read_text().split()
        except OSError as error:
            self.problem = f"no limits per session: {error}"
            return
        missing = [name for name in ("memory", "pids") if name not in enabled]
        if missing:
            names = " and ".join(missing)
            self.problem = f"this kernel offers no {names} controller: no such limits per session"

    def name(self, session_id: str) -> str:
        """Return the group's name below the sandbox's own."""
        return f"session-{session_id}"

    def create(self, session_id: str) -> tuple[str | None, Applied]:
        """Make the group and set its limits; return its name and what is enforced."""
        if self.root is None:
            return None, Applied()
        group = self.root / self.name(session_id)
        try:
            group.mkdir(exist_ok=True)
        except OSError:
            return None, Applied()
        memory = _set(group / "memory.max", self._memory)
        tasks = _set(group / "pids.max", self._tasks)
        return group.name, Applied(memory, tasks)

    def applied(self, session_id: str) -> Applied:
        """Return the limits in force of a group that exists."""
        if self.root is None:
            return Applied()
        group = self.root / self.name(session_id)
        return Applied(_get(group / "memory.max"), _get(group / "pids.max"))

    def oom_kills(self, session_id: str) -> int:
        """Return how often something in this group was ended for lack of memory.

        The kernel counts what it ends at a limit; agent-box-memory notes what it ends.
        """
        if self.root is None:
            return 0
        group = self.root / self.name(session_id)
        noted = marks(group)
        try:
            text = (group / "memory.events").read_text()
        except OSError:
            return noted
        counts = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
        return int(counts.get("oom_kill", 0)) + noted

    def populated(self, session_id: str) -> bool:
        """Tell whether a process of the session lives."""
        if self.root is None:
            return False
        try:
            events = (self.root / self.name(session_id) / "cgroup.events").read_text()
        except OSError:
            return False
        return "populated 1" in events

    def kill(self, session_id: str) -> None:
        """Kill every process of the session."""
        if self.root is None:
            return
        with contextlib.suppress(OSError):
            (self.root / self.name(session_id) / "cgroup.kill").write_text("1")

    async def remove(self, session_id: str) -> None:
        """Kill what is left of the session and remove its group."""
        if self.root is None:
            return
        group = self.root / self.name(session_id)
        for attempt in range(50):
            self.kill(session_id)
            for below in sorted(group.glob("**/"), reverse=True):
                if below != group:
                    with contextlib.suppress(OSError):
                        below.rmdir()
            try:
                group.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                # Its processes are dying, or have groups of their own below.
                await asyncio.sleep(0.01 * (attempt + 1))
            else:
                return


def _delegated_root(server_pid: int) -> Path | None:
    """Return the group that was delegated to the sandbox, if it may be written."""
    try:
        lines = Path(f"/proc/{server_pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    unified = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    if not unified:
        return None
    mount = MOUNT if (MOUNT / "cgroup.procs").exists() else UNIFIED
    group = mount / unified[0].lstrip("/")
    root = group.parent
    # The server sits in a sub-group; only then may the one above have limits below it.
    if group == mount or not os.access(root / "cgroup.procs", os.W_OK) or os.getuid() == 0:
        return None
    return root


def _set(path: Path, value: int | None) -> int | None:
    try:
        path.write_text("max" if value is None else str(value))
    except OSError:
        return None
    return value


def _get(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
