"""The operations of the control socket.

Each takes the arguments of a request and returns the result that the client gets. They run
in the supervisor, so that a command given from inside a session is carried out whole even
when it ends the session that gave it.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_box import __version__, intent
from agent_box.errors import AgentBoxError, ConflictError, InternalError, NotFoundError, UsageError
from agent_box.supervisor import deliver as news
from agent_box.supervisor.reconcile import Phase
from agent_box.tmux import TmuxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent_box.panes import Pane
    from agent_box.registry import Document
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.runner import Supervisor

    Args = dict[str, Any]

MOST_LOG = 2_000_000
"""Characters of a log that are told: the answer is one line of bounded size."""

LOOK_TIMEOUT = 1.0
"""Seconds that a question waits for a tmux server before it gets the last known answer."""

MOVING = ("send", "deliver")
"""Operations after which an agent is likely to begin to work."""

LIVE = ("running", "waiting", "crashed", "failed", "stopped")
STATES = ("starting", *LIVE, "unmanaged")
LIVE_TIMEOUT = 20.0
"""Seconds that `add`, `start` and `restart` wait for the agent's process."""


class Operations:
    """Answers requests for one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._table: dict[str, Callable[[Args], Awaitable[Any]]] = {
            "status": self.status,
            "ls": self.ls,
            "show": self.show,
            "add": self.add,
            "rm": self.rm,
            "stop": self.stop,
            "start": self.start,
            "restart": self.restart,
            "rename": self.rename,
            "send": self.send,
            "deliver": self.deliver,
            "logs": self.logs,
            "wait": self.wait,
            "connections": supervisor.signin.connections,
            "signin": supervisor.signin.act,
        }

    async def call(self, op: str, args: Args) -> Any:
        """Carry out operation `op`; raise an `AgentBoxError` that explains a refusal."""
        handler = self._table.get(op)
        if handler is None:
            raise UsageError(f"unknown operation '{op}'; known: {', '.join(self._table)}")
        try:
            return await handler(args)
        except TmuxError as error:
            raise InternalError(f"tmux: {error}") from error
        finally:
            if op in MOVING:
                self.supervisor.attention.soon()
            self.supervisor.publish()

    # Looking ---------------------------------------------------------------

    async def status(self, _args: Args) -> Args:
        """Tell how the supervisor and its tmux server are."""
        supervisor = self.supervisor
        await supervisor.look(LOOK_TIMEOUT)
        return {
            "version": __version__,
            "pid": os.getpid(),
            "user": supervisor.user.name,
            "server": {"state": supervisor.server, "pid": supervisor.server_pid},
            "problems": supervisor.announcer.problems(),
        }

    async def ls(self, _args: Args) -> Args:
        """List the sessions."""
        supervisor = self.supervisor
        if await supervisor.look(LOOK_TIMEOUT):
            await supervisor.attention.refresh()
        supervisor.refresh_delivery()
        return {
            "sessions": supervisor.announcer.views(),
            "problems": supervisor.announcer.problems(),
        }

    async def show(self, args: Args) -> Args:
        """Tell everything about one session."""
        name = _name(args)
        listing = await self.ls({})
        for view in listing["sessions"]:
            if view["name"] == name:
                session = self.supervisor.sessions.get(name)
                exits = session.record.exits if session else []
                entry = self.supervisor.document.sessions.get(name)
                return {**view, "entry": entry, "exits": [_builtin(item) for item in exits]}
        raise NotFoundError(f"no session '{name}'; `agent-box-session ls` lists them")

    async def logs(self, args: Args) -> Args:
        """Return the screen and scrollback of a session, or of a run of it that ended."""
        session = self.supervisor.session(_name(args))
        lines = _integer(args, "lines", 20000)
        run = args.get("run")
        supervisor = self.supervisor
        if run is None and session.pane is not None and await supervisor.look(LOOK_TIMEOUT):
            text = await supervisor.tmux.capture(session.pane.pane, lines)
            return {"text": _tail(text, lines), "source": "live", "run": None}
        if run is not None and not isinstance(run, int):
            raise UsageError("run must be a number")
        found = await asyncio.to_thread(supervisor.records.log, session.id, run)
        if found is None:
            raise NotFoundError(
                f"session '{session.name}' has no log of "
                + (f"run {run}" if run is not None else "an ended run")
                + "; `agent-box-session show` lists its ends"
            )
        return {"text": _tail(found[1], lines), "source": "ended", "run": found[0]}

    async def wait(self, args: Args) -> Args:
        """Wait until a session is in one of the given states."""
        states = args.get("states")
        if not isinstance(states, list) or not states or not all(s in STATES for s in states):
            raise UsageError(f"states must be some of: {', '.join(STATES)}")
        session = self.supervisor.session(_name(args))
        seconds = args.get("timeout", 60)
        if not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise UsageError("timeout must be a number of seconds")
        await self._wait_state(session, states, seconds)
        return {"session": session.view()}

    # Changing --------------------------------------------------------------

    async def add(self, args: Args) -> Args:
        """List a new session and, unless told otherwise, wait until it lives."""
        supervisor = self.supervisor
        request = intent.Request.from_wire(args)
        change, name = intent.add(supervisor.box, supervisor.user, request)
        await self._change(change)
        session = supervisor.session(name())
        if args.get("wait", True):
            await self._wait_live(session)
        return {"session": session.view()}

    async def rm(self, args: Args) -> Args:
        """Delist a session, then end it and forget it."""
        name = _name(args)
        supervisor = self.supervisor
        session = supervisor.sessions.get(name)
        if session is None:
            # An entry that made no sense; what ran for it is ended as unlisted.
            await self._change(intent.remove(name))
            return {"session": None}
        with supervisor.ending(session.id):
            await self._remove(session)
        return {"session": None}

    async def _remove(self, session: Session) -> None:
        supervisor = self.supervisor
        await self._change(intent.remove(session.name))
        async with session.lock:
            await supervisor.look(LOOK_TIMEOUT)
            known = [pane for pane in supervisor.foreign.values() if pane.session_id == session.id]
            pane = known[0] if known else session.pane
            if pane is not None:
                await supervisor.lifecycle.end(None, pane, session.id)
            supervisor.forget(session.id)

    async def stop(self, args: Args) -> Args:
        """Park a session: it stays listed and ended."""
        session = self.supervisor.session(_name(args))
        await self._change(intent.set_stopped(session.name, stopped=True))
        async with session.lock:
            await self.supervisor.look(LOOK_TIMEOUT)
            if session.pane is not None:
                await self.supervisor.lifecycle.end(session, session.pane, session.id)
            session.pane = None
            self.supervisor.watchers.forget(session.id)
            session.enter(Phase.IDLE, time.time())
        return {"session": session.view()}

    async def start(self, args: Args) -> Args:
        """Let a parked or failed session run again; a live one stays as it is."""
        session = self.supervisor.session(_name(args))
        if session.state in ("stopped", "failed", "crashed"):
            if session.entry.stopped:
                await self._change(intent.set_stopped(session.name, stopped=False))
            async with session.lock:
                await self._again(session, None)
        await self._wait_live(session)
        return {"session": session.view()}

    async def restart(self, args: Args) -> Args:
        """End the process of one or all sessions and start it again, with resume."""
        supervisor = self.supervisor
        if not args.get("all"):
            session = supervisor.session(_name(args))
            await self._restart(session)
            await self._wait_live(session)
            return {"sessions": [session.view()], "errors": []}
        chosen = [
            session
            for session in supervisor.sessions.values()
            if args.get("includeStopped") or session.state != "stopped"
        ]
        results = await asyncio.gather(
            *(self._restart(session) for session in chosen), return_exceptions=True
        )
        await asyncio.gather(*(self._wait_live(session) for session in chosen))
        errors = [
            {"name": session.name, "message": str(result)}
            for session, result in zip(chosen, results, strict=True)
            if isinstance(result, BaseException)
        ]
        return {"sessions": [session.view() for session in chosen], "errors": errors}

    async def _restart(self, session: Session) -> None:
        supervisor = self.supervisor
        if session.entry.stopped:
            await self._change(intent.set_stopped(session.name, stopped=False))
        async with session.lock:
            await supervisor.look(LOOK_TIMEOUT)
            pane = session.pane
            if pane is not None:
                supervisor.watchers.forget(session.id)
                await supervisor.lifecycle.restart_process(session, pane)
            await self._again(session, pane)

    async def _again(self, session: Session, gone: Pane | None) -> None:
        """Start a session whose process `gone` has ended, with a clean slate.

        The session's lock is held by the caller. A process that somebody else started
        meanwhile is left alone.
        """
        supervisor = self.supervisor
        if not await supervisor.look(LOOK_TIMEOUT):
            raise InternalError(" ".join(supervisor.announcer.problems()) or "tmux does not answer")
        session.failures = 0
        panes = (await supervisor.tmux.panes()).values()
        pane = next((item for item in panes if item.session_id == session.id), None)
        if pane is not None and not pane.ended and (gone is None or gone.pid != pane.pid):
            session.pane = pane
            return
        if pane is None and any(item.session == session.name for item in panes):
            # The name is taken: the reconciler waits for it or says so.
            session.enter(Phase.IDLE, time.time())
            session.pane = None
            supervisor.wake()
            return
        session.enter(Phase.IDLE, time.time())
        await supervisor.start(session, pane)

    async def rename(self, args: Args) -> Args:
        """Give a session another name."""
        old, new = _name(args), args.get("newName")
        if not isinstance(new, str):
            raise UsageError("newName is missing")
        supervisor = self.supervisor
        session = supervisor.session(old)
        async with session.lock:
            await self._change(intent.rename(old, new))
            await supervisor.look(LOOK_TIMEOUT)
            if session.pane is not None:
                try:
                    await supervisor.tmux.rename(session.pane, new)
                except TmuxError:
                    # The name is taken there: the reconciler renames it when it gets free.
                    supervisor.wake()
                else:
                    session.pane = replace(session.pane, session=new)
        return {"session": session.view()}

    async def send(self, args: Args) -> Args:
        """Type a text into a session, as a paste, and press Enter unless told not to."""
        session = self.supervisor.session(_name(args))
        text = args.get("text")
        if not isinstance(text, str):
            raise UsageError("text is missing")
        if not await self.supervisor.look(LOOK_TIMEOUT):
            raise InternalError(" ".join(self.supervisor.announcer.problems()))
        async with session.lock:
            pane = session.pane if session.alive else None
        if pane is None:
            raise ConflictError(
                f"session '{session.name}' is {session.state}, nobody would read it; "
                f"start it first: agent-box-session start {session.name}"
            )
        await self.supervisor.tmux.paste(
            pane.pane, text, enter=args.get("enter", True) is not False
        )
        return {}

    async def deliver(self, args: Args) -> Args:
        """Give news from outside to a session; unlike `send` it waits for no one."""
        session = self.supervisor.session(_name(args))
        text = args.get("text")
        if not isinstance(text, str) or not text:
            raise UsageError("text is missing")
        if not await self.supervisor.look(LOOK_TIMEOUT):
            raise ConflictError(" ".join(self.supervisor.announcer.problems()))
        return {"confirmed": await news.deliver(self.supervisor, session, text)}

    # Helpers ---------------------------------------------------------------

    async def _change(self, change: Callable[[Document], None]) -> None:
        supervisor = self.supervisor
        try:
            await supervisor.change(change)
        except AgentBoxError:
            raise
        except OSError as error:
            raise InternalError(f"{supervisor.store.path}: {error.strerror}") from error

    async def _wait_live(self, session: Session) -> None:
        try:
            await self._wait_state(session, LIVE, LIVE_TIMEOUT, look=False)
        except ConflictError:
            # Listed it is; the state that the caller gets to see says that it is not live yet.
            return

    async def _wait_state(
        self,
        session: Session,
        states: Any,
        seconds: float,
        *,
        look: bool = True,
    ) -> None:
        supervisor = self.supervisor
        queue = supervisor.announcer.subscribe(1000)
        try:
            async with asyncio.timeout(seconds):
                if look and session.state not in states:
                    await self.ls({})
                while True:
                    while session.state not in states:
                        await queue.get()
                        if supervisor.sessions.get(session.name) is not session:
                            raise NotFoundError(f"session '{session.name}' was removed meanwhile")
                    # The launcher may be heard before tmux has told its process id: whoever
                    # starts the session holds its lock until both are known.
                    async with session.lock:
                        if session.state in states:
                            return
        except TimeoutError:
            if session.state in states:
                return
            raise ConflictError(
                f"session '{session.name}' is still {session.state} after {seconds:g} s"
            ) from None
        finally:
            supervisor.announcer.unsubscribe(queue)


def _name(args: Args) -> str:
    name = args.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError("name is missing")
    return name


def _integer(args: Args, key: str, default: int) -> int:
    value = args.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or value < 0:
        raise UsageError(f"{key} must be a number from 0 on")
    return min(value, 10**6)


def _tail(text: str, lines: int) -> str:
    text = text.rstrip("\n")
    if len(text) > MOST_LOG:
        text = text[-MOST_LOG:].partition("\n")[2]
    kept = text.split("\n")[-lines:] if lines else []
    return "\n".join(kept) + "\n" if kept else ""


def _builtin(item: object) -> Any:
    import msgspec

    return msgspec.to_builtins(item)
