"""Feeds the plugin processes of sessions: one lasting connection each, in order, at its own pace.

A plugin process listens on `instances/KEY.PID.sock` and filters for itself. Where it is in the
spool is remembered, so nothing queues up in memory for one that is slow or stopped, and none of
the others notices. A socket file is removed only when its process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box.subscriptions.listing import alive, peer_name

if TYPE_CHECKING:
    from agent_box.webhook.spool import Spool

log = logging.getLogger(__name__)

SLICE = 64 * 1024
"""Bytes given to a connection at once."""

CACHE = 8 * 1024 * 1024
"""Bytes of envelopes kept for the next peer that wants the same."""

MAX_LAG = 10_000
"""Deliveries that a peer may be behind before it loses the oldest."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
FLUSH = 0.005
"""Seconds after which it is written down how far peers are."""


class Lines:
    """Envelopes by number, the latest ones in memory."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0

    def get(self, number: int) -> bytes | None:
        """Return the envelope; None when the spool let go of it."""
        line = self._kept.get(number)
        if line is not None:
            return line
        line = self._spool.line(number)
        if line is not None:
            self._kept[number] = line
            self._size += len(line)
            while self._size > CACHE and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1])
        return line


class Peers:
    """All plugin processes of one user."""

    def __init__(self, directory: Path, spool: Spool) -> None:
        self.directory = directory / "instances"
        self.spool = spool
        self.lines = Lines(spool)
        self.newest = spool.newest()
        """The last delivery, as of the last `wake`."""
        self._known: dict[str, Peer] = {}
        self._dirty: dict[str, int] = {}
        self._gone: list[str] = []
        self._flushing: asyncio.TimerHandle | None = None

    def scan(self, before: int) -> None:
        """Look who is there; whoever is new gets what comes after delivery `before`."""
        found: dict[str, Path] = {}
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                parsed = peer_name(entry.name)
                if parsed is None:
                    continue
                path = Path(entry.path)
                if not alive(parsed[1]):
                    log.info("removed the socket of a session that ended: %s", entry.name)
                    path.unlink(missing_ok=True)
                    continue
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    # A later process of the same number is another peer.
                    found[f"{entry.name}:{status.st_ino}:{status.st_ctime_ns}"] = path
        for ident in [ident for ident in self._known if ident not in found]:
            self._known.pop(ident).stop()
            self._forget(ident)
        for ident, path in found.items():
            if ident not in self._known:
                cursor = self.spool.cursor(ident)
                start = before if cursor is None else cursor
                self._known[ident] = Peer(self, ident, path, start)
                self.moved(ident, start)

    def forget_old(self) -> None:
        """Drop the marks of peers that went while nobody looked; call it after the first scan."""
        self._gone += [ident for ident in self.spool.peers() if ident not in self._known]
        self.flush()

    def wake(self) -> None:
        """Tell everybody that there is something new."""
        self.newest = self.spool.newest()
        for peer in self._known.values():
            peer.wake()

    def keys(self) -> set[str]:
        """Return the keys of the sessions whose plugin is there."""
        names = (peer_name(peer.path.name) for peer in self._known.values())
        return {parsed[0] for parsed in names if parsed is not None and parsed[0]}

    def lags(self) -> dict[str, int]:
        """Return how many deliveries each peer is behind."""
        newest = self.spool.newest()
        return {peer.path.name: newest - peer.cursor for peer in self._known.values()}

    def moved(self, ident: str, cursor: int) -> None:
        """Note how far a peer is, and write it down soon."""
        self._dirty[ident] = cursor
        self._schedule()

    def _forget(self, ident: str) -> None:
        self._dirty.pop(ident, None)
        self._gone.append(ident)
        self._schedule()

    def _schedule(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(FLUSH, self.flush)

    def flush(self) -> None:
        """Write down how far peers are."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._dirty or self._gone:
            try:
                self.spool.advance(self._dirty, self._gone)
            except sqlite3.Error as error:  # the next ones try again
                log.error("it cannot be written down how far plugins are: %s", error)
                return
            self._dirty, self._gone = {}, []

    async def close(self) -> None:
        """Hang up."""
        peers = list(self._known.values())
        self._known = {}
        for peer in peers:
            peer.stop()
        if peers:
            await asyncio.wait({peer.task for peer in peers})
        self.flush()


class Peer:
    """One plugin process and how far it is."""

    def __init__(self, peers: Peers, ident: str, path: Path, cursor: int) -> None:
        self._peers = peers
        self.ident = ident
        self.path = path
        self.cursor = cursor
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        """Look whether there is more."""
        self._news.set()

    def stop(self) -> None:
        """Hang up."""
        self.task.cancel()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            # Connected when there is something to say: a queue of connections is short.
            await self._wait()
            try:
                reader, writer = await asyncio.open_unix_connection(str(self.path))
            except OSError as error:
                parsed = peer_name(self.path.name)
                if parsed is not None and not alive(parsed[1]):
                    return
                if pause == FIRST_PAUSE:
                    log.info("peer %s takes no connection yet: %s", self.path.name, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            hung_up = asyncio.ensure_future(reader.read(1))
            try:
                while not hung_up.done():
                    await self._feed(writer)
                    await self._wait(hung_up)
            except OSError as error:
                log.info("peer %s hung up: %s", self.path.name, error)
            finally:
                hung_up.cancel()
                writer.transport.abort() if writer.is_closing() else writer.close()
            await asyncio.sleep(FIRST_PAUSE)

    async def _wait(self, hung_up: asyncio.Future[bytes] | None = None) -> None:
        """Wait until there is something new for this peer."""
        while self.cursor >= self._peers.newest:
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            waits: set[asyncio.Future[Any]] = {news}
            if hung_up is not None:
                waits.add(hung_up)
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
            if hung_up is not None and hung_up.done():
                return

    async def _feed(self, writer: asyncio.StreamWriter) -> None:
        spool = self._peers.spool
        behind = self._peers.newest - self.cursor
        if behind > MAX_LAG:
            skip = behind - MAX_LAG
            log.warning("peer %s is stuck: it loses %d deliveries", self.path.name, skip)
            self._advance(self.cursor + skip)
        while self.cursor < self._peers.newest:
            numbers = spool.following(self.cursor)
            if not numbers:  # the spool let go of them
                self._advance(self._peers.newest)
                return
            together: list[bytes] = []
            size = 0
            for number in numbers:
                line = self._peers.lines.get(number) or b""
                together.append(line)
                size += len(line)
                # One that is behind gets many at once.
                if size >= SLICE or number == numbers[-1]:
                    await _write(writer, b"".join(together) if len(together) > 1 else line)
                    self._advance(number)
                    together, size = [], 0

    def _advance(self, number: int) -> None:
        self.cursor = number
        self._peers.moved(self.ident, number)


async def _write(writer: asyncio.StreamWriter, line: bytes) -> None:
    """Write a line in slices, so that hardly any of it is held twice."""
    if len(line) <= SLICE:
        writer.write(line)
        await writer.drain()
        return
    view = memoryview(line)
    for start in range(0, len(line), SLICE):
        writer.write(view[start : start + SLICE])
        await writer.drain()
