"""The file of the spool: its tables, and how it grows and shrinks."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SLACK = 1024
"""Free pages that are not worth giving back, and pages that are given back at once."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    source TEXT NOT NULL,
    event TEXT NOT NULL,
    key TEXT NOT NULL,
    sender TEXT NOT NULL,
    delivery TEXT NOT NULL,
    size INTEGER NOT NULL,
    line BLOB NOT NULL,
    routed INTEGER NOT NULL DEFAULT 0,
    copies INTEGER NOT NULL DEFAULT 0,
    result TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS unrouted ON deliveries (id) WHERE routed = 0;
CREATE TABLE IF NOT EXISTS seen (
    source TEXT NOT NULL, digest BLOB NOT NULL, at REAL NOT NULL, id INTEGER NOT NULL,
    PRIMARY KEY (source, digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursors (peer TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outgoing (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, at REAL NOT NULL, delivery INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS pending (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL,
    delivery INTEGER NOT NULL, topic TEXT NOT NULL, note TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS spawns (
    session TEXT PRIMARY KEY, name TEXT NOT NULL, source TEXT NOT NULL, key TEXT NOT NULL,
    at REAL NOT NULL, last INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""


def opened(path: Path) -> sqlite3.Connection:
    """Open the file for whoever writes; make it if there is none."""
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    path.chmod(0o600)
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts for a file that is new
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA cache_size = -2048")
    db.execute("PRAGMA journal_size_limit = 8388608")
    sync(db, durable=False)
    db.executescript(_SCHEMA)
    return db


def sync(db: sqlite3.Connection, *, durable: bool) -> None:
    """Have the end of each transaction wait for the disk, or not."""
    db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")


def shrinks(db: sqlite3.Connection) -> bool:
    """Tell whether the file can give room back; those of the first releases only grew."""
    return bool(db.execute("PRAGMA auto_vacuum").fetchone()[0])


def rewrite(db: sqlite3.Connection) -> None:
    """Make a file of before one that shrinks: whole, or it stays what it is."""
    sync(db, durable=True)
    try:
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        sync(db, durable=False)


def shrink(db: sqlite3.Connection) -> bool:
    """Give a piece of what is free back to the disk; return whether there is more."""
    free = db.execute("PRAGMA freelist_count").fetchone()[0] - SLACK
    if free <= 0:
        return False
    db.execute(f"PRAGMA incremental_vacuum({min(free, SLACK)})").fetchall()
    if free > SLACK:
        return True
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return False
