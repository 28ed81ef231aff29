"""The HTTP side of the receiver: who may send what, and what they are answered.

Nobody is signed in here: the signature over the raw body is the trust boundary. Statuses are 200,
400, 401, 404, 405, and 408, 413, 429, 503, 507 where limits are reached; never 500 for anything
that a sender can do.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import logging
import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from agent_box import httpd
from agent_box.gate import addresses
from agent_box.webhook import payload, sources, verify
from agent_box.webhook.room import FullError
from agent_box.webhook.spool import Arrival

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

LIMITS = httpd.Limits(body=26 * 1024 * 1024, seconds=20.0)
"""GitHub sends up to 25 MiB and waits ten seconds."""

FREE = 64 * 1024
"""Bytes of a body that never wait for memory: nearly every delivery is smaller."""

BUDGET = 128 * 1024 * 1024
"""Bytes that all larger bodies may take together."""

TURNS = 768
"""Deliveries that are received at once; all others wait in the queue of the socket."""

PLACES, PLACES_EACH = 128, 8
"""Of these as many may have a body that is not whole yet: of all senders, and of one network."""

PARALLEL_LARGE = 1
LARGE = 1024 * 1024
"""Larger documents are parsed one at a time."""

QUIET = 30.0
"""Seconds between two lines in the log about refused deliveries."""

LOCAL = "/.local/"
"""Below it the user's own programs ask the receiver; no name of a source begins with a dot."""

_FORWARDED = "x-forwarded-for"
"""The edge sets it on every request, so one without it comes from the user's own programs."""

Reply = tuple[int, str]
OK: Reply = (200, "ok")
BAD: Reply = (400, "bad json")
UNSIGNED: Reply = (401, "invalid signature")
UNKNOWN: Reply = (404, "unknown source")
METHOD: Reply = (405, "method not allowed")
LARGER: Reply = (413, "too large")
OWN_SHARE: Reply = (429, "too many deliveries of this sender wait, send it again later")
FULL: Reply = (507, "there is no room for deliveries, send it again later")
BUSY: Reply = (503, "busy")

_LATER = {OWN_SHARE: b"60", FULL: b"60", BUSY: b"5"}
"""Seconds after which it is worth another try."""


class _BusyError(Exception):
    """There is no memory left for this body."""


class Ingress:
    """The application behind the socket of one user."""

    def __init__(
        self,
        directory: Path,
        store: Callable[[Arrival], Awaitable[int | None]],
        ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]],
    ) -> None:
        self._directory = directory
        self._store = store
        self._ask = ask
        self._used = 0
        self._places: Counter[bytes] = Counter()
        self._large = asyncio.Semaphore(PARALLEL_LARGE)
        self.counts: Counter[str] = Counter()
        """Answers since the start, by status."""
        self._told = 0.0
        self._silent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        path = scope["path"]
        if path.startswith(LOCAL) and _FORWARDED not in headers:
            await self._local(scope, receive, send)
            return
        reply = await self._answer(scope["method"], path, headers, receive)
        self.counts[str(reply[0])] += 1
        if reply in (UNSIGNED, UNKNOWN, OWN_SHARE, FULL):
            self._tell(path, reply[1])
        await _send(send, reply)

    async def _answer(
        self, method: str, path: str, headers: dict[str, str], receive: Receive
    ) -> Reply:
        if method != "POST":
            # No address tells more than its name does, before a sender is known.
            known = sources.load(self._directory).find(path.strip("/")) is not None
            return METHOD if known else UNKNOWN
        with self._place(headers) as free:
            if not free:
                return BUSY
            return await self._receive(path, headers, receive)

    @contextlib.contextmanager
    def _place(self, headers: dict[str, str]) -> Iterator[bool]:
        """Hold a place for a body that the edge passes on before it is whole; tell whether one is.

        Whoever sends such a body slowly keeps nobody else from delivering.
        """
        size = headers.get("content-length", "")
        if _FORWARDED not in headers or (size.isdigit() and int(size) < FREE):
            yield True
            return
        network = addresses.network(addresses.parse(headers[_FORWARDED]))
        if self._places[network] >= PLACES_EACH or self._places.total() >= PLACES:
            yield False
            return
        self._places[network] += 1
        try:
            yield True
        finally:
            self._places[network] -= 1
            if not self._places[network]:
                del self._places[network]

    async def _receive(self, path: str, headers: dict[str, str], receive: Receive) -> Reply:
        senders = sources.load(self._directory)
        source = senders.find(path.strip("/"))
        if source is None:
            await _discard(receive)
            return UNKNOWN
        if not source.secrets:
            await _discard(receive)
            return UNSIGNED
        body = bytearray()
        kept = [0]
        try:
            try:
                await self._read(receive, body, kept)
            except _BusyError:
                # At once, so that others get through.
                self._used -= kept.pop()
                kept.append(0)
                body.clear()
                await _discard(receive)
                return BUSY
            return await self._judge(source, len(senders.known), headers, bytes(body))
        finally:
            self._used -= kept[0]

    async def _read(self, receive: Receive, body: bytearray, kept: list[int]) -> None:
        while True:
            message = await receive()
            if message["type"] != "http.request":
                # The sender left early: what came so far cannot be what it signed.
                body.clear()
                return
            body += message.get("body", b"")
            extra = len(body) - FREE - kept[0]
            if extra > 0:
                if self._used + extra > BUDGET:
                    raise _BusyError
                self._used += extra
                kept[0] += extra
            if not message.get("more_body", False):
                return

    async def _judge(
        self, source: sources.Source, senders: int, headers: dict[str, str], body: bytes
    ) -> Reply:
        request = verify.Request(headers, body, time.time())
        scheme = verify.SCHEMES[source.scheme]
        proof = scheme.check(request, source.secrets, source.signature_header)
        if proof is None:
            return UNSIGNED
        if len(body) < LARGE:
            return await self._accept(source, senders, headers, body, proof)
        async with self._large:
            return await self._accept(source, senders, headers, body, proof)

    async def _accept(
        self,
        source: sources.Source,
        senders: int,
        headers: dict[str, str],
        body: bytes,
        proof: verify.Proof,
    ) -> Reply:
        delivery = headers.get(source.delivery_header)
        digest = proof.digest
        if _FORWARDED not in headers:
            # Programs of the user repeat themselves on purpose, each time under another id.
            digest = hashlib.sha256(digest + (delivery or "").encode("latin-1")).digest()
        try:
            arrival = _arrival(source, headers, body, delivery, digest)
        except payload.BadPayloadError:
            return BAD
        except payload.TooComplexError:
            return LARGER
        try:
            await self._store(dataclasses.replace(arrival, senders=senders))
        except FullError as error:
            return OWN_SHARE if error.own else FULL
        except (sqlite3.Error, OSError) as error:
            self._tell(source.name, f"it cannot be stored, its sender is to try again: {error}")
            return BUSY
        return OK

    def _tell(self, path: str, why: str) -> None:
        """Say that deliveries are refused, now and then: anybody could fill the log."""
        now = time.monotonic()
        if self._told and now - self._told < QUIET:
            self._silent += 1
            return
        more = f" (and {self._silent} more since the last such line)" if self._silent else ""
        log.warning("refused a delivery to %.80r: %s%s", path, why, more)
        self._told, self._silent = now, 0

    async def _local(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a program of the user: JSON in, JSON out."""
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if message["type"] != "http.request" or not message.get("more_body", False):
                break
        try:
            args = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            args = None
        found = None
        if isinstance(args, dict):
            found = await self._ask(scope["path"].removeprefix(LOCAL), args)
        status = 404 if found is None else 200
        content = json.dumps(found if found is not None else {"error": "not found"}).encode()
        await _send(send, (status, content.decode()), b"application/json")


def _arrival(
    source: sources.Source,
    headers: dict[str, str],
    body: bytes,
    delivery: str | None,
    digest: bytes,
) -> Arrival:
    document = payload.parse(body, headers.get("content-type", ""))
    envelope = payload.envelope(
        source.name,
        document,
        github=source.github,
        key_path=source.key_path,
        sender_path=source.sender_path,
        event=headers.get(source.event_header),
        delivery=delivery,
    )
    return Arrival(
        source=source.name,
        event=envelope.event,
        key=envelope.key,
        sender=envelope.sender,
        delivery=envelope.delivery,
        size=len(body),
        line=envelope.line(),
        digest=digest,
        replay_seconds=source.replay_hours * 3600,
    )


async def _discard(receive: Receive) -> None:
    """Read a body to its end, so that the edge can hand on the answer."""
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


async def _send(send: Send, reply: Reply, kind: bytes = b"text/plain; charset=utf-8") -> None:
    content = reply[1].encode()
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if reply in _LATER:
        headers.append((b"retry-after", _LATER[reply]))
    await send({"type": "http.response.start", "status": reply[0], "headers": headers})
    await send({"type": "http.response.body", "body": content})
