"""`agent-box-site-port`: what a user's program on a port has to do with the edge.

It runs as the user, in the network that the user's programs run in, on a socket of systemd. For
each connection of the edge it dials the port of this very moment. Where users share the network of
the machine, it first makes sure that the program behind the port is the user's own.

Nothing is imported that is not needed: there is one of it for every port that is visited.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
import time
from pathlib import Path

from agent_box.activation import activated
from agent_box.sites import listeners

IDLE = 60.0
"""Seconds without a connection after which it ends; systemd keeps the socket."""

MOST = 512
"""Connections at once; more wait."""

_CHUNK = 64 * 1024
_DIAL = 5.0
_SAY_AGAIN = 10.0


class RefusedError(Exception):
    """The port is not to be dialled; the message says why."""


class Forwarder:
    """Carries bytes between connections of the edge and a port."""

    def __init__(self, listening: socket.socket, port: int, owner: int | None) -> None:
        listening.setblocking(False)
        self._listening, self._port = listening, port
        self._owner = owner
        """Whose the program has to be; `None` in a network that is the user's alone."""
        self._open: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MOST)
        self._said = -_SAY_AGAIN

    async def run(self) -> None:
        """Serve until nobody has connected for a while."""
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                async with asyncio.timeout(IDLE):
                    connection, _ = await loop.sock_accept(self._listening)
            except TimeoutError:
                self._room.release()
                if not self._open:
                    return
                continue
            task = asyncio.create_task(self._forward(connection))
            self._open.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"a connection failed: {error!r}", file=sys.stderr)

    async def _forward(self, edge: socket.socket) -> None:
        edge.setblocking(False)
        with edge:
            try:
                program = await self._dial()
            except (RefusedError, OSError) as error:
                self._say(f"port {self._port}: {error}")
                return
            with program, contextlib.suppress(OSError, ExceptionGroup):
                async with asyncio.TaskGroup() as both:
                    both.create_task(_carry(edge, program))
                    both.create_task(_carry(program, edge))

    def _say(self, text: str) -> None:
        if time.monotonic() - self._said >= _SAY_AGAIN:
            self._said = time.monotonic()
            print(text, file=sys.stderr)

    async def _dial(self) -> socket.socket:
        """Return a connection to the program."""
        last: Exception = RefusedError("nothing listens there")
        for address in self._addresses():
            try:
                return await self._connect(address)
            except (RefusedError, OSError) as error:
                last = error
        raise last

    def _addresses(self) -> list[str]:
        if self._owner is None:
            return ["127.0.0.1", "::1"]
        found = listeners.reached(self._port, listeners.listeners())
        own = [address for address, each in found.items() if each.uid == self._owner]
        if found and not own:
            raise RefusedError("the program that listens there is another user's")
        return own

    def _make_sure(self, program: socket.socket) -> None:
        """Raise unless it is the user's: another one may have taken the port meanwhile."""
        if self._owner is not None and not listeners.is_with(program, self._owner):
            raise RefusedError("the program that listens there is another user's")

    async def _connect(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        program = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            program.setblocking(False)
            async with asyncio.timeout(_DIAL):
                await asyncio.get_running_loop().sock_connect(program, (address, self._port))
            program.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._make_sure(program)
        except BaseException:
            program.close()
            raise
        return program


async def _carry(source: socket.socket, sink: socket.socket) -> None:
    """Carry what one says to the other until it has no more to say."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        await loop.sock_sendall(sink, data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def main(argv: list[str] | None = None) -> None:
    """Serve the socket of one port."""
    parser = argparse.ArgumentParser(prog="agent-box-site-port")
    parser.add_argument("port", type=int)
    parser.add_argument("--network", type=Path, help="the network namespace it has to run in")
    arguments = parser.parse_args(argv)
    owner: int | None = os.getuid()
    if arguments.network is not None:
        # A unit may have been given another network than it says.
        if not listeners.is_here(arguments.network):
            sys.exit(f"agent-box-site-port: this is not the network {arguments.network}")
        owner = None
    sockets = list(activated().values())
    if len(sockets) != 1:
        sys.exit("agent-box-site-port: it is started by its .socket unit, with one socket")
    asyncio.run(Forwarder(sockets[0], arguments.port, owner).run())
