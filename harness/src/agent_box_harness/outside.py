"""What root sees of a user's units and processes, without asking agent-box itself.

Scenarios compare this with what agent-box says, or assert on it alone where agent-box is the
one under suspicion.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from agent_box_harness.box import Box


@dataclass(frozen=True)
class Pane:
    """A pane of a user's tmux server."""

    session: str
    pid: int
    dead: bool


def sandbox(user: str) -> str:
    """Name of the unit that holds a user's sessions."""
    return f"agent-box-{user}.service"


def supervisor(user: str) -> str:
    """Name of the unit that supervises a user's sessions."""
    return f"agent-box-supervisor-{user}.service"


def main_pid(box: Box, unit: str) -> int:
    """Pid of a unit's main process, as the guest numbers it; fails while it has none."""
    pid = int(box.machine.get_unit_property(unit, "MainPID") or 0)
    if pid == 0:
        raise RequestFailedError(f"{unit} has no main process")
    return pid


def group(box: Box, unit: str) -> str:
    """Directory of a unit's control group; fails while it has none."""
    path = str(box.machine.get_unit_property(unit, "ControlGroup"))
    if not path:
        raise RequestFailedError(f"{unit} has no control group")
    return f"/sys/fs/cgroup{path}"


def restarts(box: Box, unit: str) -> int:
    """How often systemd has restarted a unit by itself."""
    return int(box.machine.get_unit_property(unit, "NRestarts"))


def panes(box: Box, user: str) -> dict[str, Pane]:
    """First pane of every tmux session of a user, by session name."""
    form = "#{pane_pid} #{pane_dead} #{session_name}"
    listing = box.tmux(user, f"list-panes -a -F {shlex.quote(form)}").check("list-panes").out
    found: dict[str, Pane] = {}
    for line in listing.splitlines():
        pid, dead, name = line.split(" ", 2)
        found.setdefault(name, Pane(name, int(pid), dead == "1"))
    return found


def processes(box: Box, user: str, pattern: str) -> list[int]:
    """Pids of a user's processes whose command line matches an extended regular expression."""
    found = box.run(f"pgrep -u {shlex.quote(user)} -f -- {shlex.quote(pattern)}")
    return [int(word) for word in found.out.split()]


def alive(box: Box, pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    found = box.run(f"ps -o stat= -p {pid}").out.strip()
    return bool(found) and not found.startswith("Z")


def servers(box: Box, user: str) -> list[int]:
    """Pids of the tmux servers that a user runs, wherever they come from.

    A client of the same program names a command; what stays with the sandbox's unit is the one
    that systemd started, and a second one would have been forked by a client (ppid 1, or a
    comm of `tmux: server`).
    """
    listing = box.run(f"ps -u {shlex.quote(user)} -o pid=,comm=").check("ps").out
    found = []
    for line in listing.splitlines():
        pid, _, name = line.strip().partition(" ")
        if name.strip() == "tmux: server":
            found.append(int(pid))
    return found


def journal(box: Box, unit: str) -> str:
    """What a unit said since the boot."""
    command = f"journalctl -b --no-pager -o cat -u {shlex.quote(unit)}"
    return box.run(command).check("journalctl").out
