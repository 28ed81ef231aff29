"""`/U/events`: the state of the user's box, pushed to every open page the moment it changes.

One subscription at the supervisor feeds all streams of the process, and lasts only while somebody
watches. A stream begins with a snapshot and goes on with changes; one that falls behind, or
reconnects with an id that is still remembered, misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from agent_box.errors import AgentBoxError
from agent_box.web import assets
from agent_box.web.answers import sentence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from agent_box.link import Link
    from agent_box.web.order import Order

QUEUE = 256
"""Events that a stream may lag behind before it gets a snapshot instead."""

KEPT = 256
"""Events remembered for streams that reconnect."""

KEEP_ALIVE = 15.0
"""Seconds after which a quiet stream tells that it is alive."""

LINGER = 5.0
"""Seconds that the subscription outlives the last stream, for a page that is being reloaded."""

RETRY_FIRST = 0.1
RETRY_LAST = 2.0
"""Seconds between two attempts to subscribe again, growing from the first to the last."""

MAX_STREAMS = 200


class Feed:
    """What is known of the sessions, and who wants to hear of changes."""

    def __init__(self, link: Link, order: Order) -> None:
        self._link = link
        self._order = order
        self._sessions: dict[str, dict[str, Any]] = {}
        self._problems: list[str] = []
        self._state, self._message = "unknown", ""
        self._epoch = os.urandom(6).hex()
        self._number = 0
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._leave: asyncio.TimerHandle | None = None
        self._known = asyncio.Event()
        self._watchers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._watching: list[asyncio.Task[None]] = []

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    def watch(self, watcher: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `watcher` for as long as somebody watches; it calls `publish`."""
        self._watchers.append(watcher)

    async def stream(
        self, last_id: str | None, allowed: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of one event stream, for as long as it is read and `allowed`.

        `last_id` is what a reconnecting browser saw last.
        """
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE)
        self._enter(queue)
        try:
            yield b"retry: 1000\n\n"
            # A first stream waits a moment for the supervisor rather than show nothing.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._known.wait()
            missed = self._missed(last_id)
            _drain(queue)
            for known in [self._snapshot()] if missed is None else missed:
                yield known
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE):
                        part = await queue.get()
                except TimeoutError:
                    # An event, since pages do not see comments: silence tells them that the
                    # connection is lost, which a network that just drops packets does not.
                    part = b"event: alive\ndata: 1\n\n"
                if not allowed():
                    return
                if part is None:  # it fell behind
                    _drain(queue)
                    part = self._snapshot()
                yield part
        finally:
            self._quit(queue)

    def publish(self, event: str, content: Any) -> None:
        """Tell every stream."""
        self._number += 1
        part = self._encode(event, content)
        self._recent.append((self._number, part))
        for queue in self._streams:
            if queue.full():
                _drain(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(part)

    def publish_order(self) -> None:
        """Tell every stream the order of the tabs."""
        self.publish("order", {"order": self._order.names()})

    async def close(self) -> None:
        """Stop listening to the supervisor."""
        self._stop()

    # Streams ---------------------------------------------------------------

    def _enter(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._streams.add(queue)
        if self._leave is not None:
            self._leave.cancel()
            self._leave = None
        if self._task is None or self._task.done():
            self._known.clear()
            self._task = asyncio.create_task(self._follow())
            self._watching = [asyncio.create_task(watcher()) for watcher in self._watchers]

    def _quit(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._streams.discard(queue)
        if not self._streams and self._leave is None:
            self._leave = asyncio.get_running_loop().call_later(LINGER, self._stop)

    def _stop(self) -> None:
        self._leave = None
        for task in (self._task, *self._watching):
            if task is not None:
                task.cancel()
        self._task, self._watching = None, []
        # Nobody listens from here on, so what is remembered has a gap.
        self._epoch = os.urandom(6).hex()
        self._recent.clear()

    def _missed(self, last_id: str | None) -> list[bytes] | None:
        """Return the events after `last_id`, or None when they are not remembered."""
        epoch, _, number = (last_id or "").rpartition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()):
            return None
        last = int(number)
        oldest = self._recent[0][0] if self._recent else self._number + 1
        if last > self._number or last < oldest - 1:
            return None
        return [part for at, part in self._recent if at > last]

    def _snapshot(self) -> bytes:
        return self._encode("snapshot", self.state())

    def state(self) -> dict[str, Any]:
        """Return everything that a page shows of the sessions."""
        return {
            "sessions": list(self._sessions.values()),
            "problems": self._problems,
            "order": self._order.names(),
            "supervisor": {"state": self._state, "message": self._message},
            "version": assets.version(),
        }

    def _encode(self, event: str, content: Any) -> bytes:
        body = msgspec.json.encode(content)
        head = f"id: {self._epoch}-{self._number}\nevent: {event}\ndata: ".encode()
        return b"".join((head, body, b"\n\n"))

    # The supervisor --------------------------------------------------------

    async def _follow(self) -> None:
        """Stay subscribed, whatever happens to the supervisor."""
        pause = RETRY_FIRST
        while True:
            try:
                async for event in self._link.subscribe():
                    pause = RETRY_FIRST
                    self._take(event)
            except (AgentBoxError, OSError, ValueError) as error:
                self._lost(str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_LAST)

    def _lost(self, message: str) -> None:
        message = sentence(message)
        if self._state != "down":
            self._state, self._message = "down", message
            self.publish("problem", {"state": "down", "message": message})
        self._known.set()

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind is None:
            self._sessions = {view["name"]: view for view in event["sessions"]}
            self._problems = event.get("problems", [])
            self._state, self._message = "up", ""
            self.publish("snapshot", self.state())
            self._known.set()
        elif kind == "session":
            view = event["session"]
            self._sessions[view["name"]] = view
            self.publish("session", view)
        elif kind == "removed":
            self._sessions.pop(event["name"], None)
            self.publish("removed", {"name": event["name"]})
        elif kind == "problems":
            self._problems = event["problems"]
            self.publish("problems", {"problems": self._problems})


def _drain(queue: asyncio.Queue[bytes | None]) -> None:
    while not queue.empty():
        queue.get_nowait()
