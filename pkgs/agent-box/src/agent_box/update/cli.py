"""`agent-box-update`: lets a user who may do so start an update of the box, and follow it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from agent_box import config
from agent_box.errors import AgentBoxError, InternalError
from agent_box.update import request, status
from agent_box.update.lockfile import short

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 10.0
"""Seconds in which an update that was asked for begins."""
AGAIN = 2.0
"""Seconds after which it is asked for once more: while the one before ends, nobody listens."""


def describe(found: status.Status) -> str:
    """Return what a person reads about an update."""
    if not found.started:
        return "never updated from here\n"
    changed = {
        name: (found.before.get(name), rev)
        for name, rev in found.to.items()
        if found.before.get(name) != rev
    }
    lines = [f"{found.result or found.phase}: {found.message}"]
    lines += [f"  {name}: {short(old)} -> {short(new)}" for name, (old, new) in changed.items()]
    if found.finished:
        stamp = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.finished))
        lines.append(f"  ended {stamp}, after {found.finished - found.started:.0f} s")
    return "\n".join(lines) + "\n"


def follow(
    since: float, ask: Callable[[], None] = lambda: None, state: Path | None = None
) -> status.Status:
    """Print phases until the update that began after `since` has ended; return its end.

    `ask` is called every now and then until it has begun.
    """
    seen = ""
    deadline = time.monotonic() + PATIENCE
    again = time.monotonic() + AGAIN
    while True:
        found = status.read(state)
        begun = found.started > since or (found.finished or 0) > since
        if begun and found.message != seen:
            seen = found.message
            sys.stdout.write(f"{seen}\n")
            sys.stdout.flush()
        if begun and not found.running:
            return found
        if not begun and time.monotonic() > deadline:
            raise InternalError("the update did not begin: see `journalctl -u agent-box-update`")
        if not begun and time.monotonic() > again:
            again = time.monotonic() + AGAIN
            ask()
        time.sleep(0.25)


def main(argv: list[str] | None = None) -> None:
    """Run one subcommand."""
    parser = argparse.ArgumentParser(prog="agent-box-update", description=__doc__.split(": ", 1)[1])
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start", help="start an update and follow it to its end")
    starting.add_argument(
        "--no-wait", action="store_true", help="return when it has been asked for"
    )
    commands.add_parser("status", help="how far it is, or how the last one ended")
    options = parser.parse_args(argv)
    try:
        if options.command == "status":
            sys.stdout.write(describe(status.read()))
            return
        box = config.load()
        user = config.current_user(box).name if os.getuid() else "root"
        since = time.time()
        request.start(box, user)
        if options.no_wait:
            return
        found = follow(since, lambda: request.start(box, user))
    except AgentBoxError as error:
        sys.stderr.write(f"agent-box-update: {error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(describe(found))
    sys.exit(1 if found.result == "failed" else 0)
