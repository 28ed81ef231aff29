"""Which sessions there are: what the supervisor tells, kept at hand."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from agent_box.errors import AgentBoxError
from agent_box.link import Link
from agent_box.subscriptions.place import key_of
from agent_box.subscriptions.spawning import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box.config import User

log = logging.getLogger(__name__)

ALIVE = ("starting", "running", "waiting", "crashed")
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


class Sessions:
    """The sessions of one user, as of the last news. `changed` is called after each."""

    def __init__(self, user: User, changed: Callable[[], None]) -> None:
        self.link = Link(user)
        self._changed = changed
        self.views: dict[str, dict[str, Any]] = {}
        self.known = asyncio.Event()
        """Set once the supervisor was heard."""

    async def follow(self) -> None:
        """Listen for as long as the receiver runs."""
        pause = FIRST_PAUSE
        while True:
            try:
                async for news in self.link.subscribe():
                    pause = FIRST_PAUSE
                    self._take(news)
                    self._changed()
            except AgentBoxError as error:
                if pause == FIRST_PAUSE:
                    log.info("%s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _take(self, news: dict[str, Any]) -> None:
        if "sessions" in news:
            self.views = {view["name"]: view for view in news["sessions"]}
            self.known.set()
        elif news.get("event") == "session":
            view = news["session"]
            # After a rename the id is still the same session.
            for name, other in list(self.views.items()):
                if view["id"] and other["id"] == view["id"] and name != view["name"]:
                    del self.views[name]
            self.views[view["name"]] = view
        elif news.get("event") == "removed":
            self.views.pop(news["name"], None)

    def by_key(self) -> dict[str, dict[str, Any]]:
        """Return the sessions that have an id, by the key of their files."""
        return {key_of(view["id"]): view for view in self.views.values() if view["id"]}

    def name_of(self, key: str) -> str:
        """Return how people call the session of a key."""
        view = self.by_key().get(key)
        return view["name"] if view else key or "(unscoped)"

    def alive(self) -> dict[str, dict[str, Any]]:
        """Return the living sessions, by key. Those without a plugin are told by the bridge."""
        return {key: view for key, view in self.by_key().items() if view["state"] in ALIVE}

    def hooks(self) -> list[dict[str, Any]]:
        """Return the sessions of watches that hold a place: those that live or will."""
        return [
            view
            for view in self.views.values()
            if view["name"].startswith(PREFIX) and view["state"] not in ("stopped", "failed")
        ]
