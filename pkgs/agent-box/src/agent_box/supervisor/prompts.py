"""Words that could not be part of a launch: held kickoff prompts, and texts that must be typed.

A kickoff prompt is held while nobody is signed in, since an agent would burn it on its login
screen. As soon as its adapter lets it pass it is delivered: by a fresh launch where there is no
conversation to lose, as a paste where there is one. Only held prompts cost a look now and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from agent_box import agents
from agent_box.supervisor.reconcile import Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent_box.agents.base import Agent
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

CHECK = 5.0
"""Seconds between two looks whether a held prompt may pass."""

SETTLE = 0.5
"""Seconds that a screen must stay the same before something is typed into it."""

WITNESS = 60
"""Looks, at that distance, for a pasted prompt in what the agent has stored."""

PATIENCE = 240
"""Looks at a screen that does not settle before typing is given up."""


class Prompts:
    """Delivers what a launch could not, for the sessions of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._timer: asyncio.TimerHandle | None = None
        self._typing: set[str] = set()
        """Ids of the sessions whose held prompt waits for an input to be typed into."""

    def started(self, session: Session) -> None:
        """Take care of a session that was started or adopted."""
        if session.typed is not None:
            self.supervisor.spawn(self._type(session, session.typed))
            session.typed = None
        if self._held(session):
            self._schedule()

    def _held(self, session: Session) -> bool:
        return session.prompt_pending and not session.record.prompted and session.alive

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK, self._check)

    def _check(self) -> None:
        self._timer = None
        held = [session for session in self.supervisor.sessions.values() if self._held(session)]
        for session in held:
            if not session.lock.locked() and session.id not in self._typing:
                self.supervisor.spawn(self._offer(session))
        if held:
            self._schedule()

    async def _offer(self, session: Session) -> None:
        """Deliver a held prompt if nothing holds it any more."""
        agent = agents.get(session.entry.agent)
        supervisor = self.supervisor
        ctx = supervisor.lifecycle.context(session)
        if await asyncio.to_thread(agent.holds_prompt, ctx) is not None:
            return
        async with session.lock:
            pane, prompt = session.pane, session.entry.initial_prompt
            if not self._held(session) or pane is None or prompt is None:
                return
            if await asyncio.to_thread(agent.heard, ctx, prompt):
                # It was pasted, and then the supervisor or the machine went.
                await self._delivered(session)
                return
            if agent.conversation(ctx) is None:
                log.info("session %s: starts again with its kickoff prompt", session.name)
                supervisor.watchers.forget(session.id)
                await supervisor.lifecycle.restart_process(session, pane)
                session.enter(Phase.IDLE, time.time())
                panes = (await supervisor.tmux.panes()).values()
                ended = next((item for item in panes if item.session_id == session.id), None)
                await supervisor.start(session, ended)
                return
            self._typing.add(session.id)
        try:
            # What cannot be told afterwards is marked before: rather lost in that moment than
            # given twice.
            if await asyncio.to_thread(agent.heard, ctx, prompt) is None:
                await self._type(session, prompt, before=self._delivered)
            elif await self._type(session, prompt):
                await self._witness(session, agent, prompt)
        finally:
            self._typing.discard(session.id)

    async def _witness(self, session: Session, agent: Agent, prompt: str) -> None:
        """Mark a prompt as delivered once the agent has stored it."""
        for _ in range(WITNESS):
            ctx = self.supervisor.lifecycle.context(session)
            if await asyncio.to_thread(agent.heard, ctx, prompt):
                break
            await asyncio.sleep(SETTLE)
        # Without a sign that it arrived it is not typed again and again.
        await self._delivered(session)

    async def _delivered(self, session: Session) -> None:
        session.record.prompted = session.record.delivered = True
        lifecycle, agent = self.supervisor.lifecycle, agents.get(session.entry.agent)
        ctx = lifecycle.context(session)
        await asyncio.to_thread(lifecycle.save_delivery, session.record, agent, ctx)
        self.supervisor.publish()

    async def _type(
        self,
        session: Session,
        text: str,
        *,
        before: Callable[[Session], Awaitable[None]] | None = None,
    ) -> bool:
        """Paste `text` and press Enter once the agent shows an input that waits.

        `before` is called when it does. Returns whether that happened.
        """
        supervisor = self.supervisor
        pane = session.pane
        if pane is None:
            return False
        agent = agents.get(session.entry.agent)
        earlier = ""
        for _ in range(PATIENCE):
            await asyncio.sleep(SETTLE)
            now = session.pane
            if now is None or now.launch != pane.launch or not session.alive:
                return False
            screen = await supervisor.tmux.capture(pane.pane)
            waits = agent.asks(supervisor.lifecycle.context(session), screen) is None
            if screen.strip() and screen == earlier and waits:
                if before is not None:
                    await before(session)
                await supervisor.tmux.paste(pane.pane, text, enter=True)
                return True
            earlier = screen
        log.warning("session %s never showed an input to type into", session.name)
        return False
