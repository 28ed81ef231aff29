"""When processes started, to tell which sessions still run with old secrets."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

_START_FIELD = 19  # of /proc/PID/stat, counted behind the name


def started_before(views: list[dict[str, Any]], path: Path) -> list[str]:
    """Return the names of living sessions that started before `path` was last changed."""
    try:
        changed = path.stat().st_mtime
    except OSError:
        return []
    old = []
    for view in views:
        started = start_time(view.get("pid"))
        if started is not None and started < changed:
            old.append(str(view["name"]))
    return old


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
