"""`agent-box-status`: tells each user how the own units and the shared ones are.

Services of users have the same confinement as sessions and so no way to the system bus. Whoever
connects is told about the account that the kernel says it is; it sends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pwd
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from agent_box import config, peer
from agent_box.activation import activated
from agent_box.errors import AgentBoxError, InternalError
from agent_box.status import certificate, units

if TYPE_CHECKING:
    import socket

    from agent_box.config import Box

FRESH = 2.0
"""Seconds for which an answer is good: several pages may ask at once."""

CERTIFICATE_FRESH = 600.0

IDLE = 60.0
"""Seconds without a question after which the service ends; systemd keeps the socket."""

AT_ONCE = 8
"""Connections of one user; further ones are closed without an answer."""

_SEND_TIMEOUT = 5.0


class Status:
    """Answers of one box, kept for as long as they are good."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._lock = asyncio.Lock()
        self._units: dict[str, tuple[float, list[dict[str, Any]] | None]] = {}
        self._certificate: tuple[float, dict[str, Any]] | None = None
        self._open: Counter[str] = Counter()
        self.last = time.monotonic()

    async def idle(self) -> None:
        """Return when nobody has asked for `IDLE` seconds."""
        left = IDLE
        while left > 0:
            await asyncio.sleep(left)
            left = self.last + IDLE - time.monotonic()

    async def answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell one client what it may know, and close."""
        self.last = time.monotonic()
        try:
            user = self._user(writer.get_extra_info("socket"))
            if user is None or self._open[user] >= AT_ONCE:
                return
            self._open[user] += 1
            try:
                async with asyncio.timeout(_SEND_TIMEOUT):
                    writer.write(json.dumps(await self.collect(user)).encode())
                    await writer.drain()
            finally:
                self._open[user] -= 1
        except (OSError, TimeoutError):
            pass  # it is gone, or does not read
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _user(self, connection: Any) -> str | None:
        try:
            name = pwd.getpwuid(peer.uid_of(connection)).pw_name
        except KeyError:
            return None
        return name if name in self._box.users else None

    async def collect(self, user: str) -> dict[str, Any]:
        """Return what `user` may know, at most `FRESH` seconds old."""
        async with self._lock:
            now = time.monotonic()
            known = self._units.get(user)
            if known is None or now - known[0] > FRESH:
                known = self._units[user] = (now, await units.states(units.names_for(user)))
            return {"units": known[1], "certificate": await self._certificate_state(now)}

    async def _certificate_state(self, now: float) -> dict[str, Any] | None:
        if self._box.web is None:
            return None
        if self._certificate is None or now - self._certificate[0] > CERTIFICATE_FRESH:
            state = await asyncio.to_thread(certificate.state_of, self._box.web.domain)
            if state is None:
                return None
            self._certificate = (now, state)
        return self._certificate[1]


async def serve(box: Box, listener: socket.socket) -> None:
    """Answer on a socket until nobody has asked for `IDLE` seconds."""
    status = Status(box)
    async with await asyncio.start_unix_server(status.answer, sock=listener, limit=1):
        await status.idle()


def main() -> None:
    """Serve on the socket that systemd passed."""
    try:
        listener = next(iter(activated().values()), None)
        if listener is None:
            raise InternalError(
                "no socket was passed: this service is started by agent-box-status.socket"
            )
        asyncio.run(serve(config.load(), listener))
    except AgentBoxError as error:
        print(f"agent-box-status: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
