"""HTTP on a socket that systemd opened: the runner of every web service of the box.

Only the edge connects to these sockets, and it sends plain requests. A client's wish to upgrade
the connection is news for the gate (in a header of ours), never a command to the server, so
`Connection` and `Upgrade` are dropped before an application sees a request.

The server sleeps until something happens and exits when nobody has asked for a while; systemd
keeps the socket, so the next request starts it anew.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.exceptions import HTTPException
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agent_box.activation import activated
from agent_box.errors import InternalError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable
    from types import FrameType

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

MAX_HEAD = 64 * 1024
"""Bytes of request line and headers together."""

HEAD_SECONDS = 20.0
"""Time for request line and headers to arrive, and for a connection to be used at all."""

MAX_CONNECTIONS = 1000
"""More connections or requests than these at once are answered 503."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_HOP = frozenset({b"connection", b"upgrade", b"keep-alive", b"proxy-connection"})


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one request may take."""

    body: int | None = 1024 * 1024
    """Bytes of the body; `None` where the application counts for itself."""
    seconds: float | None = 60.0
    """Time for the body to arrive; `None` where the application looks after that."""


DEFAULT_LIMITS = Limits()


def listed(routes: Iterable[BaseRoute]) -> str:
    """Return what `--routes` of a service prints: the addresses that it answers, one a line.

    `METHOD /path`, parts that vary in braces. HEAD goes without saying where there is GET.
    """
    return "".join(
        f"{method} {route.path}\n"
        for route in routes
        if isinstance(route, Route)
        for method in sorted(route.methods or ())
        if method != "HEAD" or "GET" not in (route.methods or ())
    )


def setup_logging() -> None:
    """Log to standard error, with the levels that the journal understands when it listens."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Journal("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def run(
    app: ASGIApp,
    idle_seconds: float | None = None,
    *,
    sock: socket.socket | None = None,
    limits: Callable[[Scope], Limits] | Limits = DEFAULT_LIMITS,
    needed: Callable[[], bool] = lambda: False,
) -> None:
    """Serve `app` until told to stop, or until nobody has asked for `idle_seconds`.

    Then `needed` is asked whether there is a reason to stay all the same, for as long again.
    Without `sock` it takes the first socket that systemd passed; InternalError when there is
    none. A request that is still being answered (a stream of events, say) is not idle.
    """
    if sock is None:
        sock = next(iter(activated().values()), None)
    if sock is None:
        raise InternalError(
            "no socket was passed: this service is started by its .socket unit, see:"
            " systemctl list-sockets 'agent-box-*'"
        )
    guard = _Guard(app, limits if callable(limits) else lambda _: limits, needed)
    config = uvicorn.Config(
        guard,
        http=_Protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        backlog=1024,
        timeout_graceful_shutdown=2,
    )
    _Server(config, guard, idle_seconds).run(sockets=[sock])


class _Journal(logging.Formatter):
    """Prefixes each line with the syslog level that the journal understands."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if "JOURNAL_STREAM" not in os.environ:
            return text
        level = 3 if record.levelno >= logging.ERROR else 4
        if record.levelno < logging.WARNING:
            level = 6
        return "\n".join(f"<{level}>{line}" for line in text.splitlines())


class _Server(uvicorn.Server):
    """uvicorn that waits for events where the original looks ten times a second."""

    def __init__(self, config: uvicorn.Config, guard: _Guard, idle: float | None) -> None:
        super().__init__(config)
        self._guard = guard
        self._idle = idle
        self._stop: Callable[[], Any] = lambda: None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._stop()

    async def main_loop(self) -> None:
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(told.set)
        await self.on_tick(0)  # sets the headers of every answer
        while not self.should_exit:
            left = self._guard.idle_left(self._idle)
            if left is not None and left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await told.wait()
            except TimeoutError:
                continue


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 that never upgrades and reads heads of bounded size."""

    _head = 0
    _too_long = False
    _complete = False
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head = 0
        self._complete = False
        self._wait_for_head()
        super().on_message_begin()

    def _wait_for_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _hang_up(self) -> None:
        self._late = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        # What follows the body would count as a header, past the edge that deletes those of ours.
        if not self._complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_came()
        self._complete = True
        # The parser takes what follows an upgrade for another protocol, a body included. So there
        # must be none, and no further request either.
        upgrade = self.parser.should_upgrade()
        if upgrade and any(name in _FRAMING and value != b"0" for name, value in self.headers):
            raise ValueError("a body after an upgrade")
        super().on_headers_complete()
        if upgrade:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        if self._too_long:
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                b"content-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()
            return
        super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        """Stay silent: it is by design, and anybody could fill the log."""

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            self._too_long = True
            raise ValueError("head too long")


class _Guard:
    """Holds requests to their limits and knows when the last one ended."""

    def __init__(
        self, app: ASGIApp, limits: Callable[[Scope], Limits], needed: Callable[[], bool]
    ) -> None:
        self._app = app
        self._limits = limits
        self._needed = needed
        self._active = 0
        self._last = 0.0

    def idle_left(self, idle: float | None) -> float | None:
        """Return the seconds after which to look again whether the service is idle."""
        if idle is None:
            return None
        now = asyncio.get_running_loop().time()
        if self._active or not self._last:
            self._last = now
        if self._last + idle <= now and self._needed():
            self._last = now
        return self._last + idle - now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._active += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._active -= 1
            self._last = asyncio.get_running_loop().time()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A copy, because the server looks for "Connection: close" in its own.
        scope = {**scope, "headers": [item for item in scope["headers"] if item[0] not in _HOP]}
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            body = _Body(scope, receive, self._limits(scope))
            await self._app(scope, body, sending)
        except HTTPException as refused:
            if started:
                raise
            await _refuse(send, HTTPStatus(refused.status_code))


class _Body:
    """`receive` of an application, held to limits."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        self._receive = receive
        self._limits = limits
        self._size = 0
        self._complete = False
        self._deadline: float | None = None
        for name, value in scope["headers"]:
            if name == b"content-length" and limits.body is not None and int(value) > limits.body:
                raise _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()  # waits for the client to go away, however long
        loop = asyncio.get_running_loop()
        if self._deadline is None and self._limits.seconds is not None:
            self._deadline = loop.time() + self._limits.seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise _refusal(HTTPStatus.REQUEST_TIMEOUT) from None
        if message["type"] != "http.request":
            return message
        self._size += len(message.get("body", b""))
        if self._limits.body is not None and self._size > self._limits.body:
            raise _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self._complete = not message.get("more_body", False)
        return message


def _refusal(status: HTTPStatus) -> HTTPException:
    # Starlette answers this kind of exception itself, others it would report as its own failure.
    return HTTPException(status.value, headers={"connection": "close"})


async def _refuse(send: Send, status: HTTPStatus) -> None:
    text = f"{status.phrase}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": text})
