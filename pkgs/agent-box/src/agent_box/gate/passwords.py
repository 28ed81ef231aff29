"""Hashing and checking of passwords, one at a time.

A check is expensive on purpose (19 MiB and some 25 ms), so whoever sends many must never make the
gate do them at once: a single worker checks, a short queue waits, the rest is turned away.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import dataclasses
import os
import re
import secrets
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import argon2.low_level
import bcrypt
from argon2.exceptions import VerificationError

from agent_box.gate.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MEMORY_KIB = 19456
TIME_COST = 2
PARALLELISM = 1
"""The parameters of every hash that the gate makes (OWASP's first choice for argon2id)."""

MAX_QUEUE = 32
"""Checks that may wait. At 25 ms each the last of them waits 0.8 s."""

RESERVE = 16
"""Places kept for those who come from where somebody is signed in already."""

_LONGEST = 256
"""Characters; a longer password is wrong, whatever it says."""

_BCRYPT_LONGEST = 72
"""Bytes of a password that bcrypt looks at."""

_ARGON2 = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,2}),p=(\d{1,2})"
    r"\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,172})"
)
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_BCRYPT_ALPHABET = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

_MAX_MEMORY_KIB = 131072
_MAX_TIME_COST = 16
_MAX_PARALLELISM = 16
_BCRYPT_COSTS = range(8, 17)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """What decides how long a check takes: the algorithm and its parameters."""

    algorithm: str
    costs: tuple[int, ...]
    sizes: tuple[int, ...] = ()


OURS = Scheme("argon2id", (MEMORY_KIB, TIME_COST, PARALLELISM), (16, 32))


def scheme(hashed: str) -> Scheme:
    """Return the scheme of the hash `hashed`; ValueError when the gate cannot use it.

    Accepted is what `caddy hash-password` makes: argon2id as a PHC string, and bcrypt.
    """
    if found := _ARGON2.fullmatch(hashed):
        memory, time, lanes = (int(found[index]) for index in (1, 2, 3))
        if not (8 * lanes <= memory <= _MAX_MEMORY_KIB):
            raise ValueError(f"argon2id with m={memory}; at most m={_MAX_MEMORY_KIB} is accepted")
        if not (1 <= time <= _MAX_TIME_COST and 1 <= lanes <= _MAX_PARALLELISM):
            raise ValueError(f"argon2id with t={time},p={lanes}; at most t=16,p=16 is accepted")
        return Scheme("argon2id", (memory, time, lanes), (_size(found[4]), _size(found[5])))
    if found := _BCRYPT.fullmatch(hashed):
        cost = int(found[1])
        if cost not in _BCRYPT_COSTS:
            raise ValueError(f"bcrypt with cost {cost}; costs from 8 to 16 are accepted")
        return Scheme("bcrypt", (cost,))
    raise ValueError(
        "neither an argon2id hash ($argon2id$v=19$…) nor a bcrypt one ($2b$…); make one with:"
        " caddy hash-password --algorithm argon2id"
    )


def _size(text: str) -> int:
    if len(text) % 4 == 1:
        raise ValueError("a broken argon2id hash: its base64 is cut off")
    return len(base64.b64decode(text + "=" * (-len(text) % 4)))


def normalise(password: str) -> str:
    """Return `password` as it is hashed: composed, so that every keyboard gives the same."""
    return unicodedata.normalize("NFC", password)


def make(password: str) -> str:
    """Return a new hash of `password`. Takes as long as a check."""
    return argon2.low_level.hash_secret(
        normalise(password).encode(),
        os.urandom(16),
        time_cost=TIME_COST,
        memory_cost=MEMORY_KIB,
        parallelism=PARALLELISM,
        hash_len=32,
        type=argon2.low_level.Type.ID,
    ).decode()


def matches(hashed: str, password: str) -> bool:
    """Tell whether `hashed` is a hash of `password`, in a time that `hashed` alone decides."""
    possible: bool = len(password) <= _LONGEST and "\0" not in password
    secret = normalise(password).encode("utf-8", "replace") if possible else b"impossible"
    try:
        if hashed.startswith("$argon2id$"):
            right: bool = argon2.low_level.verify_secret(
                hashed.encode(), secret, argon2.low_level.Type.ID
            )
        else:
            # The algorithm ignores the rest; newer libraries refuse it instead.
            right = bcrypt.checkpw(secret[:_BCRYPT_LONGEST], hashed.encode())
    except (VerificationError, ValueError):
        return False
    return possible and right


def decoy(like: Scheme) -> str:
    """Return a hash that no password has and that takes as long to check as one of `like`."""
    if like.algorithm == "bcrypt":
        salt = bcrypt.gensalt(like.costs[0]).decode()
        return salt + "".join(secrets.choice(_BCRYPT_ALPHABET) for _ in range(30)) + "."
    memory, time, lanes = like.costs
    salt_text, hash_text = (
        base64.b64encode(os.urandom(size)).decode().rstrip("=") for size in like.sizes
    )
    return f"$argon2id$v=19$m={memory},t={time},p={lanes}${salt_text}${hash_text}"


def give_memory_back() -> None:
    """Make the C library return the memory of each check to the system.

    Left alone it learns from the first check that such big pieces are common, and keeps one.
    """
    mmap_threshold = -3
    with contextlib.suppress(OSError, AttributeError):  # another C library has no such habit
        ctypes.CDLL(None).mallopt(mmap_threshold, 1024 * 1024)


class Worker:
    """Runs the expensive work: one piece at a time, a bounded number waiting."""

    def __init__(self, queue: int = MAX_QUEUE) -> None:
        self._lock = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, "password")
        self._limit = queue + 1
        self.waiting = 0
        """Pieces of work that run or wait."""

    async def run(self, work: Callable[[], T], *, preferred: bool = False) -> T:
        """Run `work` in a thread; BusyError at once when too many wait already.

        `preferred` work may use the reserve, which a flood from strangers cannot fill.
        """
        if self.waiting >= self._limit + (RESERVE if preferred else 0):
            raise BusyError
        self.waiting += 1
        try:
            async with self._lock:
                return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Let the thread end with its present work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
