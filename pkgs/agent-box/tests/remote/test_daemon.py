"""The unit of the app-server: it lives as long as a pane refers to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agent_box.remote import daemon, place
from agent_box.remote.daemon import Daemon

SERVER = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).open('a').write('x'); time.sleep(60)"


class Stand:
    def __init__(self, root):
        self.user = SimpleNamespace(name="alice", runtime_dir=root / "run")
        self.directory = place.directory(self.user)
        self.directory.mkdir(parents=True)
        self.starts = root / "starts"
        argv = [sys.executable, "-c", SERVER, str(self.starts)]
        self.daemon = Daemon(self.user, argv, dict(os.environ))
        self.panes = []

    def refer(self):
        pane = subprocess.Popen(["sleep", "60"])
        path = self.directory / f"{pane.pid}.json"
        path.write_text(json.dumps({"pid": pane.pid, "session": "s", "state": "paired"}))
        self.panes.append(pane)
        return pane

    async def started(self, count):
        for _ in range(100):
            if self.starts.exists() and self.starts.stat().st_size >= count:
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"not started {count} times")


@pytest.fixture
def stand(tmp_path):
    found = Stand(tmp_path)
    yield found
    for pane in found.panes:
        pane.kill()
        pane.wait()


async def over(task, seconds=5):
    async with asyncio.timeout(seconds):
        return await task


async def test_ends_with_the_last_pane(stand):
    one, two = stand.refer(), stand.refer()
    task = asyncio.create_task(stand.daemon.run())
    await stand.started(1)
    one.kill()
    one.wait()
    await asyncio.sleep(0.3)
    assert not task.done()
    two.kill()
    two.wait()
    assert await over(task) == 0
    assert list(stand.directory.iterdir()) == []
    assert stand.starts.stat().st_size == 1


async def test_pane_that_leaves_gives_its_reference_back(stand):
    pane = stand.refer()
    task = asyncio.create_task(stand.daemon.run())
    await stand.started(1)
    (stand.directory / f"{pane.pid}.json").unlink()
    assert await over(task) == 0


async def test_new_app_server_on_request(stand):
    stand.refer()
    task = asyncio.create_task(stand.daemon.run())
    await stand.started(1)
    (stand.directory / place.RESTART).touch()
    await stand.started(2)
    assert not (stand.directory / place.RESTART).exists()
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_app_server_that_dies_fails_the_unit(stand):
    stand.refer()
    stand.daemon._argv = [sys.executable, "-c", "raise SystemExit(3)"]
    assert await over(asyncio.create_task(stand.daemon.run())) == 1
    assert len(list(stand.directory.iterdir())) == 1


def test_files_of_nobody_are_no_reference(tmp_path):
    user = SimpleNamespace(name="alice", runtime_dir=tmp_path / "run")
    directory = place.directory(user)
    directory.mkdir(parents=True)
    (directory / "1.json").write_text("{")
    (directory / "2.json").write_text(json.dumps({"pid": 2**22 + 1}))
    (directory / "3.json").write_text(json.dumps({"pid": os.getpid(), "state": "paired"}))
    assert [item["state"] for item in place.references(user)] == ["paired"]
    assert place.references(SimpleNamespace(name="bob", runtime_dir=user.runtime_dir)) == []


def test_name_falls_back_to_that_of_the_kernel(monkeypatch, caplog):
    tried = []

    def run(argv, **_options):
        tried.append(argv)
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(daemon.subprocess, "run", run)
    monkeypatch.setattr(daemon.os, "execvp", lambda *_: pytest.fail("no namespace, no exec"))
    daemon.take_name("box.example")
    assert tried[0][0] == "unshare"
    assert "no host name of its own" in caplog.text
    tried.clear()
    daemon.take_name(os.uname().nodename)
    daemon.take_name("")
    assert tried == []
