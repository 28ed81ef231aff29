"""The web service in front of a supervisor and a tmux that are real."""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import time
from pathlib import Path

import pytest

_live = Path(__file__).parents[1] / "live/conftest.py"
_spec = importlib.util.spec_from_file_location("web_live_box", _live)
assert _spec is not None and _spec.loader is not None
live = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(live)

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture
def real(tmp_path_factory):
    import tempfile

    box = live.LiveBox(Path(tempfile.mkdtemp(prefix="abx", dir="/tmp")), {})
    box.start()
    yield box
    box.close()


@pytest.fixture
def stand(real, make_stand):
    """A stand around the real box: its home, its runtime directory, its supervisor."""
    return make_stand(real.root, real.run_dir)


def test_changes_are_pushed_by_the_real_supervisor(real, web, stream):
    opened = stream()
    opened.wait("snapshot", lambda content: content["supervisor"]["state"] == "up")
    assert web.call("POST", "sessions", {"name": "one", "prompt": "go"}).status_code == 201
    view = opened.wait("session", lambda view: view["state"] == "running", 20)[1]
    assert view["workingDirectory"] == str(real.home)
    real.ready(view["id"])
    delays = []
    for number in range(8):
        name = f"n{number}"
        at = time.monotonic()
        web.call("POST", "sessions/one/rename", {"newName": name}) if number == 0 else web.call(
            "POST", f"sessions/n{number - 1}/rename", {"newName": name}
        )
        seen = opened.wait("session", lambda view, name=name: view["name"] == name)[0]
        delays.append(seen - at)
    print(f"rename to event, median: {statistics.median(delays) * 1000:.0f} ms")
    assert statistics.median(delays) < 1.0  # 100 ms on a machine that does nothing else
    last = f"n{number}"
    web.call("POST", f"sessions/{last}/send", {"text": "say hello"})
    assert web.call("POST", f"sessions/{last}/stop").json()["session"]["state"] == "stopped"
    opened.wait("session", lambda view: view["state"] == "stopped")
    assert web.get(f"api/sessions/{last}/logs").status_code == 200
    assert web.call("POST", f"sessions/{last}/start").json()["session"]["state"] == "running"
    real.kill_supervisor()
    opened.wait("problem")
    real.start_supervisor()
    count = len(opened.events)
    real.until(lambda: any(kind == "snapshot" for _, kind, _, _ in opened.events[count - 1 :]))
    assert web.call("DELETE", f"sessions/{last}").status_code == 200
    opened.wait("removed", lambda content: content["name"] == last)


def test_old_secrets_in_real_sessions(real, web):
    web.call("POST", "sessions", {"name": "one", "wait": True})
    time.sleep(1.1)  # starts of processes are told in ticks, times of files in seconds
    assert web.call("POST", "env", {"values": {"NEW": "1"}}).json()["stale"] == ["one"]
    assert web.get("api/env").json()["stale"] == ["one"]
    time.sleep(1.1)
    web.call("POST", "sessions/one/restart")
    real.until(lambda: web.get("api/env").json()["stale"] == [])
