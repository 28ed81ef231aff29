"""The same commands while no supervisor is there."""

from __future__ import annotations

import os

import pytest

from agent_box import config, offline
from agent_box.errors import ConflictError


@pytest.fixture
def down(box, monkeypatch):
    """Return a box whose supervisor went, its sessions `one` and `two` running."""
    for name in ("one", "two"):
        box.ready(box.call("add", name=name, prompt="go")["session"]["id"])
    box.until(lambda: not any(view["promptPending"] for view in box.sessions().values()))
    box.kill_supervisor()
    monkeypatch.setenv("AGENT_BOX_CONFIG", str(box.config_path))
    return box


def run(op, **args):
    box = config.load()
    return getattr(offline, op)(config.current_user(box), box, **args)


def listing():
    return {view["name"]: view["state"] for view in run("ls")["sessions"]}


def names(box):
    return set(box.tmux_run("list-sessions", "-F", "#{session_name}", check=False).split())


def test_changes_hold_and_the_supervisor_follows(down):
    ids = {name: item["boxSessionId"] for name, item in down.raw()["sessions"].items()}
    assert listing() == {"one": "running", "two": "running"}
    run("add", name="three", agent="claude", prompt="do it")
    assert listing()["three"] == "starting"
    run("rename", name="two", newName="zwei")
    assert names(down) == {"one", "zwei"}
    run("stop", name="zwei")
    run("rm", name="one")
    assert names(down) == set()
    assert listing() == {"zwei": "stopped", "three": "starting"}
    run("start", name="zwei")
    down.start_supervisor()
    down.wait("three", "running")
    down.wait("zwei", "running")
    assert down.ready(ids["two"], 2)[1]["resumed"]
    assert len(down.launches(ids["one"])) == 1
    down.until(lambda: not down.traces(ids["one"]))


def test_restart_all_takes_its_own_session_last(down, monkeypatch):
    monkeypatch.setenv("AGENT_BOX_SESSION", "one")
    result = run("restart", all=True)
    assert [view["name"] for view in result["sessions"]] == ["two", "one"]
    assert names(down) == set()


def test_a_session_of_the_users_own_is_not_touched(down):
    run("rm", name="one")
    down.tmux_run("new-session", "-d", "-s", "one", "sleep 60")
    pid = int(down.tmux_run("list-panes", "-t", "=one:", "-F", "#{pane_pid}"))
    run("add", name="one", agent="shell")
    for op in ("stop", "start", "restart", "rm"):
        run(op, name="one")
    assert "one" in names(down)
    os.kill(pid, 0)


def test_a_damaged_registry_is_not_written_over(down):
    down.registry.write_text("{")
    listed = run("ls")
    assert "does not parse" in listed["problems"][0]
    assert {view["name"] for view in listed["sessions"]} == {"one", "two"}
    for op, args in (("rm", {}), ("stop", {}), ("start", {}), ("rename", {"newName": "x"})):
        with pytest.raises(ConflictError):
            run(op, name="one", **args)
    with pytest.raises(ConflictError):
        run("add", name="new", agent="shell")
    assert down.registry.read_text() == "{"
    assert names(down) == {"one", "two"}


def test_a_silent_tmux_is_said_to_be_silent(down):
    import signal

    from agent_box.errors import InternalError

    down.tmux.send_signal(signal.SIGSTOP)
    assert any("tmux does not answer" in text for text in run("ls")["problems"])
    with pytest.raises(InternalError, match="may still run"):
        run("stop", name="one")
    assert down.raw()["sessions"]["one"]["stopped"] is True
    down.tmux.send_signal(signal.SIGCONT)
    down.start_supervisor()
    down.until(lambda: names(down) == {"two"})
