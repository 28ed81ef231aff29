"""When processes started, to tell which sessions still run with old secrets."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box.config import User

_START_FIELD = 19  # of /proc/PID/stat, counted behind the name


def with_old_values(views: list[dict[str, Any]], user: User) -> list[str]:
    """Return the names of living sessions that started before their secrets were last changed."""
    changed = _changed(user.env_path)
    old = []
    for view in views:
        started = start_time(view.get("pid"))
        own = _changed(user.session_env_path(view["id"])) if view.get("id") else 0.0
        if started is not None and started < max(changed, own):
            old.append(str(view["name"]))
    return old


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def start_time(pid: int | None) -> float | None:
    """Return the Unix time at which process `pid` started, None when it cannot be seen."""
    if pid is None:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        # The kernel tells the time of boot in whole seconds only, too coarse for what is restarted
        # right after a change.
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return booted + int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
