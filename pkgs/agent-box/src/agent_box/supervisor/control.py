"""The control socket: newline-delimited JSON over a UNIX stream socket.

Only the user and root may speak to it: the directory is the user's alone, and the peer's
uid is checked besides.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from agent_box.errors import AgentBoxError

if TYPE_CHECKING:
    from agent_box.supervisor.operations import Operations
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

MAX_LINE = 32 * 1024 * 1024
"""Bytes in one request; a prompt is at most a few of them."""

MAX_QUEUE = 10_000
"""Events that a subscriber may lag behind before it is cut off and has to subscribe again."""


class Control:
    """Serves the operations of one supervisor."""

    def __init__(self, supervisor: Supervisor, operations: Operations) -> None:
        self.supervisor = supervisor
        self.operations = operations
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on the user's control socket, in place of a predecessor's."""
        path = self.supervisor.user.control_path
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(
            self._serve, path=str(temporary), limit=MAX_LINE
        )
        temporary.chmod(0o600)
        # Renamed into place, so that there is no moment without a socket to connect to.
        temporary.replace(path)

    async def stop(self) -> None:
        """Stop listening; the socket stays for the successor to replace."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not _trusted(writer):
                return
            while line := await reader.readline():
                request = _parse(line)
                if request.get("op") == "subscribe":
                    await self._subscribe(reader, writer)
                    return
                await _send(writer, await self._answer(request))
        except ValueError:
            with contextlib.suppress(OSError):
                await _send(writer, _refusal("usage", f"a request is at most {MAX_LINE} bytes"))
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        args = request.get("args")
        args = {} if args is None else args
        op = request.get("op")
        if not isinstance(op, str) or not isinstance(args, dict):
            return _refusal("usage", 'a request is {"op": …, "args": {…}} on one line')
        # A request is carried out whole even if its sender goes away (`rm` of one's own session).
        task = asyncio.ensure_future(self.operations.call(op, args))
        try:
            return {"ok": True, "result": await asyncio.shield(task)}
        except AgentBoxError as error:
            return _refusal(error.code, str(error))
        except Exception as error:  # the client must hear of every failure
            log.exception("operation %s", op)
            return _refusal("internal", f"{type(error).__name__}: {error}")

    async def _subscribe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listing = await self.operations.ls({})
        queue = self.supervisor.announcer.subscribe(MAX_QUEUE)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await _send(writer, {"ok": True, "result": listing})
            while not gone.done():
                event = asyncio.ensure_future(queue.get())
                await asyncio.wait({event, gone}, return_when=asyncio.FIRST_COMPLETED)
                if event.done():
                    await _send(writer, event.result())
                else:
                    event.cancel()
                if queue.full():
                    return
        finally:
            gone.cancel()
            self.supervisor.announcer.unsubscribe(queue)


def _trusted(writer: asyncio.StreamWriter) -> bool:
    sock: socket.socket = writer.get_extra_info("socket")
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid = struct.unpack("3i", data)[1]
    return uid in (0, os.getuid())


def _parse(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def _refusal(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


async def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message, ensure_ascii=True).encode() + b"\n")
    await writer.drain()
