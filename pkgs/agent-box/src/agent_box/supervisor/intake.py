"""What the registry wants: read, put in force, and changed on request.

The last good intent stays in force, of the whole file and of each entry.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from agent_box import intent
from agent_box.errors import AgentBoxError, NotFoundError
from agent_box.registry import Document, Store
from agent_box.supervisor.model import Session
from agent_box.supervisor.reconcile import Phase
from agent_box.supervisor.record import Records

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box.config import User
    from agent_box.supervisor.events import Watchers
    from agent_box.supervisor.lifecycle import Lifecycle

log = logging.getLogger(__name__)


class Intake:
    """The half of the supervisor that knows which sessions should exist."""

    lifecycle: Lifecycle
    watchers: Watchers

    def __init__(self, user: User) -> None:
        self.user = user
        self.store = Store(user)
        self.records = Records(user.state_dir)
        self.document = Document({"sessions": {}})
        self.sessions: dict[str, Session] = {}
        self.registry_problem: str | None = None
        self._changing = asyncio.Lock()

    def wake(self) -> None:
        """Ask for a pass of the loop."""
        raise NotImplementedError

    def read_registry(self) -> None:
        """Take over the registry; on trouble the last good intent stays in force."""
        document, problem = None, None
        try:
            document = self.store.read()
            if any(entry.id is None for entry in document.entries.values()):
                document = self.store.mutate(intent.give_ids)
        except (AgentBoxError, OSError) as error:
            problem = str(error)
        if problem != self.registry_problem:
            if problem is not None:
                log.error("%s", problem)
            self.registry_problem = problem
            self.wake()
        if document is None:
            if self.document.entries or self.sessions:
                return
            document = self.store.last_good()
        # Changes of our own come back as edits.
        same_order = list(document.sessions) == list(self.document.sessions)
        if document != self.document or not same_order:
            self.take(document)

    def take(self, document: Document) -> None:
        """Make `document` the intent in force."""
        before = self.wanted()
        self.document = document
        by_id = {session.id: session for session in self.sessions.values()}
        sessions: dict[str, Session] = {}
        for name, entry in document.entries.items():
            if entry.id is None:
                continue
            session = by_id.pop(entry.id, None)
            if session is None:
                session = Session(name, entry, self.records.load(entry.id), since=time.time())
            elif entry != session.entry:
                was_stopped = session.entry.stopped
                session.entry, session.name = entry, name
                if session.phase is Phase.FAILED or (was_stopped and not entry.stopped):
                    # Whatever was wrong may be right now.
                    session.failures = 0
                    session.enter(Phase.IDLE, time.time())
            sessions[name] = session
        for name in document.invalid:
            # One entry's mistake must not end a session: its last good intent stays in force.
            kept = self.sessions.get(name)
            if kept is not None and by_id.pop(kept.id, None) is not None:
                sessions[name] = kept
        running = {session.id for session in self.sessions.values() if session.pane is not None}
        self.sessions = sessions
        for session_id in before - self.wanted():
            self.watchers.forget(session_id)
            if session_id not in running:
                self.lifecycle.forget(session_id)
        self.wake()

    def forget_unlisted(self) -> None:
        """Remove the side state of sessions that were delisted while nobody looked."""
        if self.registry_problem is not None:
            return
        for session_id in self.records.known() - self.wanted():
            self.lifecycle.forget(session_id)

    def wanted(self) -> set[str]:
        """Return the ids of all listed sessions, those of invalid entries included."""
        ids = {session.id for session in self.sessions.values()}
        for name in self.document.invalid:
            item = self.document.sessions.get(name)
            session_id = item.get("boxSessionId") if isinstance(item, dict) else None
            if isinstance(session_id, str):
                ids.add(session_id)
        return ids

    def forget(self, session_id: str) -> None:
        """Remove every trace of a session that is not listed any more."""
        self.watchers.forget(session_id)
        if session_id not in self.wanted():
            self.lifecycle.forget(session_id)

    def session(self, name: str) -> Session:
        """Return a listed session, or raise the error that says why there is none."""
        found = self.sessions.get(name)
        if found is None:
            self.document.entry(name)
            raise NotFoundError(f"session '{name}' is not taken over yet; try again")
        return found

    async def change(self, change: Callable[[Document], None]) -> None:
        """Write a change of intent durably and put it in force."""
        # One after another: an older document taken over late would end what a newer one lists.
        async with self._changing:
            document = await asyncio.to_thread(self.store.mutate, change)
            try:
                # Somebody may have edited the file by hand right after us.
                document = self.store.read()
            except (AgentBoxError, OSError):
                self.take(document)
                self.read_registry()
            else:
                self.registry_problem = None
                self.take(document)
