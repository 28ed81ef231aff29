"""The registry is noticed even while the kernel lets the user watch nothing more."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace

from agent_box.supervisor import events


def test_without_a_watch_it_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_PAUSE", 0.02)
    real, refusals = events.Inotify, 3

    def inotify():
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return real()

    monkeypatch.setattr(events, "Inotify", inotify)
    seen = []
    user = SimpleNamespace(config_dir=tmp_path)
    store = SimpleNamespace(path=tmp_path / "sessions.json")

    def read():
        seen.append((watchers.problem, store.path.exists() and store.path.read_text()))

    told = []
    supervisor = SimpleNamespace(
        user=user, store=store, read_registry=read, wake=lambda: told.append(watchers.problem)
    )
    watchers = events.Watchers(supervisor)

    async def run():
        task = asyncio.ensure_future(watchers._watch_registry())
        async with asyncio.timeout(10):
            while len(seen) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            store.path.write_text("edited by hand")
            while seen[-1][1] != "edited by hand":  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        task.cancel()

    asyncio.run(run())
    assert ["seconds late" in problem if problem else problem for problem, _ in seen[:4]] == [
        True, True, True, None,
    ]  # fmt: skip
    # Whoever looks at a page hears of it at once.
    assert [problem is not None for problem in told] == [True, False]
