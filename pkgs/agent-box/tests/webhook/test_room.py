"""How much senders can make the box keep: never more than there is room for, and never at the
expense of another sender.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pytest
from webhook_stand import push, wait_for

from agent_box.subscriptions.place import spool_dir
from agent_box.webhook import database, room
from agent_box.webhook.spool import Arrival, Spool

if TYPE_CHECKING:
    from pathlib import Path

KIB = 1024


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """A spool with room for 64 deliveries of the smallest kind."""
    monkeypatch.setattr(room, "LIMIT", 64 * room.LEAST)
    return Spool(tmp_path)


def send(spool: Spool, source: str, count: int, size: int = 10, **more: Any) -> list[Any]:
    start = time.monotonic_ns()
    return [
        spool.accept(
            [
                Arrival(
                    source, "e", "k", "s", "d", size, b"x" * size,
                    f"{source}{start}{number}".encode(), 3600.0, **more,
                )
            ]
        )[0]
        for number in range(count)
    ]  # fmt: skip


def deal(spool: Spool) -> None:
    with spool.transaction():
        for number in spool.unrouted(10**6):
            spool.routed(number, "done")


def held(spool: Spool) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in spool.log(limit=10**6):
        found[row.source] = found.get(row.source, 0) + 1
    return found


def test_what_waits_is_never_dropped_and_refused_beyond_a_share(spool: Spool) -> None:
    """Who reaches the share is refused, others are not, and nothing that was accepted goes."""
    outcome = send(spool, "loud", 100)
    assert all(isinstance(each, int) for each in outcome[:32])
    assert all(isinstance(each, room.FullError) and each.own for each in outcome[32:])
    assert all(isinstance(each, int) for each in send(spool, "quiet", 20))
    assert held(spool) == {"loud": 32, "quiet": 20}
    assert spool.expire(time.time() + 30 * 86400) == 0
    deal(spool)
    assert all(isinstance(each, int) for each in send(spool, "loud", 32))


def test_a_flood_displaces_its_own_sender_only(spool: Spool) -> None:
    """What a quiet sender had delivered stays, whatever another one sends."""
    send(spool, "quiet", 30)
    deal(spool)
    for _ in range(20):
        assert all(isinstance(each, int) for each in send(spool, "loud", 20, senders=2))
        deal(spool)
        assert sum(held(spool).values()) <= 64
    assert held(spool) == {"quiet": 30, "loud": 34}


def test_many_senders_have_a_share_each(spool: Spool) -> None:
    """A sender that comes late finds its share: as many are reckoned with as are set up."""
    outcome = [each for n in range(3) for each in send(spool, f"s{n}", 40, senders=4)]
    assert sum(isinstance(each, int) for each in outcome) == 48
    assert all(isinstance(each, int) for each in send(spool, "late", 16, senders=4))


def test_bytes_count_and_so_does_the_number(spool: Spool) -> None:
    """Large ones fill a share sooner; one that is larger than it gets in when nothing waits."""
    assert [isinstance(each, int) for each in send(spool, "a", 3, 60 * KIB)] == [True, True, False]
    deal(spool)
    assert [isinstance(each, int) for each in send(spool, "a", 2, 200 * KIB)] == [True, False]
    assert [type(each) for each in send(spool, "b", 1, 200 * KIB)] == [room.FullError]
    assert [isinstance(each, int) for each in send(spool, "b", 1)] == [True]


def test_counts_are_true_whatever_happens(spool: Spool, tmp_path: Path) -> None:
    """What is counted is what is there: after removals, repetitions, refusals and a restart."""
    send(spool, "a", 50)
    deal(spool)
    send(spool, "a", 10)
    send(spool, "b", 10)
    spool.again(1)
    twice = Arrival("b", "e", "k", "s", "d", 2, b"{}", b"same", 0.0)
    spool.accept([twice, twice])
    spool.expire(time.time())

    def counted() -> Any:
        rows = spool._db.execute("SELECT source, bytes, waiting, digests FROM shares").fetchall()
        return sorted(rows)

    before = counted()
    Spool(tmp_path).close()
    assert counted() == before


def test_digests_and_wishes_are_bounded_too(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is known again nor what waits for a session grows for ever, each by sender."""
    monkeypatch.setattr(room, "KEPT_DIGESTS", 50)
    monkeypatch.setattr(room, "KEPT_WISHES", 10)
    send(spool, "quiet", 5)
    for _ in range(20):
        send(spool, "loud", 20)
        deal(spool)
    seen = dict(spool._db.execute("SELECT source, count(*) FROM seen GROUP BY source"))
    assert seen["quiet"] == 5
    assert 45 <= seen["loud"] <= 51
    with spool.transaction():
        spool.want(("quiet", "k"), 1, "t", "n", "x")
        dropped = [spool.want(("loud", f"k{n}"), 1, "t", "n", "x") for n in range(30)]
    assert sum(dropped) == 20
    assert ("quiet", "k") in spool.wanted()
    assert len(spool.wanted()) == 11


def test_the_file_shrinks(tmp_path: Path) -> None:
    """What is removed is given back to the disk."""
    spool = Spool(tmp_path)
    send(spool, "a", 60, 1 << 20)
    deal(spool)
    assert spool.path.stat().st_size > 50 << 20
    assert spool.expire(time.time() + 8 * 86400) == 60
    rounds = 0
    while spool.shrink():
        rounds += 1
    assert rounds > 3
    assert spool.path.stat().st_size < 10 << 20
    assert spool.path.with_name("spool.db-wal").stat().st_size < 9 << 20


def old_file(directory: Path, waiting: int, dealt_with: int) -> Path:
    """Make a file as the first release did, too large and with something that waits."""
    directory.mkdir(exist_ok=True, parents=True)
    path = directory / "spool.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(database._SCHEMA)
    for number in range(waiting + dealt_with):
        db.execute(
            "INSERT INTO deliveries (at, source, event, key, sender, delivery, size, line, routed)"
            " VALUES (?, 'github', 'e', 'k', 's', 'd', 1, ?, ?)",
            (time.time(), b"x" * (1 << 20), int(number < dealt_with)),
        )
        db.execute("INSERT INTO seen VALUES ('github', ?, ?, ?)",
                   (str(number).encode(), time.time(), number + 1))  # fmt: skip
    db.close()
    return path


def test_a_file_of_before_loses_nothing_that_waits(tmp_path: Path) -> None:
    """It is rewritten to shrink; what was dealt with makes room, what waits and is known stays."""
    path = old_file(tmp_path, waiting=20, dealt_with=180)
    assert path.stat().st_size > 195 << 20
    spool = Spool(tmp_path)
    assert len(spool.unrouted(1000)) == 20
    assert path.stat().st_size < 135 << 20
    assert database.shrinks(spool._db)
    again = Arrival("github", "e", "k", "s", "d", 1, b"{}", b"3", 3600.0)
    assert spool.accept([again]) == [None]


def test_a_file_of_before_that_somebody_reads(tmp_path: Path) -> None:
    """It stays as it is until the next start, and takes deliveries."""
    path = old_file(tmp_path, waiting=2, dealt_with=2)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM deliveries").fetchall()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    spool = Spool(tmp_path)
    assert isinstance(send(spool, "github", 1)[0], int)
    assert len(spool.unrouted()) == 3
    reader.close()
    spool.close()
    assert database.shrinks(Spool(tmp_path)._db)


def test_senders_are_told_to_come_again(make: Any) -> None:
    """429 where one's own deliveries wait, with when to come again; other senders get through;
    what was acknowledged before arrives.
    """
    stand = make(start=False)
    stand.source()
    stand.source("other", eventHeader="x-github-event", deliveryHeader="x-github-delivery")
    # What a receiver of before has left, which cannot be routed: the supervisor is silent.
    stand.supervisor.refuse["subscribe"] = ("internal", "not now")
    old_file(spool_dir(stand.home), waiting=1, dealt_with=0)
    stand.start(TEST_ROOM=str(2 << 20))
    body = {**push(), "filler": "x" * 900_000}
    codes = [stand.send({**body, "number": n})[0] for n in range(3)]
    assert 429 in codes
    assert stand.send(push(7), path="/other")[0] == 200
    assert stand.status()["answers"]["429"] >= 1
    assert "wait, send it again later" in stand.log
    del stand.supervisor.refuse["subscribe"]
    wait_for(lambda: stand.status()["unrouted"] == 0, 30)
    assert stand.send({**body, "number": 9})[0] == 200
