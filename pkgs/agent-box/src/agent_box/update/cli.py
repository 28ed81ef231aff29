"""`agent-box-update`: lets a user who may do so start an update of the box, and follow it."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

from agent_box import config
from agent_box.errors import AgentBoxError, ConflictError, InternalError, NotFoundError
from agent_box.update import status
from agent_box.update.lockfile import short

SOCKETS = Path("/run/agent-box-update")
"""A socket per user who may start an update; connecting starts it."""

PATIENCE = 10.0
"""Seconds in which an update that was asked for begins."""


def socket_of(user: str) -> Path:
    """Return the socket with which `user` starts an update."""
    return SOCKETS / f"{user}.sock"


def start(box: config.Box, user: str) -> None:
    """Ask for an update. What is asked while one runs is the same one."""
    if box.update is None:
        raise NotFoundError("this box is not updated from inside: ask whoever administers it")
    if user not in box.update.users:
        raise ConflictError(
            f"{user} may not update this box: whoever administers it can allow it with "
            f"services.agent-box.users.{user}.mayUpdate"
        )
    path = socket_of(user)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.settimeout(PATIENCE)
            client.connect(str(path))
        except OSError as error:
            raise InternalError(
                f"{path} cannot be used ({error.strerror or error}): look whether "
                f"agent-box-update-{user}.socket is active, and into `journalctl -u "
                "agent-box-update`"
            ) from None


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


def follow(since: float, state: Path = status.STATE) -> status.Status:
    """Print phases until the update that began after `since` has ended; return its end."""
    seen = ""
    deadline = time.monotonic() + PATIENCE
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
        start(box, user)
        if options.no_wait:
            return
        found = follow(since)
    except AgentBoxError as error:
        sys.stderr.write(f"agent-box-update: {error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(describe(found))
    sys.exit(1 if found.result == "failed" else 0)
