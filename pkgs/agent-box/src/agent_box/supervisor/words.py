"""What the CLIs say when they are asked whether somebody is signed in, and for how long it counts.

They need network and a just-in-time compiler, so they run in the sandbox, as a job of its tmux
server, and leave their answers as files in the runtime directory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import time
from typing import TYPE_CHECKING, Any

from agent_box.tmux import TmuxError

if TYPE_CHECKING:
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

FRESH = 10.0
"""Seconds that a CLI's word about its sign-in is believed."""

ASKING = 90.0
"""Seconds for all CLIs together to say whether they are signed in."""


class Words:
    """The answers of the CLIs of one user; `program` asks them."""

    def __init__(self, supervisor: Supervisor, program: str) -> None:
        self._supervisor = supervisor
        self._program = program
        self._results = supervisor.user.runtime_dir / "signin"
        self._known: dict[str, dict[str, Any]] = {}
        self._at = 0.0
        self._asking: asyncio.Task[None] | None = None

    def of(self, name: str) -> dict[str, Any] | None:
        """Return what a CLI last said; None before its first word."""
        return self._known.get(name)

    def take(self, name: str, answer: dict[str, Any]) -> None:
        """Take over what a CLI said by itself."""
        self._known[name] = answer

    def doubt(self) -> None:
        """Ask again at the next occasion, however fresh the answers are."""
        self._at = 0.0

    async def ask(self, names: list[str], *, fresh: bool, wait: bool) -> None:
        """Have `names` asked if that was long ago or is to be `fresh`; `wait` for their answers."""
        if fresh:
            if wait and self._asking is not None:
                # What is asked already may be about the time before.
                await asyncio.wait({self._asking}, timeout=ASKING)
            self.doubt()
        asking = self._question(names)
        if wait and asking is not None:
            await asyncio.wait({asking}, timeout=ASKING)

    def _question(self, names: list[str]) -> asyncio.Task[None] | None:
        """Return the question that is under way, a new one if it is time for that."""
        if self._asking is not None and not self._asking.done():
            return self._asking
        if self._supervisor.server != "running" or time.monotonic() - self._at < FRESH:
            return None
        self._at = time.monotonic()
        self._asking = asyncio.create_task(self._probe(names))
        return self._asking

    async def _probe(self, names: list[str]) -> None:
        if not names:
            return
        # Whatever a job prints would end up on somebody's screen.
        command = shlex.join([self._program, "probe", *names]) + " >/dev/null 2>&1 || :"
        try:
            await self._supervisor.tmux.run("run-shell", command, timeout=ASKING)
        except TmuxError as error:
            log.warning("the sign-ins cannot be looked at: %s", error)
        for name in names:
            self._known[name] = self.read(name, "probe") or {"connected": None}

    def read(self, name: str, kind: str) -> dict[str, Any] | None:
        """Return the answer in a file: `probe` is that to a question, `run` that of a sign-in."""
        try:
            found = json.loads((self._results / f"{name}.{kind}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def forget_run(self, name: str) -> None:
        """Remove the answer of an earlier sign-in."""
        (self._results / f"{name}.run.json").unlink(missing_ok=True)
