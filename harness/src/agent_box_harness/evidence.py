"""What a failed scenario leaves behind, so that nobody has to run it again to understand it.

A bundle is a folder: what the guest said on its console, its journal, failed units, processes,
every pane of every session as it looked, every registry, and the history of commands with
timings. Collecting is best effort: a guest that no longer answers still yields what the host
knows, and each piece has its own short time limit, so that the bundle exists before anybody
outside loses patience.
"""

from __future__ import annotations

import datetime as dt
import shlex
import shutil
from typing import TYPE_CHECKING

from agent_box_harness.errors import HarnessError

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box_harness.box import Box
    from agent_box_harness.machine import Command, Machine

PIECE_TIMEOUT = 20.0  # seconds at native speed for one piece of evidence
JOURNAL_LINES = 3000
LONGEST = 96 << 10
"""Bytes of a piece; the console of an emulated guest drops what is longer, with the end of the
answer. The export of the journal has all of it."""

GUEST_COMMANDS = {
    "failed-units.txt": (
        "systemctl --failed --no-pager --full; echo; systemctl list-jobs --no-pager"
    ),
    "status.txt": (
        "systemctl status --no-pager --full --lines=40 'agent-box-*' 2>&1; echo; "
        "systemd-cgls --no-pager --full 2>&1"
    ),
    "journal.txt": f"journalctl -b --no-pager -o short-monotonic -n {JOURNAL_LINES} 2>&1",
    "kernel.txt": "dmesg 2>&1 | tail -n 400",
    "processes.txt": "ps -eo pid,ppid,user:16,stat,etimes,rss,wchan:20,args --forest 2>&1",
    "memory.txt": "free -m; swapon --show; cat /proc/pressure/* 2>/dev/null; df -h",
}
"""File name of a piece of evidence -> root's shell command that prints it."""


def collect(box: Box, folder: Path) -> list[Path]:
    """Write the bundle into `folder` and return the files written. Never raises HarnessError."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = box.machine
    # what ran during the scenario, before the collecting itself adds to it
    history = list(machine.history)
    written = [_write(folder / "commands.txt", command_history(history))]
    written.append(_write(folder / "machine.txt", describe(machine)))
    if machine.serial_log.exists():
        target = folder / "serial.log"
        shutil.copyfile(machine.serial_log, target)
        written.append(target)
    if not machine.is_up():
        written.append(_write(folder / "guest-is-down.txt", "the guest was not running\n"))
        return written
    answers = True
    for name, command in GUEST_COMMANDS.items():
        text = _look(machine, command)
        if text is None:
            answers = False
            break
        written.append(_write(folder / name, text))
    if not answers:
        note = "the guest did not answer; see serial.log and commands.txt\n"
        written.append(_write(folder / "guest-is-deaf.txt", note))
        return written
    written += _journal_export(machine, folder)
    for user in _users(box):
        written += _user(box, user, folder / user)
    return written


def command_history(history: list[Command]) -> str:
    """Every command of the scenario: when, how long, with what status, and its output."""
    lines = []
    for entry in history:
        at = dt.datetime.fromtimestamp(entry.at, dt.UTC).strftime("%H:%M:%S.%f")[:-3]
        status = "no answer" if entry.status is None else f"status {entry.status}"
        lines.append(f"{at}  {entry.seconds:7.3f} s  {status}  {entry.command}")
        lines += [f"    | {line}" for line in entry.output.splitlines()[:40]]
    return "\n".join(lines) + "\n"


def describe(machine: Machine) -> str:
    """Which machine it was, and the command that started it, if there is one."""
    argv = getattr(machine, "argv", None)
    command = shlex.join(str(word) for word in argv) if isinstance(argv, list) else "(none)"
    capabilities = ", ".join(sorted(machine.capabilities))
    return (
        f"{machine.description}\nkind: {machine.kind}\ntime factor: {machine.time_factor}\n"
        f"capabilities: {capabilities}\ncommand: {command}\n"
    )


def _user(box: Box, user: str, folder: Path) -> list[Path]:
    """Registry, side state, supervisor's view and every pane of one user."""
    folder.mkdir(exist_ok=True)
    home = shlex.quote(box.home(user))
    commands = {
        "registry.json": f"cat {home}/.config/agent-box/sessions.json 2>&1",
        "state.txt": (
            f"for f in {home}/.local/state/agent-box/sessions/*.json; do "
            'echo "== $f"; cat "$f"; echo; done 2>&1'
        ),
        "files.txt": f"ls -laR {home}/.config/agent-box /run/agent-box-{user} 2>&1",
    }
    written = []
    for name, command in commands.items():
        text = _look(box.machine, command)
        if text is not None:
            written.append(_write(folder / name, text))
    try:
        view = box.ctl(user, "ls --json", timeout=10)
        written.append(_write(folder / "ls.json", f"{view.out}\n{view.err}"))
        panes = box.tmux(
            user,
            "list-panes -a -F '#{pane_id} #{session_name} #{pane_pid} #{pane_dead} "
            "#{pane_dead_status} #{pane_current_command}'",
            timeout=10,
        )
        screens = [panes.out, panes.err]
        for line in panes.out.splitlines():
            pane, _, rest = line.partition(" ")
            screen = box.tmux(user, f"capture-pane -p -S -200 -t {shlex.quote(pane)}", timeout=10)
            screens.append(f"\n==== {pane} {rest}\n{screen.out}{screen.err}")
        written.append(_write(folder / "panes.txt", "\n".join(screens)))
    except HarnessError as error:
        written.append(_write(folder / "incomplete.txt", f"{error}\n"))
    return written


def _users(box: Box) -> list[str]:
    try:
        return box.users
    except (HarnessError, ValueError, KeyError):
        return []


def _journal_export(machine: Machine, folder: Path) -> list[Path]:
    """The whole journal in the format that `systemd-journal-remote` reads back."""
    made = "/run/harness-journal.export.gz"
    if _look(machine, f"journalctl -b -o export | gzip -1 >{made}") is None:
        return []
    try:
        return [machine.copy_from_machine(made, str(folder))]
    except (HarnessError, OSError):
        return []


def _look(machine: Machine, command: str) -> str | None:
    """Output of a command, or None if the guest does not answer in time."""
    try:
        cut = f"set +e; {{ {command}\n}} | tail -c {LONGEST}; true"
        status, text = machine.execute(cut, timeout=PIECE_TIMEOUT)
    except HarnessError:
        return None
    return None if status == 124 and not text else text


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
