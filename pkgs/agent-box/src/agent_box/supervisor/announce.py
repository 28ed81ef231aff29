"""What the supervisor tells: its sessions, its problems, and every change to who listens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from agent_box import naming
from agent_box.supervisor.model import foreign_view, invalid_view

if TYPE_CHECKING:
    from agent_box.supervisor.runner import Supervisor


class Announcer:
    """Shows the state of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._subscribers: set[asyncio.Queue[dict[str, Any]]] = set()
        self._published: dict[str, dict[str, Any]] = {}
        self._published_problems: list[str] = []

    def problems(self) -> list[str]:
        """Return what is wrong with the user's box, in sentences that name the remedy."""
        supervisor = self.supervisor
        unit = f"agent-box-{supervisor.user.name}.service"
        found = []
        if supervisor.registry_problem:
            found.append(supervisor.registry_problem)
        found += [f"session '{name}': {why}" for name, why in supervisor.document.invalid.items()]
        if supervisor.server == "not-answering":
            found.append(
                "the tmux server does not answer; the states below are the last known ones. "
                f"If it stays like this: systemctl restart {unit}"
            )
        elif supervisor.server == "down":
            found.append(
                f"the tmux server is not running; it is started by {unit} and the sessions follow"
            )
        if supervisor.watchers.problem:
            found.append(supervisor.watchers.problem)
        return found

    def views(self) -> list[dict[str, Any]]:
        """Return all sessions the way `ls` shows them, in the registry's order."""
        views = []
        for name in self.supervisor.document.sessions:
            if name in self.supervisor.sessions:
                views.append(self.supervisor.sessions[name].view())
            elif name in self.supervisor.document.invalid:
                views.append(invalid_view(name, self.supervisor.document.invalid[name]))
        unlisted = (self.supervisor.foreign[name] for name in sorted(self.supervisor.foreign))
        # Where a listed session has the name, its own reason tells of the other one.
        views += [
            foreign_view(pane)
            for pane in unlisted
            if pane.session_id is None
            and pane.session not in self.supervisor.sessions
            and not naming.is_reserved(pane.session)
        ]
        return views

    def subscribe(self, size: int) -> asyncio.Queue[dict[str, Any]]:
        """Return a queue that gets every change from now on; `unsubscribe` it."""
        if not self._subscribers:
            self._published = {view["name"]: view for view in self.views()}
            self._published_problems = self.problems()
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(size)
        self._subscribers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[dict[str, Any]]) -> None:
        """Stop feeding `queue`."""
        self._subscribers.discard(queue)

    def publish(self) -> None:
        """Send every subscriber what changed since the last time."""
        if not self._subscribers:
            return
        views = {view["name"]: view for view in self.views()}
        events: list[dict[str, Any]] = [
            {"event": "session", "session": view}
            for name, view in views.items()
            if self._published.get(name) != view
        ]
        events += [
            {"event": "removed", "name": name} for name in self._published if name not in views
        ]
        problems = self.problems()
        if problems != self._published_problems:
            events.append({"event": "problems", "problems": problems})
        self._published, self._published_problems = views, problems
        for queue in self._subscribers:
            for event in events:
                with contextlib.suppress(asyncio.QueueFull):
                    queue.put_nowait(event)
