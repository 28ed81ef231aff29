"""Bytes of an upload on their way to the disk.

The size of the file tells how far an upload has come, so whatever is in it must be a true
beginning: each byte is written once, to its own place, and a request ends only when no thread
writes for it any more. A client can send a digest, and what does not match is dropped.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from agent_box.threads import to_the_end
from agent_box.web import files
from agent_box.web.answers import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STALL = 60.0
"""Seconds without a byte after which a request is given up."""

ALGORITHMS = ("sha256", "sha1")
"""Digests that a client can send."""

MISMATCH = 460
"""The status that tus has for it."""

_REPR_DIGEST = re.compile(r"(?:^|,)\s*sha-256=:([^:]*):")


class Check:
    """What a client says about the content of one request."""

    def __init__(self, algorithm: str, told: str, status: int) -> None:
        self._sum = hashlib.new(algorithm, usedforsecurity=False)
        self._status = status
        try:
            self._expected = base64.b64decode(told, validate=True)
        except (binascii.Error, ValueError):
            self._expected = b""
        if len(self._expected) != self._sum.digest_size:
            raise Refusal(
                HTTPStatus.BAD_REQUEST, "usage", f"the digest is not base64 of a {algorithm} sum"
            )

    @classmethod
    def of_part(cls, header: str | None) -> Check | None:
        """Return the check of a part, as `Upload-Checksum` of tus tells it."""
        if header is None:
            return None
        algorithm, _, told = header.partition(" ")
        if algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise Refusal(
                HTTPStatus.BAD_REQUEST, "usage", f"Upload-Checksum must be one of {known}"
            )
        return cls(algorithm, told.strip(), MISMATCH)

    @classmethod
    def of_whole(cls, header: str | None) -> Check | None:
        """Return the check of a whole file, as `Repr-Digest` tells it (RFC 9530)."""
        found = _REPR_DIGEST.search(header or "")
        return cls("sha256", found[1], HTTPStatus.BAD_REQUEST) if found else None

    def add(self, content: bytes) -> None:
        """Count content in."""
        self._sum.update(content)

    def require(self) -> None:
        """Refuse what is not what the client has sent."""
        if self._sum.digest() != self._expected:
            raise Refusal(
                self._status,
                "damaged",
                "what arrived is not what was sent (the digest differs); send it again",
            )


@dataclass
class Turn:
    """Requests about one upload take turns; a later one cuts the earlier short."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    pause: asyncio.Timeout | None = None


async def receive(
    target: int,
    offset: int,
    most: int,
    content: AsyncIterator[bytes],
    turn: Turn,
    check: Check | None,
) -> int:
    """Write what arrives to the end of the file and return how far it has come (up to `most`).

    What arrives is kept when the request fails, unless there is a digest: a half cannot be checked.
    """
    at, pending = offset, bytearray()

    async def store() -> None:
        nonlocal at
        chunk = bytes(pending)
        # A thread has it now, and must be the only one.
        pending.clear()
        at = await to_the_end(_write, target, chunk, at, check)

    try:
        try:
            while (chunk := await _next(content, turn)) is not None:
                if at + len(pending) + len(chunk) > most:
                    raise longer(most)
                pending += chunk
                if turn.waiting > 1:  # the client has come back on another connection
                    raise _stalled()
                if len(pending) >= files.CHUNK:
                    await store()
        finally:
            if pending:
                await store()
        if check is not None:
            check.require()
    except BaseException:
        if check is not None:
            os.ftruncate(target, offset)
        raise
    if at == most:
        await to_the_end(os.fsync, target)
    return at


async def _next(content: AsyncIterator[bytes], turn: Turn) -> bytes | None:
    try:
        async with asyncio.timeout(STALL) as turn.pause:
            return await anext(content)
    except StopAsyncIteration:
        return None
    except (TimeoutError, ClientDisconnect):
        raise _stalled() from None
    finally:
        turn.pause = None


def _write(target: int, content: bytes, at: int, check: Check | None) -> int:
    if check is not None:
        check.add(content)
    if os.fstat(target).st_size != at:
        raise Refusal(
            HTTPStatus.CONFLICT, "conflict", "another program has changed the file meanwhile"
        )
    view = memoryview(content)
    while view:
        written = os.pwrite(target, view, at)
        view, at = view[written:], at + written
    return at


def longer(size: int) -> Refusal:
    """Say that more comes than was announced."""
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "usage", f"more than the {size} bytes announced"
    )


def _stalled() -> Refusal:
    return Refusal(HTTPStatus.REQUEST_TIMEOUT, "stalled", "the upload stopped half-way")
