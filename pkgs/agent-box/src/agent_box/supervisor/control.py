"""The control socket: newline-delimited JSON over a UNIX stream socket.

Only the user and root may speak to it: the directory is the user's alone, and the peer's
uid is checked besides. How much of it each of them may have is told in `callers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import select
from typing import TYPE_CHECKING, Any

from agent_box.errors import AgentBoxError, ConflictError
from agent_box.supervisor import callers
from agent_box.supervisor.callers import FREE, Shares

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from agent_box.supervisor.callers import Caller
    from agent_box.supervisor.operations import Operations
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

MAX_LINE = 32 * 1024 * 1024
"""Bytes in one request; a prompt is at most a few of them."""

MAX_VALUES = 20_000
"""Values in a large request: as objects, more than that would take many times its bytes."""

MAX_QUEUE = 10_000
"""Events that a subscriber may lag behind before it is cut off and has to subscribe again."""

PATIENCE = 30.0
"""Seconds in which a large request has to arrive, and an answer to be taken."""

TAKEN = 10.0
"""Seconds in which a large answer has to be taken: others wait for theirs."""

AGAIN = 2.0
"""Seconds between two attempts to listen, and between two looks whether a client is there."""

_LARGE_ANSWERS = ("logs",)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class Control:
    """Serves the operations of one supervisor."""

    def __init__(self, supervisor: Supervisor, operations: Operations) -> None:
        self.supervisor = supervisor
        self.operations = operations
        self._server: asyncio.Server | None = None
        self._trying: asyncio.Task[None] | None = None
        self._shares = Shares()

    async def start(self) -> None:
        """Listen on the user's control socket, in place of a predecessor's.

        Where that is not possible, for the directory is full, sessions are cared for all the same
        and it is tried again.
        """
        if not await self._listen():
            self._trying = asyncio.create_task(self._keep_trying())

    async def _keep_trying(self) -> None:
        await asyncio.sleep(AGAIN)
        while not await self._listen():  # noqa: ASYNC110 - nobody tells when there is room
            await asyncio.sleep(AGAIN)

    async def _listen(self) -> bool:
        path = self.supervisor.user.control_path
        temporary = path.with_suffix(".new")
        try:
            temporary.unlink(missing_ok=True)
            try:
                self._server = await asyncio.start_unix_server(
                    self._serve, path=str(temporary), limit=FREE
                )
            except OSError:
                # That of a predecessor takes the room that ours needs, and leads nowhere.
                path.unlink(missing_ok=True)
                self._server = await asyncio.start_unix_server(
                    self._serve, path=str(temporary), limit=FREE
                )
            temporary.chmod(0o600)
            # Renamed into place, so that there is no moment without a socket to connect to.
            temporary.replace(path)
        except OSError as error:
            if self._trying is None:
                log.error("nobody can speak to the supervisor: %s: %s", path, error.strerror)
            return False
        return True

    async def stop(self) -> None:
        """Stop listening; the socket stays for the successor to replace."""
        if self._trying is not None:
            self._trying.cancel()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer: socket.socket = writer.get_extra_info("socket")
            supervisor = self.supervisor
            caller = callers.caller_of(peer, supervisor.user.name, supervisor.wanted())
            if caller is None:
                return
            with self._shares.connection(caller) as refusal:
                if refusal is None:
                    await self._converse(reader, writer, caller)
                    return
                with contextlib.suppress(asyncio.LimitOverrunError, asyncio.IncompleteReadError):
                    # A client that is hung up on while it speaks does not hear why.
                    async with asyncio.timeout(AGAIN):
                        await reader.readuntil(b"\n")
                await _send(writer, _refusal("conflict", refusal))
        except ValueError:
            with contextlib.suppress(OSError):
                await _send(writer, _refusal("usage", f"a request is at most {MAX_LINE} bytes"))
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller
    ) -> None:
        going = True
        while going:
            line, held, refusal = bytearray(), 0, None
            try:
                async for part in _parts(reader):
                    if refusal is not None:
                        continue  # read to its end, so that its sender hears the answer
                    line += part
                    if (more := len(line) - FREE - held) > 0:
                        try:
                            self._shares.take(caller, more, MAX_LINE)
                        except ConflictError as error:
                            refusal = _refusal(error.code, str(error))
                            line.clear()
                        else:
                            held += more
                if refusal is not None:
                    await _send(writer, refusal)
                elif line:
                    going = await self._turn(reader, writer, caller, bytes(line))
                else:
                    going = False
            finally:
                self._shares.give(caller, held)

    async def _turn(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        caller: Caller,
        line: bytes,
    ) -> bool:
        """Answer one request; return whether there may be another one."""
        if len(line) <= FREE:
            request = _parse(line)
        else:
            async with self._shares.large(caller):
                request = await asyncio.to_thread(_parse, line)
        if request.get("op") == "subscribe":
            await self._subscribe(reader, writer)
            return False
        if request.get("op") in _LARGE_ANSWERS:
            async with self._shares.large(caller):
                await _send(writer, await self._answer(request, writer), TAKEN)
        else:
            await _send(writer, await self._answer(request, writer))
        return True

    async def _answer(
        self, request: dict[str, Any], writer: asyncio.StreamWriter
    ) -> dict[str, Any]:
        args = request.get("args")
        args = {} if args is None else args
        op = request.get("op")
        if not isinstance(op, str) or not isinstance(args, dict):
            return _refusal("usage", 'a request is {"op": …, "args": {…}} on one line')
        # A request is carried out whole even if its sender goes away (`rm` of one's own session).
        task = asyncio.ensure_future(self.operations.call(op, args))
        if op == "wait":
            await _while_there(writer, task)
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


async def _parts(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the next line in pieces; ValueError when it is too long, TimeoutError when too slow."""
    length, deadline = 0, None
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                yield await reader.readuntil(b"\n")
            return
        except asyncio.IncompleteReadError as error:
            yield error.partial
            return
        except asyncio.LimitOverrunError as error:
            length += error.consumed
            if length > MAX_LINE:
                raise ValueError from None
            if deadline is None:
                deadline = asyncio.get_running_loop().time() + PATIENCE
            yield await reader.readexactly(error.consumed)


async def _while_there(writer: asyncio.StreamWriter, task: asyncio.Future[Any]) -> None:
    """Wait for what changes nothing, and end it when nobody is there any more to hear of it."""
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), 0)
    while not task.done():
        await asyncio.wait({task}, timeout=AGAIN)
        if not task.done() and poll.poll(0):
            task.cancel()
            raise ConnectionAbortedError


def _parse(line: bytes) -> dict[str, Any]:
    if len(line) > FREE:
        # What is no text: a prompt may hold as many commas as it likes.
        rest = _STRING.sub(b'""', line)
        if sum(map(rest.count, (b",", b"[", b"{"))) > MAX_VALUES:
            return {}
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def _refusal(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


async def _send(
    writer: asyncio.StreamWriter, message: dict[str, Any], patience: float = PATIENCE
) -> None:
    writer.write(json.dumps(message, ensure_ascii=True).encode() + b"\n")
    try:
        async with asyncio.timeout(patience):
            await writer.drain()
    except TimeoutError:
        # What is not taken would be kept for ever.
        writer.transport.abort()
        raise
