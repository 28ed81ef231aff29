"""Notices when an agent needs a human, by what its screen shows.

The screen is read a few times after a start, when agents put up their dialogs, and whenever
somebody asks and there was output since. A session that nobody asks about costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from agent_box import agents
from agent_box.config import SHELL
from agent_box.supervisor.reconcile import Phase
from agent_box.tmux import TmuxError

if TYPE_CHECKING:
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

PROBES = (1.0, 3.0, 8.0, 20.0, 45.0, 90.0)
"""Seconds after a start at which the screen is read without being asked."""


class Attention:
    """Reads the screens of the sessions of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    def schedule(self, session: Session) -> None:
        """Read the screen a few times after a start."""
        if session.entry.agent == SHELL:
            return
        loop = asyncio.get_running_loop()
        run = session.record.runs
        for seconds in PROBES:
            loop.call_later(seconds, self._due, session, run)

    def _due(self, session: Session, run: int) -> None:
        current = self.supervisor.sessions.get(session.name) is session
        if current and session.record.runs == run and session.alive:
            self.supervisor.spawn(self.probe([session]))

    async def refresh(self) -> None:
        """Read every screen that has changed since it was last read."""
        changed = [
            session
            for session in self.supervisor.sessions.values()
            if session.entry.agent != SHELL
            and session.phase in (Phase.RUNNING, Phase.STARTING)
            and session.pane is not None
            and not session.pane.ended
            # tmux counts activity in whole seconds: the second of the last reading may have more.
            and session.pane.activity >= session.probed_activity
        ]
        await self.probe(changed)

    async def probe(self, sessions: list[Session]) -> None:
        """Read the screens of `sessions` and take over what they say."""
        with contextlib.suppress(TmuxError, TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*(self._probe(session) for session in sessions))
        self.supervisor.publish()

    async def _probe(self, session: Session) -> None:
        pane = session.pane
        if pane is None:
            return
        screen = await self.supervisor.tmux.capture(pane.pane)
        session.probed_activity = pane.activity
        try:
            agent = agents.get(session.entry.agent)
            reason = agent.attention(self.supervisor.lifecycle.context(session), screen)
        except Exception:  # an adapter's bug must not take the sessions down
            log.exception("reading the screen of session %s", session.name)
            return
        if session.phase is Phase.RUNNING:
            session.attention = reason
