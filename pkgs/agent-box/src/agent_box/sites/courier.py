"""The supervisor's part: handing over the list of sites whenever somebody edits it by hand."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from typing import TYPE_CHECKING

from agent_box.errors import AgentBoxError
from agent_box.sites import handover, results

if TYPE_CHECKING:
    from agent_box.config import User

SETTLE = 0.3
"""Seconds to wait after a change: whoever uses the command hands over the list himself."""

RETRY = 10.0
"""Seconds until a list is handed over again that the box has said nothing about."""


class Courier:
    """Hands the list over when told that it may have changed."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Have a look at the list."""
        self._changed.set()

    async def run(self) -> None:
        """Look at the list at first, and whenever told to, until cancelled."""
        while True:
            self._changed.clear()
            await asyncio.sleep(SETTLE)
            known = await asyncio.to_thread(_hand_over, self._user)
            # What a link leads to changes without a word.
            sure = known and not self._user.sites_path.is_symlink()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if sure else RETRY):
                    await self._changed.wait()


def _hand_over(user: User) -> bool:
    """Hand the list over unless the box knows it; tell whether it does."""
    message = handover.message_of(user)
    kind, _, data = message.partition(b"\n")
    try:
        found = results.read(user)
    except AgentBoxError:
        found = None
    if kind + b"\n" == handover.PROBLEM:
        digest = ""
    elif found is None and not data:
        return True  # Nobody ever declared a site.
    else:
        digest = hashlib.sha256(data).hexdigest()
    if found is not None and digest == found.get("digest"):
        return True
    waits = {} if found is None else found.get("waits", {})
    if digest == waits.get("digest") and waits["until"] > time.time():
        return False
    handover.send(user, message)
    return False
