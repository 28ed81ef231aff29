"""`agent-box-terminal SESSION LOGIN`: started by ttyd for each terminal that a browser opens.

Attaches to the session of that very name or says why it cannot; no other session is ever shown.
Then a small watcher takes this process over and ends the terminal together with its login.

Where there is nothing to show it says so and waits for Enter, which starts a session that can be
started. It must not end then, because ttyd's page would connect anew at once, again and again.
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
from agent_box.errors import AgentBoxError, ConflictError, NotFoundError
from agent_box.terminal import watch

LIVE = Path("/run/agent-box-gate/live")
"""A file for each login that lives, by user; `AGENT_BOX_LIVE` overrides it."""

FEATURES = "256,RGB,clipboard,focus,hyperlinks,mouse,title"
"""What the terminal of ttyd's page can do, which its name alone does not tell tmux."""

ATTACHABLE = frozenset({"running", "waiting", "crashed", "unmanaged"})
"""States in which a session may have a pane to look at."""

_LOGIN = re.compile(r"[A-Za-z0-9_-]{16,128}")
_PATIENCE = 5.0  # seconds for tmux to answer
_STARTING = 20.0  # seconds to wait for a session that is on its way

AGAIN = "Press Enter to look again."
START = "Press Enter to start it."
_START = "start"
"""Third argument of the program that Enter starts; ttyd passes two."""


class Refusal(Exception):  # noqa: N818 - a text for the person, not an accident
    """Why there is nothing to show."""

    offer = AGAIN
    then: tuple[str, ...] = ()
    """What the program that Enter starts is told beyond session and login."""


class Startable(Refusal):
    """Why there is nothing to show yet: the session does not run, but can."""

    offer = START
    then = (_START,)


class Final(Refusal):
    """Why there will never be."""


def main() -> None:
    """Attach, or explain."""
    try:
        name, live, begin = _arguments(sys.argv[1:], config.current_name())
    except Final as refused:
        print(f"\n  {refused}\n", flush=True)
        return
    try:
        box = config.load()
        user = config.current_user(box)
        client = Client(user.runtime_dir)
        if begin:
            start_session(name, client)
        check(name, client)
        command = attach_command(box.programs.tmux, name)
        environment = {**os.environ, "TMUX_TMPDIR": str(user.runtime_dir)}
        environment.pop("TMUX", None)
        expect(box.programs.tmux, name, environment)
        pid = start(command, environment)
    except (Refusal, AgentBoxError) as refused:
        kind = type(refused) if isinstance(refused, Refusal) else Refusal
        again = [sys.executable, "-I", *sys.argv[:3], *kind.then]
        watch.hold(f"\n  {refused}\n\n  {kind.offer}\n", live, again)
    watch.become(pid, live)


def _arguments(given: list[str], user: str) -> tuple[str, Path, bool]:
    begin = given[2:] == [_START]
    if len(given) != 2 + begin or not _LOGIN.fullmatch(given[1]):
        raise Final("This terminal was opened without saying which session it is for.")
    name, login = given[:2]
    if not naming.is_valid(name):
        raise Final("There is no session of that name.")
    # Whoever the login belongs to: it counts for this user's terminals only if it is theirs.
    live = Path(os.environ.get("AGENT_BOX_LIVE") or LIVE) / user / login
    if not live.exists():
        raise Final(watch.ENDED)
    return name, live, begin


def start_session(name: str, client: Client) -> None:
    """Start a session that does not run; returns when it does, or will not any time soon."""
    print(f"\n  Starting {name} …", flush=True)
    with client:
        client.call("start", name=name)


def check(name: str, client: Client) -> None:
    """Raise `Refusal` when session `name` is known to have no terminal.

    Waits a while for one that is on its way.
    """
    try:
        with client:
            views = client.call("ls")["sessions"]
            view = next((view for view in views if view["name"] == name), None)
            if view is None:
                raise NotFoundError(f"There is no session {name}. {_others(views)}")
            if view["state"] == "starting":
                print(f"\n  {_explanation(view)}", flush=True)
                view = _arrival(client, name) or view
    except (SupervisorDown, SupervisorGone, SupervisorSilent):
        return  # then tmux alone knows; sessions outlive their supervisor
    if view["state"] not in ATTACHABLE:
        kind = Refusal if view["state"] == "starting" else Startable
        raise kind(_explanation(view))


def _arrival(client: Client, name: str) -> dict[str, Any] | None:
    """Return how a session is that was starting; None when that takes too long."""
    states = [*sorted(ATTACHABLE), "failed", "stopped"]
    try:
        found = client.call("wait", name=name, states=states, timeout=_STARTING)
    except ConflictError:
        return None
    view: dict[str, Any] = found["session"]
    return view


def _others(views: list[dict[str, Any]]) -> str:
    names = sorted(view["name"] for view in views if not naming.is_reserved(view["name"]))
    if not names:
        return "Add one in the workspace, or with: agent-box-session add"
    return f"There are: {', '.join(names)}."


def _explanation(view: dict[str, Any]) -> str:
    name, state = view["name"], view["state"]
    reason = f" ({view['reason']})" if view.get("reason") else ""
    if state == "stopped":
        return f"{name} is stopped."
    if state == "starting":
        return f"{name} is starting{reason}. It will be here in a moment."
    return f"{name} has failed{reason}.\n  See: agent-box-session logs {name}"


def attach_command(tmux: str, name: str) -> list[str]:
    """Return the command that shows session `name`. It never starts a server."""
    return [tmux, "-u", "-T", FEATURES, "-L", naming.TMUX_SOCKET, "-N", "attach", "-t", f"={name}"]


def expect(tmux: str, name: str, environment: dict[str, str]) -> None:
    """Raise `Refusal` unless tmux has a session of exactly that name."""
    ask = [tmux, "-L", naming.TMUX_SOCKET, "-N", "has-session", "-t", f"={name}"]
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
