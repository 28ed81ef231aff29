"""`attach`: hand the terminal over to the session that was meant, never to another."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from agent_box import naming
from agent_box.control_client import SupervisorDown, SupervisorGone, SupervisorSilent
from agent_box.errors import ConflictError, InternalError, NotFoundError, UsageError
from agent_box.session_cli import PROGRAM, render
from agent_box.session_cli.context import names_of

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from agent_box.session_cli.context import Context

DEFAULT = "main"
"""The session that `attach` without a name prefers."""

_START_PATIENCE = 15.0  # seconds for a session that is just starting


def run(context: Context, arguments: argparse.Namespace) -> int:
    """Replace this process by a tmux client; with --json print what would be run."""
    result = context.call("ls")
    view = choose(result.get("sessions", []), arguments.name)
    view = _ready(context, view)
    argv = command(context.box.programs.tmux, context.user.runtime_dir, view["name"], arguments)
    environment = {"TMUX_TMPDIR": str(context.user.runtime_dir)}
    if context.json:
        context.print_json({"session": view, "argv": argv, "environment": environment})
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            f"attach needs a terminal; without one use {PROGRAM} logs and send,"
            " or ssh -t to get one"
        )
    full = {**os.environ, **environment}
    if not in_same_server(context.user.runtime_dir):
        full.pop("TMUX", None)  # inside another tmux, nesting is what was asked for
    full["TERM"] = _usable_terminal(full.get("TERM"))
    context.close()
    try:
        os.execve(argv[0], argv, full)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise InternalError(f"cannot run {argv[0]}: {error.strerror}; rebuild the box") from error


def choose(views: list[dict[str, Any]], name: str | None) -> dict[str, Any]:
    """Return the session called `name`, or the obvious one when no name was given."""
    if name is not None:
        naming.check_existing(name)
        for view in views:
            if view["name"] == name:
                return view
        raise NotFoundError(f"there is no session {name}; {_what_there_is(views)}")
    # Panes of the box itself are no place to land in by accident.
    own = [view for view in views if not naming.is_reserved(view["name"])]
    for view in own:
        if view["name"] == DEFAULT:
            return view
    if len(own) == 1:
        return own[0]
    if not own:
        raise NotFoundError(f"there is no session; make one with: {PROGRAM} add")
    raise UsageError(f"say which session: {render.enumerate_names(names_of(own))}")


def command(tmux: str, runtime_dir: Path, name: str, arguments: argparse.Namespace) -> list[str]:
    """Return the tmux command that shows session `name`. It never starts a server."""
    verb = "switch-client" if in_same_server(runtime_dir) else "attach"
    # tmux draws ASCII only unless the locale, often lost on the way here, says UTF-8.
    utf8 = any("UTF-8" in os.environ.get(key, "").upper() for key in ("LC_ALL", "LC_CTYPE", "LANG"))
    return [
        tmux,
        *([] if utf8 else ["-u"]),
        *("-L", naming.TMUX_SOCKET, "-N", verb),
        *(["-r"] if arguments.read_only else []),
        *("-t", f"={name}"),
    ]


def in_same_server(runtime_dir: Path) -> bool:
    """Tell whether this process runs in a pane of the user's own agent-box server."""
    socket = os.environ.get("TMUX", "").partition(",")[0]
    ours = naming.tmux_socket(runtime_dir)
    with contextlib.suppress(OSError):
        return bool(socket) and ours.samefile(socket)
    return False


def _ready(context: Context, view: dict[str, Any]) -> dict[str, Any]:
    """Return the view of a session that has a pane to look at, or say why it has none."""
    if view["state"] == "starting":
        with contextlib.suppress(ConflictError, SupervisorDown, SupervisorSilent, SupervisorGone):
            view = context.call(
                "wait",
                call_timeout=_START_PATIENCE + 2,
                name=view["name"],
                states=["running", "waiting", "crashed", "failed", "stopped"],
                timeout=_START_PATIENCE,
            )["session"]
    name, state = view["name"], view["state"]
    if state == "stopped":
        raise ConflictError(f"{name} is stopped; start it with: {PROGRAM} start {name}")
    remark = render.note(view, time.time())
    why = f" ({remark})" if remark else ""
    if state == "failed":
        raise ConflictError(
            f"{name} has failed{why}; see {PROGRAM} logs {name},"
            f" and when the cause is gone: {PROGRAM} restart {name}"
        )
    if state == "crashed":
        raise ConflictError(
            f"{name} has crashed{why}; see {PROGRAM} logs {name},"
            f" or start it now with: {PROGRAM} restart {name}"
        )
    if state == "starting":
        raise ConflictError(f"{name} has not started yet{why}; see: {PROGRAM} show {name}")
    return view


def _what_there_is(views: list[dict[str, Any]]) -> str:
    if not views:
        return f"make it with: {PROGRAM} add NAME"
    return f"there are: {render.enumerate_names(names_of(views))}"


def _usable_terminal(name: str | None) -> str:
    """Return `name` if this machine can drive such a terminal, else what most can pass for."""
    fallback = "xterm-256color"
    if not name or name == "dumb":
        return fallback
    try:
        import curses

        curses.setupterm(name, sys.stdout.fileno())
    except ImportError:
        return name
    except curses.error:
        return fallback
    return name
