"""A disk that takes nothing: senders are told to come again, and nobody is told anything twice."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from webhook_stand import issue, key_of, wait_for

from agent_box.webhook import router
from agent_box.webhook.spool import Arrival, Spool

if TYPE_CHECKING:
    from pathlib import Path


def let_write(stand: Any, most: int) -> None:
    """Have every file that the receiver would make longer than `most` bytes fail."""
    resource.prlimit(stand.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def test_a_full_disk(stand: Any) -> None:
    """Deliveries are refused with 503 and get in later; what was accepted goes out once; the
    receiver goes on.
    """
    peer = stand.peer("one")
    work = stand.supervisor.add("work")
    stand.subscribe(key_of(work), "acme/widgets")
    stand.supervisor.refuse["deliver"] = ("conflict", "it waits for a person")
    assert stand.send(issue(1), "issues") == (200, "ok")
    wait_for(lambda: stand.supervisor.did("deliver"))
    stand.settled()
    let_write(stand, 0)
    assert stand.send(issue(2), "issues") == (503, "busy")
    stand.supervisor.asked.clear()
    del stand.supervisor.refuse["deliver"]
    wait_for(stand.supervisor.told)
    for number in range(5):  # each of these is an occasion to look for texts that wait
        stand.supervisor.add(f"other-{number}")
        time.sleep(0.1)
    assert stand.send(issue(2), "issues") == (503, "busy")
    assert stand.status()["unrouted"] == 0
    let_write(stand, resource.RLIM_INFINITY)
    assert stand.send(issue(2), "issues") == (200, "ok")
    wait_for(lambda: len(stand.supervisor.told()) == 2)
    time.sleep(0.2)
    texts = [text for _, text in stand.supervisor.told()]
    assert [text.count("Broken") for text in texts] == [1, 1]
    assert "Broken 1" in texts[0]
    assert "Broken 2" in texts[1]
    assert [event["payload"]["issue"]["number"] for event in peer.events()] == [1, 2]
    assert stand.process.poll() is None


def test_what_cannot_be_noted_is_tried_again(tmp_path: Path, monkeypatch: Any) -> None:
    """A delivery that was accepted waits until its outcome can be written down."""
    monkeypatch.setattr(router, "RETRY", 0.01)
    spool = Spool(tmp_path)
    numbers = spool.accept(
        [
            Arrival("github", "push", "a/b", "rosa", str(n), 2, b"{}", bytes([n]), 3600)
            for n in range(2)
        ]
    )
    user: Any = SimpleNamespace(home=tmp_path)
    nobody: Any = None
    worker = router.Router(SimpleNamespace(webhook=None), user, spool, nobody, nobody, nobody)  # type: ignore[arg-type]
    tried: list[int] = []

    def route(number: int) -> None:
        tried.append(number)
        if len(tried) <= 3:
            raise sqlite3.OperationalError("database or disk is full")
        with spool.transaction():
            spool.routed(number, "told work")

    worker.route = route  # type: ignore[method-assign]

    async def work() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await worker.run()

    asyncio.run(work())
    assert tried == [numbers[0]] * 4 + [numbers[1]]
    assert [each.result for each in spool.log()] == ["told work"] * 2
