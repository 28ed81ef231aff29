"""The spool: every delivery that was accepted, on the disk before its sender hears so.

One SQLite database per user. What follows from a delivery is written in the same transaction as
the mark that it was dealt with, so that a receiver that is killed at any moment neither forgets
nor repeats anything. Peers are fed from here, each at its own pace, by a cursor.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box.webhook import database, room

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

KEEP_DAYS = 7.0
"""Older deliveries are removed; for how many there is room tells `room`."""

_COLUMNS = "id, at, source, event, key, sender, delivery, size, routed, copies, result"


@dataclass(frozen=True)
class Delivery:
    """What the spool tells about a delivery, without its content."""

    id: int
    at: float
    """Unix time of its arrival."""
    source: str
    event: str
    key: str
    sender: str
    delivery: str
    size: int
    routed: int
    copies: int
    """How often the same came again."""
    result: str
    """What became of it, in words."""


@dataclass(frozen=True)
class Arrival:
    """A delivery on its way into the spool."""

    source: str
    event: str
    key: str
    sender: str
    delivery: str
    size: int
    line: bytes
    """The envelope as peers get it."""
    digest: bytes
    """Of what was signed."""
    replay_seconds: float
    senders: int = 1
    """How many senders the user has, who share the room."""


@dataclass(frozen=True)
class Item:
    """A text that waits for a session (`outgoing`) or for a new one (`pending`)."""

    id: int
    at: float
    delivery: int
    text: str
    topic: str = ""
    note: str = ""


class Spool:
    """The database of one user. Use it in one thread."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.path = directory / "spool.db"
        if read_only:
            self._db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)
            return
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._db = database.opened(self.path)
        with self.transaction():
            room.prepare(self._db)
        if not database.shrinks(self._db):
            self._rewrite()

    def _rewrite(self) -> None:
        """Let a file of before shrink, of which there may be much more than there is room for."""
        try:
            self.expire(time.time())
            database.rewrite(self._db)
        except sqlite3.Error as error:  # no room for a second copy, say, or somebody reads it
            log.info("%s stays as large as it is, until the next start: %s", self.path, error)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _sync(self, *, durable: bool) -> None:
        database.sync(self._db, durable=durable)

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Do everything inside or nothing; `durable` brings it to the disk as well."""
        if durable:
            self._sync(durable=True)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        finally:
            if durable:
                self._sync(durable=False)

    # Accepting -------------------------------------------------------------

    def accept(self, arrivals: Sequence[Arrival]) -> list[int | room.FullError | None]:
        """Store deliveries durably, in order; return their ids, None for repetitions.

        In place of the id of one for which there is no room stands the error that says so.
        """
        now = time.time()
        with self.transaction(durable=True):
            return [self._accept(arrival, now) for arrival in arrivals]

    def _accept(self, arrival: Arrival, now: float) -> int | room.FullError | None:
        known = self._db.execute(
            "SELECT at, id FROM seen WHERE source = ? AND digest = ?",
            (arrival.source, arrival.digest),
        ).fetchone()
        if known is not None and now - known[0] <= arrival.replay_seconds:
            self._db.execute("UPDATE deliveries SET copies = copies + 1 WHERE id = ?", (known[1],))
            return None
        try:
            room.make(self._db, arrival.source, room.weight(arrival.line), arrival.senders)
        except room.FullError as error:
            return error
        cursor = self._db.execute(
            "INSERT INTO deliveries (at, source, event, key, sender, delivery, size, line)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(now, arrival.source, arrival.event, arrival.key, arrival.sender),
                *(arrival.delivery, arrival.size, arrival.line),
            ),
        )
        self._db.execute(
            "INSERT INTO seen VALUES (?, ?, ?, ?) ON CONFLICT (source, digest)"
            " DO UPDATE SET at = excluded.at, id = excluded.id",
            (arrival.source, arrival.digest, now, cursor.lastrowid),
        )
        room.forget_digests(self._db, arrival.source)
        return cursor.lastrowid

    def again(self, number: int) -> int | None:
        """Store a copy of delivery `number`, to be delivered anew; None when it is gone.

        FullError when there is no room for it.
        """
        with self.transaction(durable=True):
            found, line = self.find(number), self.line(number)
            if found is not None and line is not None:
                room.make(self._db, found.source, room.weight(line), 1)
            cursor = self._db.execute(
                "INSERT INTO deliveries (at, source, event, key, sender, delivery, size, line,"
                " result) SELECT ?, source, event, key, sender, delivery, size, line, ?"
                " FROM deliveries WHERE id = ?",
                (time.time(), f"again {number}", number),
            )
            return cursor.lastrowid if cursor.rowcount else None

    # Reading ---------------------------------------------------------------

    def empty(self) -> bool:
        """Tell whether there is nothing that anybody could want to look at, or look after."""
        tables = ("deliveries", "outgoing", "pending", "spawns")
        return not any(
            self._db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608
            for table in tables
        )

    def newest(self) -> int:
        """Return the id of the last delivery, 0 when there was none."""
        row = self._db.execute("SELECT max(id) FROM deliveries").fetchone()
        return int(row[0] or 0)

    def unrouted(self, limit: int = 50) -> list[int]:
        """Return ids of deliveries that were not dealt with, the oldest first."""
        rows = self._db.execute(
            "SELECT id FROM deliveries WHERE routed = 0 ORDER BY id LIMIT ?", (limit,)
        )
        return [row[0] for row in rows]

    def line(self, number: int) -> bytes | None:
        """Return the envelope of a delivery."""
        row = self._db.execute("SELECT line FROM deliveries WHERE id = ?", (number,)).fetchone()
        return None if row is None else bytes(row[0])

    def following(self, number: int, limit: int = 100) -> list[int]:
        """Return the ids of the deliveries after `number`."""
        rows = self._db.execute(
            "SELECT id FROM deliveries WHERE id > ? ORDER BY id LIMIT ?", (number, limit)
        )
        return [row[0] for row in rows]

    def find(self, number: int) -> Delivery | None:
        """Return what is known of a delivery."""
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM deliveries WHERE id = ?",  # noqa: S608
            (number,),
        ).fetchone()
        return None if row is None else Delivery(*row)

    def log(
        self,
        *,
        limit: int = 50,
        since: float = 0,
        source: str | None = None,
        key: str | None = None,
        after: int = 0,
    ) -> list[Delivery]:
        """Return the last deliveries, the oldest first."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM deliveries WHERE at >= ? AND id > ?"  # noqa: S608
            " AND (?3 IS NULL OR source = ?3) AND (?4 IS NULL OR lower(key) = lower(?4))"
            " ORDER BY id DESC LIMIT ?5",
            (since, after, source, key, limit),
        ).fetchall()
        return [Delivery(*row) for row in reversed(rows)]

    # Dealing with deliveries -------------------------------------------------

    def routed(self, number: int, result: str) -> None:
        """Mark a delivery as dealt with; call it inside the transaction that does so."""
        self._db.execute(
            "UPDATE deliveries SET routed = 1,"
            " result = CASE result WHEN '' THEN ?2 ELSE result || '; ' || ?2 END WHERE id = ?1",
            (number, result),
        )

    def cursor(self, peer: str) -> int | None:
        """Return the last delivery that `peer` got, None for one never seen before."""
        row = self._db.execute("SELECT id FROM cursors WHERE peer = ?", (peer,)).fetchone()
        return None if row is None else int(row[0])

    def advance(self, cursors: dict[str, int], gone: Sequence[str] = ()) -> None:
        """Remember how far peers are; forget those that are gone."""
        with self.transaction():
            self._db.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?)", cursors.items())
            self._db.executemany("DELETE FROM cursors WHERE peer = ?", [(peer,) for peer in gone])

    def peers(self) -> list[str]:
        """Return the peers with a cursor."""
        return [row[0] for row in self._db.execute("SELECT peer FROM cursors")]

    def send(self, session: str, delivery: int, text: str) -> None:
        """Queue a text for a session; call it inside a transaction."""
        self._db.execute(
            "INSERT INTO outgoing (session, at, delivery, text) VALUES (?, ?, ?, ?)",
            (session, time.time(), delivery, text),
        )

    def outgoing(self, session: str, limit: int) -> list[Item]:
        """Return the texts that wait for a session, the oldest first."""
        rows = self._db.execute(
            "SELECT id, at, delivery, text FROM outgoing WHERE session = ? ORDER BY id LIMIT ?",
            (session, limit),
        )
        return [Item(*row) for row in rows]

    def waiting(self) -> list[str]:
        """Return the sessions for which texts wait."""
        return [row[0] for row in self._db.execute("SELECT DISTINCT session FROM outgoing")]

    def sent(self, items: Sequence[int]) -> None:
        """Forget texts that arrived, or never will."""
        with self.transaction():
            self._db.executemany("DELETE FROM outgoing WHERE id = ?", [(item,) for item in items])

    def trim_outgoing(self, session: str, most: int) -> int:
        """Drop the oldest texts beyond `most`; return how many."""
        return self._db.execute(
            "DELETE FROM outgoing WHERE id IN (SELECT id FROM outgoing WHERE session = ?1"
            " ORDER BY id DESC LIMIT -1 OFFSET ?2)",
            (session, most),
        ).rowcount

    # Sessions to start -------------------------------------------------------

    def want(self, group: tuple[str, str], delivery: int, topic: str, note: str, text: str) -> int:
        """Queue an event for a new session; call it inside a transaction.

        Return how many older ones of the same sender went for that, since too many wait.
        """
        self._db.execute(
            "INSERT INTO pending (source, key, at, delivery, topic, note, text)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*group, time.time(), delivery, topic, note, text),
        )
        return self._db.execute(
            "DELETE FROM pending WHERE id IN (SELECT id FROM pending WHERE source = ?1"
            " ORDER BY id DESC LIMIT -1 OFFSET ?2)",
            (group[0], room.KEPT_WISHES),
        ).rowcount

    def wanted(self) -> list[tuple[str, str]]:
        """Return source and key of the events that wait for a session, the oldest first."""
        rows = self._db.execute(
            "SELECT source, key FROM pending GROUP BY source, key ORDER BY min(id)"
        )
        return [(row[0], row[1]) for row in rows]

    def batch(self, group: tuple[str, str]) -> list[Item]:
        """Return the events of a group, the oldest first."""
        rows = self._db.execute(
            "SELECT id, at, delivery, text, topic, note FROM pending"
            " WHERE source = ? AND key = ? ORDER BY id",
            group,
        )
        return [Item(*row) for row in rows]

    def drop(self, items: Sequence[int]) -> None:
        """Forget events that need no session."""
        with self.transaction():
            self._db.executemany("DELETE FROM pending WHERE id = ?", [(item,) for item in items])

    def starting(self, session: str, name: str, group: tuple[str, str], last: int) -> None:
        """Note durably, before it is asked for, which session a batch gets."""
        with self.transaction(durable=True):
            self._db.execute(
                "INSERT INTO spawns (session, name, source, key, at, last) VALUES (?,?,?,?,?,?)",
                (session, name, *group, time.time(), last),
            )

    def started(self, session: str) -> None:
        """Note that a session was started and its events are in its hands."""
        with self.transaction(durable=True):
            self._db.execute(
                "DELETE FROM pending WHERE id <= (SELECT last FROM spawns WHERE session = ?1)"
                " AND (source, key) = (SELECT source, key FROM spawns WHERE session = ?1)",
                (session,),
            )
            self._db.execute("UPDATE spawns SET done = 1 WHERE session = ?", (session,))

    def abandon(self, session: str) -> None:
        """Forget a session that does not exist; its events wait for another one."""
        with self.transaction():
            self._db.execute("DELETE FROM spawns WHERE session = ?", (session,))

    def spawns(self) -> list[dict[str, Any]]:
        """Return the sessions that were started, or were about to be."""
        names = ("session", "name", "source", "key", "at", "last", "done")
        rows = self._db.execute(f"SELECT {', '.join(names)} FROM spawns ORDER BY at")  # noqa: S608
        return [dict(zip(names, row, strict=True)) for row in rows]

    # Housekeeping --------------------------------------------------------------

    def expire(self, now: float, *, days: float = KEEP_DAYS, size: int | None = None) -> int:
        """Remove old deliveries that were dealt with; return how many."""
        with self.transaction():
            removed = self._db.execute(
                "DELETE FROM deliveries WHERE routed = 1 AND at < ?", (now - days * 86400,)
            ).rowcount
            removed += room.trim(self._db, room.LIMIT if size is None else size)
            # Longer than any window: it costs little, and a capture may be old.
            self._db.execute("DELETE FROM seen WHERE at < ?", (now - 90 * 86400,))
            self._db.execute("DELETE FROM shares WHERE bytes = 0 AND digests = 0")
        return removed

    def shrink(self) -> bool:
        """Give a piece of what is free back to the disk; return whether there is more."""
        return database.shrink(self._db)
