"""Tells sessions without a plugin: Codex, OpenCode, Pi, shells, and Claude where it has none.

Texts wait in the spool until the supervisor says that they arrived. It never types into a dialog,
into a line that somebody is writing, or into a shell's prompt.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from typing import TYPE_CHECKING

from agent_box.errors import AgentBoxError, ConflictError, NotFoundError, UsageError

if TYPE_CHECKING:
    from agent_box.webhook.sessions import Sessions
    from agent_box.webhook.spool import Item, Spool

log = logging.getLogger(__name__)

MAX_AGE = 3600.0
"""Seconds after which nobody is told any more: the news are old."""

MAX_WAITING = 500
"""Texts kept for one session; beyond that the oldest go."""

MAX_TEXT = 16 * 1024
"""Characters handed over at once."""

RETRY = 3.0


class Bridge:
    """Hands texts of the spool to the sessions that they wait for."""

    def __init__(self, sessions: Sessions, spool: Spool) -> None:
        self._sessions = sessions
        self._spool = spool
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done: set[int] = set()
        """Texts that arrived, or never will, while that could not be written down."""

    def wake(self) -> None:
        """Look for texts that wait."""
        # Sessions come and go.
        self._tasks = {key: task for key, task in self._tasks.items() if not task.done()}
        for key in self._spool.waiting():
            if key not in self._tasks:
                self._tasks[key] = asyncio.ensure_future(self._serve(key))

    def queue(self, key: str, delivery: int, text: str) -> None:
        """Let a text wait; call it inside a transaction of the spool."""
        self._spool.send(key, delivery, text)
        dropped = self._spool.trim_outgoing(key, MAX_WAITING)
        if dropped:
            log.warning(
                "session %s does not take its events: %d of the oldest were dropped",
                self._sessions.name_of(key),
                dropped,
            )

    async def close(self) -> None:
        """Stop; what waits stays in the spool."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, key: str) -> None:
        while items := self._current(key):
            text, taken = _together(items)
            view = self._sessions.by_key().get(key)
            if view is None:
                if self._sessions.known.is_set():
                    self._drop(key, items, "it is not there any more")
                    return
                await asyncio.sleep(RETRY)
                continue
            try:
                await self._sessions.link.call("deliver", name=view["name"], text=text)
            except (NotFoundError, UsageError) as error:
                self._drop(key, items, str(error))
                return
            except ConflictError as error:
                log.debug("session %s: %s", view["name"], error)
                await asyncio.sleep(RETRY)
                continue
            except AgentBoxError as error:
                log.info("session %s: %s", view["name"], error)
                await asyncio.sleep(RETRY)
                continue
            self._settle(taken)

    def _settle(self, items: list[Item]) -> None:
        """Note that texts are dealt with: nobody is told twice, not even while the disk is full."""
        self._done |= {item.id for item in items}
        try:
            self._spool.sent(list(self._done))
        except sqlite3.Error as error:
            log.error("it cannot be written down who was told: %s", error)
            return
        self._done.clear()

    def _current(self, key: str) -> list[Item]:
        """Return what waits and is not too old."""
        waiting = self._spool.outgoing(key, 100 + len(self._done))
        items = [item for item in waiting if item.id not in self._done]
        over = [item for item in items if time.time() - item.at > MAX_AGE]
        if over:
            self._drop(key, over, f"it took none for {MAX_AGE / 60:.0f} minutes")
            return self._current(key)
        return items

    def _drop(self, key: str, items: list[Item], why: str) -> None:
        log.warning(
            "session %s is not told of %d events: %s", self._sessions.name_of(key), len(items), why
        )
        self._settle(items)


def _together(items: list[Item]) -> tuple[str, list[Item]]:
    """Return one text of as many items as fit, and these."""
    taken = [items[0]]
    size = len(items[0].text)
    for item in items[1:]:
        size += len(item.text) + 1
        if size > MAX_TEXT:
            break
        taken.append(item)
    return "\n".join(item.text for item in taken), taken
