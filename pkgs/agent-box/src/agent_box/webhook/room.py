"""How much of the disk deliveries may take, and who makes room when there is none.

The disk is shared by all senders of a user. Each has a share of it that no other can use up, and
what goes first is what the sender with the most has had delivered the longest ago. What waits to
be dealt with never goes: its sender was told that it arrived. So there is a limit to what may wait,
and whoever reaches it is told to come again, before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

LIMIT = 128 * 1024 * 1024
"""Bytes that all deliveries may take together."""

LEAST = 4096
"""Bytes that a delivery counts at least, which bounds their number."""

FEWEST = 2
"""Senders that the room is divided among, even if there is only one: another may come."""

KEPT_DIGESTS = 200_000
"""Contents of one sender that are known again; beyond that the oldest are forgotten."""

KEPT_WISHES = 1000
"""Events of one sender that wait for a session; beyond that the oldest go."""

_WEIGHT = "max(length({0}line), %d)" % LEAST  # noqa: UP031 - braces are for the row
_NEW, _OLD, _ANY = (_WEIGHT.format(row) for row in ("new.", "old.", ""))

_SETUP = f"""
CREATE TABLE IF NOT EXISTS shares (
    source TEXT PRIMARY KEY, bytes INTEGER NOT NULL, waiting INTEGER NOT NULL,
    digests INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS of_source ON deliveries (source, id);
DROP TRIGGER IF EXISTS delivery_came;
CREATE TRIGGER delivery_came AFTER INSERT ON deliveries BEGIN
    INSERT OR IGNORE INTO shares VALUES (new.source, 0, 0, 0);
    UPDATE shares SET bytes = bytes + {_NEW}, waiting = waiting + {_NEW} * (new.routed = 0)
        WHERE source = new.source;
END;
DROP TRIGGER IF EXISTS delivery_went;
CREATE TRIGGER delivery_went AFTER DELETE ON deliveries BEGIN
    UPDATE shares SET bytes = bytes - {_OLD}, waiting = waiting - {_OLD} * (old.routed = 0)
        WHERE source = old.source;
END;
DROP TRIGGER IF EXISTS delivery_routed;
CREATE TRIGGER delivery_routed AFTER UPDATE OF routed ON deliveries BEGIN
    UPDATE shares SET waiting = waiting + {_NEW} * ((new.routed = 0) - (old.routed = 0))
        WHERE source = new.source;
END;
DROP TRIGGER IF EXISTS digest_came;
CREATE TRIGGER digest_came AFTER INSERT ON seen BEGIN
    INSERT OR IGNORE INTO shares VALUES (new.source, 0, 0, 0);
    UPDATE shares SET digests = digests + 1 WHERE source = new.source;
END;
DROP TRIGGER IF EXISTS digest_went;
CREATE TRIGGER digest_went AFTER DELETE ON seen BEGIN
    UPDATE shares SET digests = digests - 1 WHERE source = old.source;
END;
DELETE FROM shares;
INSERT INTO shares
    SELECT source, sum(bytes), sum(waiting), sum(digests) FROM (
        SELECT source, {_ANY} AS bytes, {_ANY} * (routed = 0) AS waiting, 0 AS digests
            FROM deliveries
        UNION ALL SELECT source, 0, 0, count(*) FROM seen GROUP BY source
    ) GROUP BY source;
"""  # noqa: S608 - of constants


class FullError(Exception):
    """There is no room for a delivery; nothing was written."""

    def __init__(self, *, own: bool) -> None:
        super().__init__(
            "too much of this sender waits" if own else "there is no room for deliveries"
        )
        self.own = own
        """Whether it is what waits of the same sender that takes the room."""


def weight(line: bytes) -> int:
    """Return the bytes that a delivery counts."""
    return max(len(line), LEAST)


def prepare(db: sqlite3.Connection) -> None:
    """Count what is there, and from now on; call it inside a transaction.

    Anew each time: what other versions did in between is counted too.
    """
    statement = ""
    for part in _SETUP.split(";"):
        statement += part + ";"
        # A trigger has semicolons of its own.
        if "CREATE TRIGGER" not in statement or part.strip() == "END":
            if part.strip():
                db.execute(statement)
            statement = ""


def make(db: sqlite3.Connection, source: str, size: int, senders: int) -> None:
    """Make room for `size` bytes of `source`, or raise FullError; call it inside a transaction."""
    known = _known(db)
    share = _share(known, senders)
    waiting = known.get(source, (0, 0))[1]
    # One that is larger than the share gets in when nothing else waits.
    if waiting and waiting + size > share:
        raise FullError(own=True)
    if not _evict(db, LIMIT - size, share, {source: size})[0]:
        raise FullError(own=False)


def trim(db: sqlite3.Connection, limit: int) -> int:
    """Remove what was dealt with and is beyond `limit` bytes; return how many deliveries."""
    return _evict(db, limit, 0, {})[1]


def forget_digests(db: sqlite3.Connection, source: str) -> None:
    """Forget the oldest contents of a sender once there are too many."""
    row = db.execute("SELECT digests FROM shares WHERE source = ?", (source,)).fetchone()
    if row is None or row[0] <= KEPT_DIGESTS:
        return
    # More than one, since it takes a look at all of them.
    db.execute(
        "DELETE FROM seen WHERE source = ?1 AND id <= (SELECT id FROM seen WHERE source = ?1"
        " ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (source, KEPT_DIGESTS * 9 // 10),
    )


def _known(db: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return the bytes of each sender, all and those that wait."""
    rows = db.execute("SELECT source, bytes, waiting FROM shares")
    return {source: (size, waiting) for source, size, waiting in rows}


def _share(known: dict[str, tuple[int, int]], senders: int) -> int:
    holding = sum(size > 0 for size, _ in known.values())
    return LIMIT // max(senders, holding, FEWEST)


def _evict(
    db: sqlite3.Connection, limit: int, share: int, coming: dict[str, int]
) -> tuple[bool, int]:
    """Remove the oldest of whoever has most, until all fits; never below the share of anybody.

    `coming` counts as if it were there. Return whether it fits, and how many went.
    """
    known = _known(db)
    total = sum(size for size, _ in known.values())
    gone = 0
    while total > limit:
        over = {
            source: size + coming.get(source, 0)
            for source, (size, waiting) in known.items()
            if size > waiting and size + coming.get(source, 0) > share
        }
        source = max(over, key=over.__getitem__, default="")
        freed = _remove_oldest(db, source) if over else 0
        if not freed:
            return False, gone
        size, waiting = known[source]
        known[source] = (size - freed, waiting)
        total -= freed
        gone += 1
    return True, gone


def _remove_oldest(db: sqlite3.Connection, source: str) -> int:
    """Remove what was dealt with the longest ago; return the bytes that it counted."""
    row = db.execute(
        f"SELECT id, {_ANY} FROM deliveries WHERE source = ? AND routed = 1"  # noqa: S608
        " ORDER BY id LIMIT 1",
        (source,),
    ).fetchone()
    if row is None:
        return 0
    db.execute("DELETE FROM deliveries WHERE id = ?", (row[0],))
    return int(row[1])
