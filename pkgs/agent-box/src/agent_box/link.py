"""The supervisor's control socket from inside an event loop."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from agent_box import peer
from agent_box.control_client import MAX_LINE, SupervisorDown, SupervisorGone, SupervisorSilent
from agent_box.errors import InternalError, from_code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agent_box.config import User

QUICK = 3.0
"""Seconds that an operation which only looks may take."""

SLOW = 40.0
"""Seconds that any other operation may take; the supervisor itself gives up after 20."""

PATIENCE = 6.0
"""Seconds from when a supervisor was first missed for which calls wait for it: its service manager
starts it again within 3. Later calls fail at once."""

_QUICK_OPS = frozenset({"ls", "show", "status", "logs"})
_PAUSE = 0.05  # seconds between two looks for a supervisor that starts again


class Link:
    """Asks the supervisor of one user. A connection per call: they are local and cheap."""

    def __init__(self, user: User) -> None:
        self._path = user.control_path
        self._user = user.name
        self._missed = self._missed_last = float("-inf")
        """When calls began to miss the supervisor, and when one did last."""

    async def call(self, op: str, **args: Any) -> Any:
        """Run operation `op` and return its result.

        Waits for a supervisor that restarts. Raises what the supervisor answers, and
        SupervisorDown, SupervisorSilent and SupervisorGone as the synchronous client does.
        """
        try:
            return await self._call(op, args)
        except SupervisorGone:
            if op not in _QUICK_OPS:
                raise
            return await self._call(op, args)  # which changes nothing, so it may be asked again

    async def _call(self, op: str, args: dict[str, Any]) -> Any:
        seconds = QUICK if op in _QUICK_OPS else SLOW
        try:
            reader, writer = await self._arrival()
            try:
                async with asyncio.timeout(seconds):
                    return await self._ask(reader, writer, op, args)
            finally:
                writer.close()
        except TimeoutError:
            raise SupervisorSilent(
                f"the supervisor of {self._user} does not answer (waited {seconds:g} s);"
                f" {self._diagnose()}"
            ) from None

    async def subscribe(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the present state, `{"sessions": […], "problems": […]}`, then every event.

        Ends with SupervisorGone when the supervisor hangs up.
        """
        reader, writer = await self._open()
        try:
            try:
                async with asyncio.timeout(QUICK):
                    first = await self._ask(reader, writer, "subscribe", {})
            except TimeoutError:
                raise SupervisorSilent(
                    f"the supervisor of {self._user} does not answer; {self._diagnose()}"
                ) from None
            yield first
            while line := await _line(reader):
                yield json.loads(line)
            raise SupervisorGone(self._down())
        finally:
            writer.close()

    async def _arrival(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect; where nobody listens, wait for a supervisor that starts again."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(QUICK):
                    return await self._open()
            except SupervisorDown:
                now = loop.time()
                if now - self._missed_last > PATIENCE:
                    self._missed = now  # it was there in between, for all that is known
                self._missed_last = now
                if now - self._missed > PATIENCE:
                    raise
            await asyncio.sleep(_PAUSE)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._path), limit=MAX_LINE)
            if peer.uid_of(writer.get_extra_info("socket")) != os.geteuid():
                writer.close()
                raise InternalError(f"a process of another user listens on {self._path}")
            self._missed_last = float("-inf")
            return reader, writer
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
            raise SupervisorDown(self._down()) from error
        except OSError as error:
            raise InternalError(f"cannot talk to {self._path}: {error.strerror}") from error

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        op: str,
        args: dict[str, Any],
    ) -> Any:
        try:
            writer.write(json.dumps({"op": op, "args": args}).encode() + b"\n")
            await writer.drain()
            line = await _line(reader)
        except ConnectionError as error:
            raise self._gone() from error
        if not line:
            raise self._gone()
        try:
            answer = json.loads(line)
            if answer["ok"]:
                return answer["result"]
            code, message = answer["error"]["code"], answer["error"]["message"]
        except (ValueError, TypeError, KeyError) as error:
            raise InternalError(
                f"the supervisor's answer makes no sense; {self._diagnose()}"
            ) from error
        raise from_code(str(code), str(message))

    def _down(self) -> str:
        return (
            f"the supervisor of {self._user} is not running; systemd starts it again by itself,"
            f" your sessions go on meanwhile. If this stays: {self._diagnose()}"
        )

    def _gone(self) -> SupervisorGone:
        return SupervisorGone(
            f"the supervisor of {self._user} went away during the request; it comes back by"
            f" itself, look whether it was done. If this stays: {self._diagnose()}"
        )

    def _diagnose(self) -> str:
        return f"systemctl status agent-box-supervisor-{self._user}"


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ConnectionError:
        return b""
    except ValueError as error:  # longer than the limit
        raise InternalError("the supervisor sent an overlong line") from error
