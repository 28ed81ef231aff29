"""The supervisor's loop: wake on events, look, decide, act.

Nothing but the screens of agents is polled (see `attention`). The wake-ups are a pidfd per
session, the tmux hooks' `wait-for` channel, inotify on the registry's directory, the launchers'
datagrams, and the timers of sessions that wait for their retry. Each pass reads tmux once and
decides per session (`reconcile.decide`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_box import agents, intent
from agent_box.errors import AgentBoxError
from agent_box.supervisor import specs
from agent_box.supervisor.announce import Announcer
from agent_box.supervisor.attention import Attention
from agent_box.supervisor.cgroups import Groups
from agent_box.supervisor.ears import Ears
from agent_box.supervisor.events import Watchers
from agent_box.supervisor.intake import Intake
from agent_box.supervisor.lifecycle import Lifecycle
from agent_box.supervisor.prompts import Prompts
from agent_box.supervisor.reconcile import Action, Phase, by_session, decide
from agent_box.supervisor.signin import Signin
from agent_box.tmux import Tmux, TmuxDownError, TmuxError, TmuxSilentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box.config import Box, User
    from agent_box.panes import Pane
    from agent_box.supervisor.model import Session

log = logging.getLogger(__name__)

STARTED = 10.0
"""Seconds after which a launch that lives counts as the agent, heard of or not."""

LIVING = (Phase.STARTING, Phase.RUNNING)

MAX_PACE = 0.25
"""Seconds at most from one look to the next, for servers that are very slow to answer."""

AGAIN = 0.5
"""Seconds until tmux is looked at again after it has told nonsense, or something went wrong."""

SILENT_RETRY = 2.0
"""Seconds between two looks at a tmux server that does not answer."""


class Supervisor(Intake):
    """Keeps the sessions of one user equal to their registry."""

    def __init__(self, box: Box, user: User) -> None:
        super().__init__(user)
        self.box = box
        self.tmux = Tmux(box.programs.tmux, user.runtime_dir)
        self.lifecycle = Lifecycle(box, user, self.tmux, self.records)
        self.attention = Attention(self)
        self.ears = Ears(self)
        self.prompts = Prompts(self)
        self.watchers = Watchers(self)
        self.announcer = Announcer(self)
        self.foreign: dict[str, Pane] = {}
        self.server = "down"
        """`running`, `not-answering` or `down`."""
        self.server_pid: int | None = None
        self.signin = Signin(self)
        self.heartbeat = time.monotonic()
        """When the loop last proved that it is alive."""
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[bool] | None = None
        self._ending: set[str] = set()
        """Ids of the sessions that somebody is ending."""
        self.pace = 0.0
        """Seconds from one look to the next: as many as a look takes, so that looks never use more
        than half of a processor, however many wake-ups come one after the other."""

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self.records.prepare()
        specs.clear_leftovers(self.lifecycle.launch_dir)
        try:
            self.store.prepare(self.box)
            self.user.session_env_dir.mkdir(mode=0o700, exist_ok=True)
        except (AgentBoxError, OSError) as error:
            log.error("the registry cannot be prepared: %s", error)
        self.read_registry()
        self.forget_unlisted()
        self.watchers.start()
        try:
            while True:
                self._wake.clear()
                began = time.monotonic()
                await self.look()
                self.pace = min(time.monotonic() - began, MAX_PACE)
                self._act()
                self.signin.adopt()
                self.publish()
                self.heartbeat = time.monotonic()
                timeout = SILENT_RETRY if self.server != "running" else None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await asyncio.sleep(self.pace)
                        await self._wake.wait()
        finally:
            self.watchers.stop()
            self.ears.stop()

    def wake(self) -> None:
        """Ask for a pass of the loop."""
        self._wake.set()

    # Looking ---------------------------------------------------------------

    async def look(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Read what exists from tmux; return whether the server answered.

        Callers that come while a look is under way share its result.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._looking)
        except TimeoutError:
            self._set_server("not-answering")
            return False

    async def _look(self) -> bool:
        # What is done to a session while tmux is asked may not be in the answer yet.
        turns = {
            session.id: session.lock.turns
            for session in self.sessions.values()
            if not session.lock.locked()
        }
        panes: dict[str, Pane] = {}
        try:
            pid, panes = await self.tmux.state()
            self._server_found(pid)
        except TmuxDownError:
            self._set_server("down")
        except TmuxSilentError:
            self._set_server("not-answering")
            return False
        except TmuxError as error:
            log.warning("tmux: %s", error)
            asyncio.get_running_loop().call_later(AGAIN, self.wake)
            return False
        self._take_panes(panes, turns)
        return self.server == "running"

    def _take_panes(self, panes: dict[str, Pane], turns: dict[str, int]) -> None:
        """Tell apart whose panes these are: by the id they were started for, not by name.

        A name may change under us, by a rename of ours that is under way or by hand.
        """
        names = {session.id: session.name for session in self.sessions.values()}
        mine = by_session(panes, names)
        for session in self.sessions.values():
            if session.lock.locked():
                continue
            if turns.get(session.id) != session.lock.turns:
                self.wake()
                continue
            found = self.watchers.confirm(session, mine.get(session.id))
            session.pane = found
            if found is not None and not found.ended and session.phase in LIVING:
                self.watchers.follow(session, found)
                self.attention.seen(session, found)
            namesake = panes.get(session.name)
            taken = namesake is not None and namesake.session_id != session.id
            session.namesake = namesake if taken else None
            if session.blocked and not taken:
                session.enter(Phase.IDLE, time.time())
        wanted = self.wanted()
        self.foreign = {
            name: pane
            for name, pane in panes.items()
            if pane.session_id is None or pane.session_id not in wanted
        }

    def _server_found(self, pid: int) -> None:
        if pid != self.server_pid:
            self.server_pid = pid
            self.lifecycle.groups = Groups(pid, self.user.limits)
            log.info("tmux server %d", pid)
            if self.lifecycle.groups.problem:
                log.warning("%s", self.lifecycle.groups.problem)
        self._set_server("running")
        self.watchers.listen()

    def _set_server(self, state: str) -> None:
        if state != self.server:
            log.log(logging.INFO if state == "running" else logging.WARNING, "tmux: %s", state)
            self.server = state
        if state == "down":
            self.server_pid = None

    # Acting ----------------------------------------------------------------

    def _act(self) -> None:
        if self.server != "running":
            return
        for session in list(self.sessions.values()):
            if session.lock.locked():
                continue
            if self._decide(session) is not Action.NOTHING or _misnamed(session):
                self.spawn(self._carry_out(session))
        for pane in self.foreign.values():
            if decide(None, pane, Phase.IDLE, due=True) is not Action.END:
                continue
            if pane.session_id is not None and pane.session_id not in self._ending:
                self.spawn(self._end_unlisted(pane, pane.session_id))

    def _decide(self, session: Session) -> Action:
        now = asyncio.get_running_loop().time()
        due = session.next_retry is None or session.next_retry <= now
        return decide(
            session.entry, session.pane, session.phase, due=due, namesake=session.namesake
        )

    def spawn(self, coroutine: Any) -> None:
        """Run `coroutine` beside the loop and look again when it is done."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, TmuxError):
                log.error("internal error: %r", error, exc_info=error)
            asyncio.get_running_loop().call_later(AGAIN, self.wake)
            return
        self.wake()

    @contextlib.contextmanager
    def ending(self, session_id: str) -> Iterator[None]:
        """Leave it to the caller meanwhile to end a session that is not listed any more."""
        self._ending.add(session_id)
        try:
            yield
        finally:
            self._ending.discard(session_id)
            self.wake()

    async def _end_unlisted(self, pane: Pane, session_id: str) -> None:
        log.info("session %s is not listed any more: ending it", pane.session)
        with self.ending(session_id):
            await self.lifecycle.end(None, pane, session_id)
            self.forget(session_id)

    async def _carry_out(self, session: Session) -> None:
        async with session.lock:
            if self.sessions.get(session.name) is not session:
                return
            # Decided anew: whoever held the lock before may have done something.
            action, pane = self._decide(session), session.pane
            if action is Action.ADOPT and pane is not None:
                await self.adopt(session, pane)
            elif action is Action.FINISH:
                await self._finish(session, pane)
            elif action is Action.END and pane is not None:
                await self.lifecycle.end(session, pane, session.id)
                session.pane = None
            elif action in (Action.START, Action.RESPAWN):
                await self.start(session, pane if action is Action.RESPAWN else None)
            elif action is Action.BLOCKED:
                reason = (
                    f"a tmux session named '{session.name}' is there that agent-box did not "
                    "start; end or rename one of the two"
                )
                log.warning("session %s: %s", session.name, reason)
                session.enter(Phase.FAILED, time.time(), reason)
                session.blocked = True
            elif _misnamed(session) and pane is not None:
                log.info("session %s was called %s in tmux", session.name, pane.session)
                await self.tmux.rename(pane, session.name)
                session.pane = replace(pane, session=session.name)

    async def start(self, session: Session, pane: Pane | None) -> None:
        """Start a session; its lock is held by the caller."""
        if session.entry.stopped:
            return
        # From now on the launcher may be heard before tmux has told the process.
        session.unseen = True
        try:
            panes = await self.lifecycle.start(session, pane)
        finally:
            session.unseen = False
        if panes is None:
            if session.next_retry_at is not None:
                # It was postponed.
                delay = max(0.0, session.next_retry_at - time.time())
                asyncio.get_running_loop().call_later(delay + 0.01, self.wake)
            return
        session.pane = next((p for p in panes.values() if p.session_id == session.id), None)
        if session.pane is not None and self.sessions.get(session.name) is session:
            self.watchers.follow(session, session.pane)
            asyncio.get_running_loop().call_later(STARTED, self._presume_started, session)
        self.publish()
        self.attention.schedule(session)
        self.prompts.started(session)
        await self.ears.listen(session)

    async def adopt(self, session: Session, pane: Pane) -> None:
        """Take over a process that was started by an earlier supervisor."""
        session.enter(Phase.RUNNING, session.record.started_at or time.time())
        if self.lifecycle.groups is not None:
            session.applied = self.lifecycle.groups.applied(session.id)
            session.oom_kills = self.lifecycle.groups.oom_kills(session.id)
        self.watchers.follow(session, pane)
        self.attention.schedule(session)
        self.prompts.started(session)
        await self.ears.listen(session)
        log.info("session %s adopted, process %d", session.name, pane.pid)

    async def _finish(self, session: Session, pane: Pane | None) -> None:
        self.watchers.forget(session.id)
        verdict = await self.lifecycle.finish(session, pane)
        now = time.time()
        if verdict.action == "fail":
            session.enter(Phase.FAILED, now, verdict.cause)
        elif verdict.action == "park":
            try:
                # Written down before it is shown.
                await self.change(intent.set_stopped(session.name, stopped=True))
            except (AgentBoxError, OSError) as error:
                log.warning("session %s is parked, not written down: %s", session.name, error)
            session.enter(Phase.PARKED, now)
        else:
            session.enter(Phase.CRASHED, now, verdict.cause)
            loop = asyncio.get_running_loop()
            session.next_retry = loop.time() + verdict.delay
            session.next_retry_at = now + verdict.delay
            if verdict.delay:
                loop.call_later(verdict.delay + 0.001, self.wake)
                return
            if pane is not None:
                await self.start(session, pane)

    def _presume_started(self, session: Session) -> None:
        """Do without the launcher's word when that went astray: its process lives."""
        if session.phase is Phase.STARTING and session.alive and not session.lock.locked():
            since = time.time() - session.record.started_at
            if since >= STARTED - 1:
                session.enter(Phase.RUNNING, time.time())
                self.publish()

    def launched(self, session_id: str, message: dict[str, Any]) -> None:
        """Hear from a launcher that it becomes the agent now, or why it cannot."""
        for session in self.sessions.values():
            if session.id == session_id and session.phase is Phase.STARTING:
                if message.get("event") == "exec":
                    session.enter(Phase.RUNNING, time.time())
                    self.publish()
                else:
                    self.wake()

    # Showing ---------------------------------------------------------------

    def publish(self) -> None:
        """Send every subscriber what changed since the last time."""
        self.announcer.publish()

    def refresh_delivery(self) -> None:
        """Look whether kickoff prompts that are under way have arrived."""
        for session in self.sessions.values():
            if session.prompt_pending and session.alive:
                with contextlib.suppress(OSError, KeyError):
                    self.lifecycle.note_delivery(session, agents.get(session.entry.agent))


def _misnamed(session: Session) -> bool:
    """Tell whether tmux calls the session something else, and need not."""
    pane = session.pane
    return pane is not None and pane.session != session.name and session.namesake is None
