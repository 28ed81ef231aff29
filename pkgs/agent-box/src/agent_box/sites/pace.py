"""How often the edge is reloaded: a share for each user, so that none uses up that of others."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from agent_box.sites.publish import write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PAUSE = 2.0
"""Seconds between two reloads at least, whoever they are for. What has come together meanwhile
goes with one."""

AT_ONCE, MINUTE_SHARE = 4, 40.0
"""Changes of one user in so many seconds."""

BURST, WINDOW, LONG_PAUSE = 15, 900.0, 60.0
"""After so many changes of one user in so many seconds, one each minute. While people have
terminals open, each reload costs the edge memory for good."""


class Pace:
    """Remembers, also over restarts, for whom the edge was reloaded when."""

    def __init__(self, path: Path) -> None:
        self._path = path
        now = time.time()
        try:
            known = {
                str(user): [float(each) for each in times]
                for user, times in json.loads(path.read_bytes()).items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            known = {}
        self._past = {
            user: [each for each in times if each <= now] for user, times in known.items()
        }

    def wait(self, user: str, now: float) -> float:
        """Return the seconds until a change of this user may reach the edge."""
        past = [each for each in self._past.get(user, ()) if now - WINDOW < each <= now]
        last = max((times[-1] for times in self._past.values() if times), default=0.0)
        until = last + PAUSE if last <= now else now
        if len(past) >= AT_ONCE:
            until = max(until, past[-AT_ONCE] + MINUTE_SHARE)
        if len(past) >= BURST:
            until = max(until, past[-1] + LONG_PAUSE)
        return max(0.0, until - now)

    def note(self, users: Iterable[str]) -> None:
        """Remember a reload for these users."""
        now = time.time()
        for user in users:
            past = [each for each in self._past.get(user, ()) if now - WINDOW < each <= now]
            self._past[user] = [*past, now]
        write(self._path, json.dumps(self._past).encode(), 0o600)
