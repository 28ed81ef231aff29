"""Guided sign-in: the panes, and what they show, as states that a card or a command can tell.

The pane is the only state: a supervisor that comes new finds it and goes on. It is polled, but
only while a sign-in is under way. Nothing that a user enters is kept, logged, or put into the
arguments of a program.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box.errors import ConflictError, InternalError, UsageError
from agent_box.remote import place
from agent_box.signin import screen
from agent_box.signin.flows import FLOWS, GITHUB
from agent_box.supervisor.words import Words
from agent_box.tmux import TmuxDownError, TmuxError

if TYPE_CHECKING:
    from agent_box.panes import Pane
    from agent_box.signin.flows import Flow
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

PREFIX = "_signin-"
"""What the names of the panes begin with; reserved, so that no list shows them."""

COLUMNS, LINES = 512, 50
"""Wide enough that no address wraps."""

LIFE = 900.0
"""Seconds after which an attempt is given up: the vendors' codes live that long."""

LOOK = 0.5
"""Seconds between two looks at a pane."""

SETTLE = 1.0
"""Seconds between a code and Enter: in one chunk, Enter would be taken for a part of a paste."""

AGAIN = 3.0
"""Seconds after which a question with one answer is answered again."""

MAX_CODE = 8192
"""Characters of a code or key."""

LIVE = ("starting", "choosing", "waiting", "exchanging")
"""States of an attempt that has a pane."""


@dataclass
class Attempt:
    """One sign-in."""

    flow: Flow
    began: float
    state: str = "starting"
    address: str | None = None
    code: str | None = None
    asks_code: bool = False
    menu: screen.Menu | None = None
    error: str | None = None
    entered: list[str] = field(default_factory=list, repr=False)
    """What was typed, kept only to be cut out of the vendor's error messages."""
    answered: float = 0.0
    task: asyncio.Task[None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)


class Signin:
    """The sign-ins of one user."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._attempts: dict[str, Attempt] = {}
        self._closed: set[str] = set()
        """tmux's ids of the panes that were closed from here."""
        self._program = str(Path(supervisor.box.programs.launch).with_name("agent-box-signin"))
        self._words = Words(supervisor, self._program)

    def flows(self) -> list[Flow]:
        """Return the flows of what is installed."""
        return [f for f in FLOWS.values() if f.id in self._supervisor.box.agents or f.id == GITHUB]

    # Looking ---------------------------------------------------------------

    async def connections(self, args: dict[str, Any]) -> dict[str, Any]:
        """Tell how each CLI is connected; with `wait`, once each has said so itself."""
        self.adopt()
        quiet = [flow.id for flow in self.flows() if not self._alive(flow.id)]
        await self._words.ask(quiet, fresh=bool(args.get("fresh")), wait=bool(args.get("wait")))
        return {"connections": [self._card(flow) for flow in self.flows()]}

    def _card(self, flow: Flow) -> dict[str, Any]:
        attempt = self._attempts.get(flow.id)
        known = self._words.of(flow.id)
        state = attempt.state if attempt else "checking" if known is None else "idle"
        detail = str(known.get("detail") or "") if known else ""
        if known and (attempt is None or attempt.state not in LIVE):
            if known.get("missing"):
                state = "missing"
            elif known.get("connected"):
                state = "connected"
            elif known.get("connected") is None and attempt is None:
                state = "unknown"
        if self._supervisor.server != "running":
            state, attempt = "blocked", None
        menu = attempt.menu if attempt and attempt.state == "choosing" else None
        alive = attempt is not None and attempt.state in LIVE
        error = attempt.error if attempt else None
        if state == "connected" and error is None:
            error = self._refused(flow)
        return {
            "id": flow.id,
            "label": flow.label,
            "state": state,
            "detail": detail,
            "url": attempt.address if attempt and alive else None,
            "code": attempt.code if attempt and alive else None,
            "needsCode": bool(attempt and alive and attempt.asks_code),
            "choices": list(menu.choices) if menu else [],
            "selected": menu.selected if menu else None,
            "providers": list(flow.providers),
            "error": error,
            "shadows": list(known.get("shadows", [])) if known else [],
            "remote": self._remote() if flow.id == "codex" else None,
            "expires": attempt.began + LIFE if attempt and alive else None,
        }

    def _refused(self, flow: Flow) -> str | None:
        """Return where the vendor refused the login although the CLI calls it good."""
        for session in self._supervisor.sessions.values():
            refused = session.alive and session.last_call == "refused"
            if refused and session.entry.agent == flow.id:
                return f"refused when session '{session.name}' used it; sign in again"
        return None

    def _remote(self) -> dict[str, Any] | None:
        """Return what the newest pane of remote control shows."""
        panes = place.references(self._supervisor.user)
        keys = ("session", "state", "text", "url", "code")
        return {key: panes[-1].get(key) for key in keys} if panes else None

    def _alive(self, name: str) -> bool:
        attempt = self._attempts.get(name)
        return attempt is not None and attempt.state in LIVE

    # Acting ----------------------------------------------------------------

    async def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Start, cancel, choose, or give a code."""
        self.adopt()
        flow = next((flow for flow in self.flows() if flow.id == args.get("flow")), None)
        if flow is None:
            known = ", ".join(flow.id for flow in self.flows())
            raise UsageError(f"there is no such sign-in; choose one of {known}")
        action = args.get("action")
        if action == "start":
            await self._start(flow, args.get("provider"))
        elif action == "cancel":
            await self._cancel(flow)
        elif action == "choose":
            await self._choose(self._current(flow), args.get("choice"))
        elif action == "code":
            await self._enter(self._current(flow), args.get("text"))
        else:
            raise UsageError("action must be start, code, choose or cancel")
        return {"connection": self._card(flow)}

    def _current(self, flow: Flow) -> Attempt:
        attempt = self._attempts.get(flow.id)
        if attempt is None or attempt.state not in LIVE:
            raise ConflictError(f"no sign-in of {flow.label} is under way; start one")
        return attempt

    async def _start(self, flow: Flow, provider: object) -> None:
        if self._alive(flow.id):
            return
        words = [self._program, "run", flow.id]
        if flow.providers:
            if provider not in flow.providers:
                raise UsageError(f"choose a provider: {', '.join(flow.providers)}")
            words.append(str(provider))
        supervisor = self._supervisor
        if not await supervisor.look(1.0):
            # One that was started from here would be outside of the sandbox.
            raise ConflictError(
                "the tmux server of the sandbox does not run, and a sign-in belongs into it; "
                f"it is started by agent-box-{supervisor.user.name}.service"
            )
        self._words.forget_run(flow.id)
        attempt = Attempt(flow, time.time())
        self._attempts[flow.id] = attempt
        try:
            # What an attempt left that ended while no supervisor looked.
            await self._end(flow)
            home = str(supervisor.user.home)
            await supervisor.tmux.open(PREFIX + flow.id, home, COLUMNS, LINES, words)
        except TmuxError as error:
            del self._attempts[flow.id]
            raise InternalError(f"tmux refused to open the sign-in: {error}") from error
        log.info("sign-in of %s: started", flow.label)
        self._follow(attempt)

    def adopt(self) -> None:
        """Go on with the attempts whose panes an earlier supervisor opened."""
        for name, pane in self._supervisor.foreign.items():
            flow = FLOWS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
            # One that is being closed may still be listed.
            if pane.ended or pane.session_key in self._closed:
                continue
            if flow is not None and flow.id not in self._attempts:
                attempt = Attempt(flow, time.time())
                self._attempts[flow.id] = attempt
                self._follow(attempt)

    def _follow(self, attempt: Attempt) -> None:
        attempt.task = asyncio.create_task(self._watch(attempt))

    async def _cancel(self, flow: Flow) -> None:
        attempt = self._attempts.get(flow.id)
        try:
            if attempt is None or attempt.state not in LIVE:
                return
            if attempt.task is not None:
                attempt.task.cancel()
            await self._end(flow)
        finally:
            # Not before: who looks meanwhile would take the pane for that of an attempt to adopt.
            self._attempts.pop(flow.id, None)
        log.info("sign-in of %s: cancelled", flow.label)
        self._words.doubt()

    async def _end(self, flow: Flow) -> None:
        pane = await self._pane(flow)
        if pane is not None:
            self._closed.add(pane.session_key)
            if not pane.ended:
                await self._supervisor.lifecycle.ask_to_leave(pane)
            await self._supervisor.tmux.kill(pane)

    async def _pane(self, flow: Flow) -> Pane | None:
        return (await self._supervisor.tmux.panes()).get(PREFIX + flow.id)

    async def _enter(self, attempt: Attempt, text: object) -> None:
        if not isinstance(text, str) or not text or len(text) > MAX_CODE or "\0" in text:
            raise UsageError(f"the code must have 1 to {MAX_CODE} characters and no NUL")
        async with attempt.lock:
            pane = await self._pane(attempt.flow)
            if pane is None or pane.ended or not attempt.asks_code:
                raise ConflictError(f"{attempt.flow.label} does not ask for a code at the moment")
            attempt.entered.append(text)
            attempt.error = None
            tmux = self._supervisor.tmux
            await tmux.paste(pane.pane, text, enter=False)
            await asyncio.sleep(SETTLE)
            await tmux.run("send-keys", "-t", pane.pane, "Enter")
            attempt.state, attempt.asks_code = "exchanging", False

    async def _choose(self, attempt: Attempt, choice: object) -> None:
        async with attempt.lock:
            pane = await self._pane(attempt.flow)
            menu = await self._menu(pane)
            if pane is None or menu is None:
                raise ConflictError(f"{attempt.flow.label} offers no choice at the moment")
            if not isinstance(choice, str) or choice not in menu.choices:
                raise UsageError("choice must be one of the choices that are shown")
            step = menu.choices.index(choice) - menu.selected
            for _ in range(abs(step)):
                await self._keys(pane, "Down" if step > 0 else "Up")
            for _ in range(10):
                menu = await self._menu(pane)
                if menu is not None and menu.choices[menu.selected] == choice:
                    await self._keys(pane, "Enter")
                    attempt.menu, attempt.state = None, "starting"
                    return
                await asyncio.sleep(0.1)
            raise ConflictError(f"{attempt.flow.label} did not move to that choice; try again")

    async def _menu(self, pane: Pane | None) -> screen.Menu | None:
        if pane is None or pane.ended:
            return None
        return screen.menu(await self._supervisor.tmux.capture_styled(pane.pane))

    async def _keys(self, pane: Pane, *keys: str) -> None:
        await self._supervisor.tmux.run("send-keys", "-t", pane.pane, *keys)

    # Following -------------------------------------------------------------

    async def _watch(self, attempt: Attempt) -> None:
        """Follow one attempt to its end."""
        flow = attempt.flow
        try:
            while True:
                pane = await self._pane(flow)
                if pane is None:
                    self._fail(attempt, "failed", "the sign-in was closed")
                    return
                text = await self._supervisor.tmux.capture_styled(pane.pane)
                if pane.ended:
                    await self._finish(attempt, text)
                    return
                if time.time() - attempt.began > LIFE:
                    await self._end(flow)
                    self._fail(attempt, "expired", "nobody finished it within 15 minutes")
                    return
                if not attempt.lock.locked():
                    await self._advance(attempt, pane, text)
                await asyncio.sleep(LOOK)
        except TmuxDownError:
            self._fail(attempt, "failed", "the sandbox was restarted meanwhile")
        except TmuxError as error:
            self._fail(attempt, "failed", f"tmux does not answer ({error})")

    async def _advance(self, attempt: Attempt, pane: Pane, text: str) -> None:
        """Take over what the pane shows now."""
        flow = attempt.flow
        attempt.address = screen.address(text, COLUMNS, flow) or attempt.address
        if flow.shows_code:
            attempt.code = screen.code(text) or attempt.code
        last = screen.last_line(text)
        for pattern, keys in flow.answers:
            if re.search(pattern, last) and time.monotonic() - attempt.answered > AGAIN:
                attempt.answered = time.monotonic()
                await self._keys(pane, *keys.split())
        menu = screen.menu(text)
        asks = screen.asks(text, flow.code_prompt)
        if menu is not None:
            attempt.menu, attempt.state, attempt.asks_code = menu, "choosing", False
        elif attempt.state != "exchanging" and (asks or attempt.address or attempt.code):
            attempt.state, attempt.asks_code = "waiting", asks
        elif attempt.state == "choosing":
            attempt.state, attempt.menu = "starting", None

    async def _finish(self, attempt: Attempt, text: str) -> None:
        """Believe what the CLI said at its end, and what it answered when asked afterwards."""
        flow = attempt.flow
        attempt.asks_code, attempt.menu = False, None
        outcome = self._words.read(flow.id, "run") or {}
        said = flow.done is None or re.search(flow.done, "\n".join(screen.plain(text))) is not None
        worked = outcome.get("exit") == 0 and outcome.get("connected") is True and said
        with contextlib.suppress(TmuxError):
            await self._end(flow)
        if worked:
            attempt.state, attempt.error = "connected", None
            self._words.take(flow.id, outcome)
            self._attempts.pop(flow.id, None)
            for session in self._supervisor.sessions.values():
                if session.entry.agent == flow.id:
                    session.last_call = None
            log.info("sign-in of %s: connected", flow.label)
        else:
            reason = screen.failure(text, attempt.entered) or f"{flow.label} ended without a word"
            if outcome.get("exit") == 0 and outcome.get("connected") is not True:
                reason = f"{flow.label} says that nobody is signed in: {reason}"
            self._fail(attempt, "failed", reason)
        self._words.doubt()
        # Whoever waits for a sign-in to get its prompt is looked at again.
        self._supervisor.wake()

    def _fail(self, attempt: Attempt, state: str, reason: str) -> None:
        attempt.state, attempt.error = state, reason
        attempt.address = attempt.code = attempt.menu = None
        attempt.asks_code = False
        attempt.entered.clear()
        log.info("sign-in of %s: %s", attempt.flow.label, state)
