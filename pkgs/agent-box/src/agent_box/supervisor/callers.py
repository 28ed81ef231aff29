"""Who speaks to the supervisor, and how much of it each may have.

All sessions of a user and the services beside them share one supervisor. Connections, bytes of
requests and answers that are under way are its memory, so each caller has a bound of its own: one
session that takes all it can get is refused, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from agent_box.errors import ConflictError
from agent_box.peer import process_of

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Container, Iterator

MOST = 100
"""Connections that one caller may have open."""

MOST_TOGETHER = 500
"""Connections that all callers which a user's programs can be may have open together."""

MOST_REFUSED = 200
"""Connections that wait to hear that there are too many; any more are hung up on."""

FREE = 64 * 1024
"""Bytes of a request or an answer that count as nothing: nearly all are smaller."""

ROOM = 64 * 1024 * 1024
"""Bytes of all larger requests together that are under way."""

LARGE = 4
"""Large requests and answers that are worked on at a time, of one caller only one."""

_OURS = ("attention", "settings", "webhook")
"""Services of the user that run nothing but code of the box."""


@dataclass(frozen=True)
class Caller:
    """Whose connections count together."""

    name: str
    ours: bool
    """Whether it is the box itself: what programs of the user do takes nothing from it."""


def caller_of(peer: socket.socket, user: str, sessions: Container[str]) -> Caller | None:
    """Return who is at the other end; None when it is neither the user nor root."""
    pid, uid = process_of(peer)
    if uid == 0 and os.getuid() != 0:
        return Caller("root", ours=True)
    if uid != os.getuid():
        return None
    return named(_group(pid), user, sessions)


def named(group: str, user: str, sessions: Container[str]) -> Caller:
    """Return the caller in a control group.

    The user makes and names what is below a unit of theirs, so only what the box made counts:
    otherwise each process could be a caller of its own.
    """
    parts = group.strip("/").split("/")
    if "user.slice" in parts:
        return Caller("logins", ours=False)
    for unit, below in zip(parts, [*parts[1:], ""], strict=True):
        if not unit.endswith((".service", ".scope")):
            continue
        if any(unit == f"agent-box-{kind}-{user}.service" for kind in _OURS):
            return Caller(unit, ours=True)
        session = below.removeprefix("session-")
        if unit == f"agent-box-{user}.service" and session != below and session in sessions:
            return Caller(f"session {session}", ours=False)
        return Caller(unit, ours=False)
    return Caller("programs outside of units", ours=False)


def _group(pid: int) -> str:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    # Of the oldest layout with several trees that of systemd tells.
    found = [line.split(":", 2) for line in lines]
    paths = [path for _, kind, path in found if kind in ("", "name=systemd")]
    return max(paths, key=len, default="")


class Shares:
    """What callers have of one supervisor."""

    def __init__(self) -> None:
        self._connections: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._refused = 0
        self._large = {ours: asyncio.Semaphore(LARGE) for ours in (False, True)}
        self._ours: dict[str, bool] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.contextmanager
    def connection(self, caller: Caller) -> Iterator[str | None]:
        """Count a connection; yield why there may be no more, None when there may."""
        together = sum(n for name, n in self._connections.items() if not self._ours[name])
        if self._connections[caller.name] >= MOST:
            why = f"{MOST} connections of {caller.name} to the supervisor are open, which is all"
        elif not caller.ours and together >= MOST_TOGETHER:
            why = f"{MOST_TOGETHER} connections to the supervisor are open, which is all"
        else:
            self._ours[caller.name] = caller.ours
            self._connections[caller.name] += 1
            try:
                yield None
            finally:
                _less(self._connections, caller.name, 1)
                if not self._connections[caller.name]:
                    del self._connections[caller.name], self._ours[caller.name]
            return
        if self._refused >= MOST_REFUSED:
            raise ConnectionAbortedError
        self._refused += 1
        try:
            yield f"{why}; close some, or end the program that opened them"
        finally:
            self._refused -= 1

    def take(self, caller: Caller, count: int, most: int) -> None:
        """Count bytes of a request that is under way; ConflictError when there are too many."""
        together = sum(n for name, n in self._bytes.items() if self._ours.get(name) == caller.ours)
        if self._bytes[caller.name] + count > most or together + count > ROOM:
            raise ConflictError("too many large requests are under way; try again in a moment")
        self._bytes[caller.name] += count

    def give(self, caller: Caller, count: int) -> None:
        """Count bytes no more."""
        _less(self._bytes, caller.name, count)

    @contextlib.asynccontextmanager
    async def large(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for one's turn to do what takes much memory."""
        turn = self._turns.setdefault(caller.name, asyncio.Lock())
        async with turn, self._large[caller.ours]:
            yield


def _less(counts: Counter[str], name: str, count: int) -> None:
    counts[name] -= count
    if counts[name] <= 0:
        del counts[name]
