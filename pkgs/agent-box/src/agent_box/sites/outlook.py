"""Whether anything answers behind a site, as far as the user's own programs can tell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box.sites import listeners

if TYPE_CHECKING:
    from agent_box.config import User


def judged(user: User, verdicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdicts of the box with `waiting` where nothing answers, and why."""
    found = []
    for verdict in verdicts:
        reason = amiss(user, verdict.get("port"), verdict.get("dir"))
        served = verdict["state"] == "served"
        found.append(
            {**verdict, "state": "waiting", "reason": reason} if served and reason else verdict
        )
    return found


def amiss(user: User, port: int | None, folder: str | None) -> str | None:
    """Say why a site shows nothing right now."""
    if port is not None:
        return _port(user, port)
    return None if folder is None else _folder(user, folder)


def foreign(user: User, port: int) -> bool:
    """Tell whether a program of somebody else has the port, where users share a network."""
    if user.network is not None:
        return False
    found = listeners.reached(port, listeners.listeners())
    return bool(found) and all(each.uid != os.getuid() for each in found.values())


def _port(user: User, port: int) -> str | None:
    net: Path | None = listeners.NET
    if user.network is not None and not listeners.is_here(Path(user.network)):
        net = listeners.net_of(Path(user.network))
    if net is None:
        return None
    if not listeners.reached(port, listeners.listeners(net)):
        return f"nothing listens on port {port} yet"
    if foreign(user, port):
        return f"another user's program listens on port {port}, which is not shown"
    return None


def _folder(user: User, relative: str) -> str | None:
    root = user.home / "sites"
    path = Path(os.path.realpath(root / relative))
    if not path.is_relative_to(os.path.realpath(root)):
        return f"the folder leads out of {root}"
    return None if path.is_dir() else f"there is no folder {root / relative}"
