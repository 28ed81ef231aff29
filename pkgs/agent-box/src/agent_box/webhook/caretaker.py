"""Housekeeping: old deliveries go, and so do sessions of watches that nobody needs any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from agent_box.errors import AgentBoxError, NotFoundError

if TYPE_CHECKING:
    from agent_box.config import Box
    from agent_box.webhook.sessions import Sessions
    from agent_box.webhook.spool import Spool

log = logging.getLogger(__name__)

EVERY = 600.0
"""Seconds between two rounds."""

ENDED = 3600.0
"""Seconds that a session which ended stays, for whoever wants to read it."""


class Caretaker:
    """Tidies up after the receiver of one user."""

    def __init__(self, box: Box, sessions: Sessions, spool: Spool) -> None:
        self._sessions = sessions
        self._spool = spool
        hours = box.webhook.session_hours if box.webhook else 0
        self._lifetime = hours * 3600

    async def run(self) -> None:
        """Make rounds for as long as the receiver runs."""
        await self._sessions.known.wait()
        while True:
            try:
                removed = self._spool.expire(time.time())
            except sqlite3.Error as error:  # a full disk, say
                log.error("old deliveries cannot be removed now: %s", error)
                removed = 0
            await self._shrink()
            if removed:
                log.info("removed %d old deliveries", removed)
            await self.sweep(time.time())
            await asyncio.sleep(EVERY)

    async def _shrink(self) -> None:
        """Give room back to the disk, a piece at a time: senders are served in between."""
        with contextlib.suppress(sqlite3.Error):
            while self._spool.shrink():  # noqa: ASYNC110 - it is no condition that somebody else fulfils
                await asyncio.sleep(0.01)

    async def sweep(self, now: float) -> None:
        """Remove sessions that watches started and that are over or were abandoned."""
        views = {view["id"]: view for view in self._sessions.views.values() if view["id"]}
        for spawn in self._spool.spawns():
            view = views.get(spawn["session"])
            if view is None:
                if spawn["done"] and now - spawn["at"] > EVERY:
                    self._spool.abandon(spawn["session"])
                continue
            why = self._over(view, spawn["at"], now)
            if why is None:
                continue
            log.info("removing session %s: %s", view["name"], why)
            try:
                await self._sessions.link.call("rm", name=view["name"])
            except NotFoundError:
                pass
            except AgentBoxError as error:
                log.warning("session %s: %s", view["name"], error)

    def _over(self, view: dict[str, Any], started: float, now: float) -> str | None:
        if view["state"] in ("stopped", "failed") and now - view["since"] > ENDED:
            return "it ended"
        if self._lifetime and now - started > self._lifetime and not view["attached"]:
            return f"it was started {(now - started) / 3600:.0f} hours ago"
        return None
