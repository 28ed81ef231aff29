"""The event stream: state at once, changes as they happen, nothing missed."""

from __future__ import annotations

import statistics
import time


def test_a_snapshot_then_changes(web, stream):
    web.supervisor.put("main")
    first = stream()
    _, content, _ = first.wait("snapshot", lambda content: content["sessions"])
    assert content["sessions"][0]["name"] == "main"
    assert content["supervisor"] == {"state": "up", "message": ""}
    web.supervisor.put("main", "waiting", reason="a question")
    assert (
        first.wait("session", lambda view: view["state"] == "waiting")[1]["reason"] == "a question"
    )
    web.call("DELETE", "sessions/main")
    assert first.wait("removed")[1] == {"name": "main"}
    web.supervisor.push({"event": "problems", "problems": ["It rains."]})
    assert first.wait("problems")[1] == {"problems": ["It rains."]}


def test_one_subscription_feeds_all(web, stream):
    streams = [stream() for _ in range(5)]
    for item in streams:
        item.wait("snapshot")
    delays = []
    for number in range(20):
        name = f"s{number}"
        before = time.monotonic()
        web.supervisor.put(name)
        delays += [
            item.wait("session", lambda view, name=name: view["name"] == name)[0] - before
            for item in streams
        ]
    assert web.supervisor.subscriptions == 1
    print(f"push to 5 streams: median {statistics.median(delays) * 1000:.1f} ms")
    # The machines that run this are busy; alone it is a few milliseconds.
    assert statistics.median(delays) < 0.1


def test_reconnecting_misses_nothing(web, stream):
    stream().wait("snapshot", lambda content: content["supervisor"]["state"] == "up")
    first = stream()
    _, _, identity = first.wait("snapshot")
    first.close()
    web.supervisor.put("meanwhile")
    again = stream(identity)
    assert again.wait("session")[1]["name"] == "meanwhile"
    assert not [kind for _, kind, _, _ in again.events if kind == "snapshot"]
    for unknown in ("nonsense", "x-99", f"{identity.split('-')[0]}-999999", "-"):
        assert stream(unknown).wait("snapshot")


def test_a_supervisor_that_goes_and_comes(web, stream):
    web.supervisor.put("main")
    opened = stream()
    opened.wait("snapshot", lambda content: content["sessions"])
    web.supervisor.stop()
    assert "your sessions go on" in opened.wait("problem")[1]["message"]
    late = stream()
    _, content, _ = late.wait("snapshot")
    # What was known last, marked as such.
    assert content["sessions"][0]["name"] == "main"
    assert content["supervisor"]["state"] == "down"
    web.supervisor.put("other")
    web.supervisor.start()
    back = opened.wait("snapshot", lambda content: len(content["sessions"]) == 2)[1]
    assert back["supervisor"]["state"] == "up"


def test_a_stream_ends_with_its_login(web, stream, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_BOX_LIVE", str(tmp_path))
    login = tmp_path / web.stand.user / ("a" * 22)
    login.parent.mkdir()
    login.touch()
    opened = stream(login=login.name)
    opened.wait("snapshot")
    web.supervisor.put("one")
    opened.wait("session")
    login.unlink()
    web.supervisor.put("two")
    deadline = time.monotonic() + 5
    while not opened.ended:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [content["name"] for _, kind, content, _ in opened.events if kind == "session"] == [
        "one"
    ]


def test_without_a_supervisor_from_the_start(web, stream):
    web.supervisor.stop()
    opened = stream()
    assert opened.wait("snapshot")[1]["supervisor"]["state"] == "down"


def test_changes_of_order_secrets_and_files(web, stream):
    (web.home / "downloads").mkdir()
    web.stand.me.config_dir.mkdir(parents=True)
    opened = stream()
    opened.wait("snapshot")
    time.sleep(0.2)  # the watch is set just after
    web.call("POST", "env", {"values": {"A": "1"}})
    opened.wait("env")
    (web.home / "downloads/new.txt").write_text("x")
    opened.wait("files")
    web.call("PUT", "order", {"names": ["b", "a"]})
    assert opened.wait("order")[1] == {"order": ["b", "a"]}


async def test_who_falls_behind_gets_a_snapshot():
    from agent_box.web.events import QUEUE, Feed

    class NoLink:
        async def subscribe(self):
            yield {"sessions": [], "problems": []}
            import asyncio

            await asyncio.sleep(60)

    class NoOrder:
        def names(self):
            return []

    feed = Feed(NoLink(), NoOrder())
    stream = feed.stream(None)
    assert (await anext(stream)).startswith(b"retry")
    assert b"event: snapshot" in await anext(stream)
    for number in range(QUEUE * 3):
        feed.publish("files", {"n": number})
    assert b"event: snapshot" in await anext(stream)
    feed.publish("files", {"n": -1})
    assert b'"n":-1' in await anext(stream)
    await stream.aclose()
    await feed.close()
