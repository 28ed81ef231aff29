"""What the CLIs say when they are asked whether somebody is signed in, and for how long it counts.

They need network and a just-in-time compiler, so they run in the sandbox, as a job of its tmux
server, and leave their answers as files in the runtime directory. Each takes up to two seconds of
a processor for it, so that it is asked again only when there is a reason to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box import envfile
from agent_box.errors import AgentBoxError
from agent_box.signin.flows import FLOWS
from agent_box.tmux import TmuxError

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

FRESH = 10.0
"""Seconds until a CLI that could not tell is asked again."""

HOLDS = 600.0
"""Seconds that a yes or no is believed while the files stay as they were: GitHub's CLI asks the
network, where something may have changed."""

ASKING = 90.0
"""Seconds for all CLIs together to say whether they are signed in."""


@dataclass
class _Word:
    """What a CLI said, and when."""

    answer: dict[str, Any]
    at: float = 0.0
    """Time of the question, of the monotonic clock."""
    files: object = None
    """What the files looked like then from which it has its answer."""


class Words:
    """The answers of the CLIs of one user; `program` asks them."""

    def __init__(self, supervisor: Supervisor, program: str) -> None:
        self._supervisor = supervisor
        self._program = program
        self._results = supervisor.user.runtime_dir / "signin"
        self._known: dict[str, _Word] = {}
        self._doubted = 0.0
        """Time of the monotonic clock; what was asked before does not count."""
        self._asking: asyncio.Task[None] | None = None

    def of(self, name: str) -> dict[str, Any] | None:
        """Return what a CLI last said; None before its first word."""
        known = self._known.get(name)
        return known.answer if known else None

    def take(self, name: str, answer: dict[str, Any]) -> None:
        """Take over what a CLI said by itself."""
        self._known[name] = _Word(answer)

    def doubt(self) -> None:
        """Ask again at the next occasion, however fresh the answers are."""
        self._doubted = time.monotonic()

    async def ask(self, names: list[str], *, fresh: bool, wait: bool) -> None:
        """Have those of `names` asked for which it is time, or all if it is to be `fresh`.

        `wait` for their answers.
        """
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
        if self._supervisor.server != "running":
            return None
        files = self._files(names)
        due = {name: files[name] for name in names if self._due(name, files[name])}
        if not due:
            return None
        self._asking = asyncio.create_task(self._probe(due))
        return self._asking

    def _due(self, name: str, files: object) -> bool:
        word = self._known.get(name)
        if word is None or word.at <= self._doubted:
            return True
        certain = word.answer.get("connected") is not None and word.files == files
        return time.monotonic() - word.at >= (HOLDS if certain else FRESH)

    def _files(self, names: list[str]) -> dict[str, object]:
        """Tell the present versions of the files from which the CLIs have their answers."""
        user = self._supervisor.user
        try:
            env = envfile.read(user.env_path)
        except (AgentBoxError, OSError, ValueError):
            env = {}
        variables = _version(user.env_path)
        paths = {name: FLOWS[name].credential_path(env, user.home) for name in names}
        return {name: (variables, path, _version(path)) for name, path in paths.items()}

    async def _probe(self, asked: dict[str, object]) -> None:
        names, at = list(asked), time.monotonic()
        # Whatever a job prints would end up on somebody's screen.
        command = shlex.join([self._program, "probe", *names]) + " >/dev/null 2>&1 || :"
        try:
            await self._supervisor.tmux.run("run-shell", command, timeout=ASKING)
        except TmuxError as error:
            log.warning("the sign-ins cannot be looked at: %s", error)
        for name, files in asked.items():
            answer = self.read(name, "probe") or {"connected": None}
            self._known[name] = _Word(answer, at, files)

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


def _version(path: Path) -> object:
    """Tell one content of a file from another, without reading it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
