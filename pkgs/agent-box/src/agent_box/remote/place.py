"""The files of remote control: each pane has one, which is its reference to the app-server.

They lie in `/run/agent-box-codex/USER`. systemd starts the unit when the first one appears; the
unit ends itself when nobody is left behind the last one. systemd looks with the rights of root, so
the user can make anything in that directory, and nothing (a link) in its place.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_box.config import User

RESTART = "restart"
"""A file of this name asks the unit for a new app-server."""


def directory(user: User) -> Path:
    """Return where the references are."""
    return user.runtime_dir.with_name("agent-box-codex") / user.name


def socket_path(env: Mapping[str, str], home: Path) -> Path:
    """Return the app-server's control socket."""
    return codex_home(env, home) / "app-server-control/app-server-control.sock"


def codex_home(env: Mapping[str, str], home: Path) -> Path:
    """Return codex's own directory."""
    return Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else home / ".codex"


def references(user: User) -> list[dict[str, Any]]:
    """Return what the panes that live have to say, the newest last."""
    found = []
    try:
        paths = sorted(directory(user).glob("*.json"), key=lambda path: path.stat().st_mtime)
    except OSError:
        return []
    for path in paths:
        try:
            content = json.loads(path.read_bytes())
            pid = int(content["pid"])
            os.kill(pid, 0)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        found.append({**content, "path": str(path)})
    return found
