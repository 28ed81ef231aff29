"""`agent-box-terminal SESSION LOGIN`: started by ttyd for each terminal that a browser opens.

Attaches to the session of that very name or says why it cannot; no other session is ever shown.
Then a small watcher takes this process over and ends the terminal together with its login.

Where there is nothing to show it says so and waits for Enter. It must not end then, because ttyd's
page would connect anew at once, again and again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_box import config, naming
from agent_box.control_client import Client, SupervisorDown, SupervisorGone, SupervisorSilent
from agent_box.errors import AgentBoxError, NotFoundError
from agent_box.terminal import watch
from agent_box.tmux import SOCKET

LIVE = Path("/run/agent-box-gate/live")
"""A file for each login that lives; `AGENT_BOX_LIVE` overrides it."""

FEATURES = "256,RGB,clipboard,focus,hyperlinks,mouse,title"
"""What the terminal of ttyd's page can do, which its name alone does not tell tmux."""

ATTACHABLE = frozenset({"running", "waiting", "crashed", "unmanaged"})
"""States in which a session may have a pane to look at."""

_LOGIN = re.compile(r"[A-Za-z0-9_-]{16,128}")
_PATIENCE = 5.0  # seconds for tmux to answer


AGAIN = "Press Enter to look again."


class Refusal(Exception):  # noqa: N818 - a text for the person, not an accident
    """Why there is nothing to show."""


class Final(Refusal):
    """Why there will never be."""


def main() -> None:
    """Attach, or explain."""
    try:
        name, live = _arguments(sys.argv[1:])
    except Final as refused:
        print(f"\n  {refused}\n", flush=True)
        return
    try:
        box = config.load()
        user = config.current_user(box)
        check(name, Client(user.runtime_dir))
        command = attach_command(box.programs.tmux, name)
        environment = {**os.environ, "TMUX_TMPDIR": str(user.runtime_dir)}
        environment.pop("TMUX", None)
        expect(box.programs.tmux, name, environment)
        pid = start(command, environment)
    except (Refusal, AgentBoxError) as refused:
        watch.hold(f"\n  {refused}\n\n  {AGAIN}\n", live, [sys.executable, "-I", *sys.argv])
    watch.become(pid, live)


def _arguments(given: list[str]) -> tuple[str, Path]:
    if len(given) != 2 or not _LOGIN.fullmatch(given[1]):
        raise Final("This terminal was opened without saying which session it is for.")
    name, login = given
    if not naming.is_valid(name):
        raise Final("There is no session of that name.")
    live = Path(os.environ.get("AGENT_BOX_LIVE") or LIVE) / login
    if not live.exists():
        raise Final(watch.ENDED)
    return name, live


def check(name: str, client: Client) -> None:
    """Raise `Refusal` when session `name` is known to have no terminal."""
    try:
        with client:
            views = client.call("ls")["sessions"]
    except (SupervisorDown, SupervisorGone, SupervisorSilent):
        return  # then tmux alone knows; sessions outlive their supervisor
    view = next((view for view in views if view["name"] == name), None)
    if view is None:
        raise NotFoundError(f"There is no session {name}. {_others(views)}")
    if view["state"] not in ATTACHABLE:
        raise Refusal(_explanation(view))


def _others(views: list[dict[str, Any]]) -> str:
    names = sorted(view["name"] for view in views if not naming.is_reserved(view["name"]))
    if not names:
        return "Add one in the workspace, or with: agent-box-session add"
    return f"There are: {', '.join(names)}."


def _explanation(view: dict[str, Any]) -> str:
    name, state = view["name"], view["state"]
    reason = f" ({view['reason']})" if view.get("reason") else ""
    if state == "stopped":
        return f"{name} is stopped. Start it in the workspace: agent-box-session start {name}"
    if state == "starting":
        return f"{name} is starting{reason}. It will be here in a moment."
    return (
        f"{name} has failed{reason}.\n  See: agent-box-session logs {name}\n"
        f"  Start it again in the workspace: agent-box-session restart {name}"
    )


def attach_command(tmux: str, name: str) -> list[str]:
    """Return the command that shows session `name`. It never starts a server."""
    return [tmux, "-u", "-T", FEATURES, "-L", SOCKET, "-N", "attach", "-t", f"={name}"]


def expect(tmux: str, name: str, environment: dict[str, str]) -> None:
    """Raise `Refusal` unless tmux has a session of exactly that name."""
    ask = [tmux, "-L", SOCKET, "-N", "has-session", "-t", f"={name}"]
    try:
        done = subprocess.run(
            ask, env=environment, capture_output=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise Refusal("The sessions do not answer at the moment.") from None
    if done.returncode != 0:
        raise Refusal(f"{name} has no terminal at the moment.")


def start(command: list[str], environment: dict[str, str]) -> int:
    """Start the client of tmux on this terminal and return its process id.

    It dies with the process that started it, however that one ends.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        watch.die_with_parent(signal.SIGHUP)
        if os.getppid() == parent:
            os.execve(command[0], command, environment)  # noqa: S606 - no shell is wanted
    finally:
        os._exit(127)


if __name__ == "__main__":
    main()
