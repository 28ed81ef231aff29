"""Connections taken in turns: so many at a time, all others wait in the queue of the socket.

Whoever waits there costs the service nothing, is refused nothing, and keeps nobody on another
socket of the same service from being answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_PAUSE = 0.1
"""Seconds until the next try where the system has no room for another connection."""


class InTurn(Protocol):
    """A protocol that says when its connection has ended."""

    ended: Callable[[], None] | None


class Turns:
    """Takes connections from a listening socket while fewer than `room` are open."""

    def __init__(
        self, sock: socket.socket, room: int, make: Callable[[], asyncio.Protocol]
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._room = asyncio.Semaphore(room)
        self._make = make
        self._task = asyncio.ensure_future(self._accept())

    def close(self) -> None:
        """Take no more; those that are open stay."""
        self._task.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, _ = await loop.sock_accept(self._sock)
            except OSError:  # gone again, or no descriptors left
                self._room.release()
                await asyncio.sleep(_PAUSE)
                continue
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(self._one, connection)

    def _one(self) -> asyncio.Protocol:
        protocol = self._make()
        protocol.ended = self._room.release  # type: ignore[attr-defined]
        return protocol
