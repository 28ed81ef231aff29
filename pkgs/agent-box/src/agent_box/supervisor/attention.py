"""Notices when an agent needs a human, or has nothing to do: by its word, and by its screen.

Agents tell when a turn begins and ends and when they ask something, each in its own way
(`agents.hook`). That is quick, yet it is not all: not every dialog is told, nor that one was
answered. So the times of the last output are read, all with one command, every few seconds while
anything moves or somebody looks, and ever more seldom while nothing does. A screen is read when it
has become quiet, a few times after a start, when agents put up their dialogs, when the bell rings,
and when somebody asks.

What has no such words an agent may tell through its terminal; its adapter says what that means
(`agents.terminal`). Titles come with each look, so within two seconds while anything moves; a bell
is told by a hook of tmux, at most once a second for each window; notifications are heard by `ears`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from agent_box import agents
from agent_box.agents import hook
from agent_box.agents.terminal import clean
from agent_box.config import SHELL
from agent_box.supervisor.ears import meaning
from agent_box.supervisor.model import Signal
from agent_box.supervisor.reconcile import Phase
from agent_box.tmux import TmuxError

if TYPE_CHECKING:
    from agent_box.panes import Pane
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

PROBES = (1.0, 3.0, 8.0, 20.0, 45.0, 90.0)
"""Seconds after a start at which the screen is read without being asked."""

SOON, LATE = 2.0, 60.0
"""Seconds between two looks while something moves, and when nothing has moved for long."""

AGAIN = (0.0, 0.3, 1.0)
"""Seconds after the word of an agent at which its screen is read: it may come before the screen."""

SETTLED = 1.0
"""Seconds from the word of an agent that it is done until output means that it works again."""

ANSWERED = 3.0
"""Seconds from the word of an agent that it asks something until output means that it goes on."""

PACE = 1.0
"""Seconds between two notifications of one session that are followed up."""

QUIET = 3.0
"""Seconds without output after which an agent is idle, unless its screen asks for something. Those
that work show that they do, several times a second."""


class Attention:
    """Reads the screens of the sessions of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._interval = SOON
        self._timer: asyncio.TimerHandle | None = None
        self._looked: dict[str, int] = {}
        """Time of the last output at the last look, by session id."""
        self._notices: dict[str, tuple[str, str] | None] = {}
        """Sessions that have just notified of something, and what they have since."""

    def soon(self) -> None:
        """Look soon: something was done that may move an agent."""
        self._interval = SOON
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SOON, self._due_look)

    def schedule(self, session: Session) -> None:
        """Read the screen a few times after a start."""
        if session.entry.agent == SHELL:
            return
        loop = asyncio.get_running_loop()
        run = session.record.runs
        for seconds in PROBES:
            loop.call_later(seconds, self._due, session, run)
        self.soon()

    def signal(self, pane: object, word: object) -> None:
        """Hear the word of an agent about itself, from the pane `pane` of tmux."""
        session = next(
            (s for s in self._watched() if s.pane is not None and s.pane.pane == pane), None
        )
        if session is None or not isinstance(word, str) or word not in hook.WORDS:
            return
        self._take(session, Signal(word, time.time(), own=True))

    def notified(self, session: Session, text: str) -> None:
        """Hear a notification that the program of a session sent through its terminal."""
        word = meaning(session).notice(text)
        if word is not None:
            first = session.id not in self._notices
            self._notices[session.id] = (word, text)
            if first:
                self._follow_up(session)

    def _follow_up(self, session: Session) -> None:
        notice = self._notices.pop(session.id)
        if notice is not None:
            self._notices[session.id] = None
            asyncio.get_running_loop().call_later(PACE, self._follow_up, session)
            self._terminal_tells(session, Signal(notice[0], time.time(), text=notice[1]))

    def seen(self, session: Session, pane: Pane) -> None:
        """Take in the title and the last bell of a session that tmux has just told."""
        now, last, terminal = time.time(), session.signal, meaning(session)
        if last is not None and last.own and pane.asked < last.at + SETTLED:
            return  # it may not have caught up with the word of a hook: the next look tells
        rang = session.bell not in (None, pane.bell)
        session.bell = pane.bell
        if rang and terminal.bell is not None:
            self._terminal_tells(session, Signal(terminal.bell, now))
        # A spinner in a title is no news.
        word = terminal.title(clean(pane.title))
        if word == session.title:
            return
        session.title = word
        if word is None and last is not None and last.lasting:
            word = hook.WORKING
        if word is not None:
            self._terminal_tells(session, Signal(word, now, lasting=True))

    def _terminal_tells(self, session: Session, signal: Signal) -> None:
        if any(watched is session for watched in self._watched()):
            self._take(session, signal)

    def _take(self, session: Session, signal: Signal) -> None:
        session.signal, word = signal, signal.word
        if word == hook.REFUSED:
            session.last_call = "refused"
        elif word == hook.WORKING:
            session.idle_since = None
        loop = asyncio.get_running_loop()
        for seconds in AGAIN:
            loop.call_later(seconds, self._due, session, session.record.runs)
        self.supervisor.publish()
        self.soon()

    def _due(self, session: Session, run: int) -> None:
        current = self.supervisor.sessions.get(session.name) is session
        if current and session.record.runs == run and session.alive:
            self.supervisor.spawn(self.probe([session]))

    def _due_look(self) -> None:
        self._timer = None
        self.supervisor.spawn(self._look())

    async def _look(self) -> None:
        """See who moved, read who has become quiet, and look again: the later, the less moves."""
        if self._timer is not None:
            return  # somebody asked for a look meanwhile
        sessions = self._watched()
        if not sessions:
            return  # the next start begins anew
        if await self.supervisor.look(SOON):
            sessions = self._watched()
            times = {session.id: _last_output(session) for session in sessions}
            seen = any(session.pane and session.pane.attached for session in sessions)
            moved = times != self._looked
            self._looked = times
            await self.probe([session for session in sessions if self._reads(session)])
            self._interval = SOON if moved or seen else min(2 * self._interval, LATE)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._due_look)

    def _watched(self) -> list[Session]:
        return [
            session
            for session in self.supervisor.sessions.values()
            if session.entry.agent != SHELL
            and session.phase in (Phase.RUNNING, Phase.STARTING)
            and session.pane is not None
            and not session.pane.ended
        ]

    def _unread(self, session: Session) -> bool:
        # tmux tells the time of the last output in whole seconds.
        return _last_output(session) + 1 >= session.probed_at

    def _reads(self, session: Session) -> bool:
        """Tell whether to read a screen: what is known may be over, or a silence mean something.

        Whoever asked before the silence was long enough has had it read too early.
        """
        if session.attention is not None or session.idle_since is not None:
            return self._unread(session)
        pane = session.pane
        return pane is not None and pane.asked - pane.activity >= QUIET

    async def refresh(self) -> None:
        """Read every screen that has changed since it was last read."""
        await self.probe([session for session in self._watched() if self._unread(session)])

    async def probe(self, sessions: list[Session]) -> None:
        """Read the screens of `sessions` and take over what they say."""
        with contextlib.suppress(TmuxError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._probe(
                    {s.pane.pane: (s, s.pane) for s in sessions if s.pane is not None}
                )
        self.supervisor.publish()

    async def _probe(self, probed: dict[str, tuple[Session, Pane]]) -> None:
        for session, _ in probed.values():
            session.probed_at = time.time()
        screens = await self.supervisor.tmux.captures(list(probed))
        for (session, pane), screen in zip(probed.values(), screens, strict=True):
            if screen is not None:
                self._read(session, pane, screen)

    def _read(self, session: Session, pane: Pane, screen: str) -> None:
        try:
            agent = agents.get(session.entry.agent)
            ctx = self.supervisor.lifecycle.context(session)
            refusal = agent.refusal(ctx, screen)
            reason = agent.attention(ctx, screen) or refusal
            session.credential = agent.signed_in(ctx)
        except Exception:  # an adapter's bug must not take the sessions down
            log.exception("reading the screen of session %s", session.name)
            return
        if session.phase is not Phase.RUNNING:
            return
        signal = session.signal
        if signal is not None and signal.word == hook.ASKS:
            # Not each of them tells that its question was answered, or put away.
            if reason is not None:
                signal.shown = True
            elif signal.shown:
                signal = session.signal = None
        session.attention = reason or _told(session)
        # Not each of them tells when the next turn begins.
        ended = signal is not None and signal.word in (hook.IDLE, hook.FAILED)
        done = ended and _silent_since(session, SETTLED)
        # Of what came after the last look nothing is known.
        quiet = pane.asked - pane.activity >= QUIET or done
        if refusal is not None:
            session.last_call = "refused"
        elif signal is not None and done and signal.own:
            session.last_call = "worked" if signal.word == hook.IDLE else "failed"
        since = max(float(pane.activity), signal.at if signal is not None and done else 0.0)
        session.idle_since = since if session.attention is None and quiet else None


def _last_output(session: Session) -> int:
    return session.pane.activity if session.pane is not None else 0


def _told(session: Session) -> str | None:
    """Return what a human is needed for by the word of the agent, where its screen is unknown."""
    signal, agent = session.signal, session.entry.agent
    if signal is not None and signal.word == hook.REFUSED:
        return f"sign-in needed: {agent}'s login was refused; attach and sign in again"
    if signal is None or signal.word != hook.ASKS:
        return None
    if signal.lasting or _silent_since(session, ANSWERED):
        what = f"asks: {signal.text};" if signal.text else "asks a question:"
        return f"{agent} {what} attach and answer"
    return None


def _silent_since(session: Session, seconds: float) -> bool:
    """Tell whether nothing was put out since `seconds` after the word of the agent."""
    return session.signal is not None and _last_output(session) <= session.signal.at + seconds
