"""What people and programs do to tmux behind the supervisor's back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from agent_box.control_client import Client, SupervisorDown


@pytest.mark.parametrize(("command", "state"), [("abandon 0", "stopped"), ("abandon 3", "running")])
def test_a_child_that_keeps_the_terminal_open(box, command, state):
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    box.say("one", command)
    box.until(lambda: box.view("one")["lastExit"])
    box.wait("one", state)
    assert box.view("one")["lastExit"]["cause"] == f"exit {command[-1]}"
    assert len(box.ready(view["id"], 1 if state == "stopped" else 2)) <= 2


def test_a_killed_pane_comes_back(box):
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    box.tmux_run("kill-pane", "-t", "=one:")
    assert box.ready(view["id"], 2)
    assert box.wait("one", "running")["lastExit"]["cause"] == "vanished"


def test_a_window_of_the_user_beside_the_agent(box):
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    agent = box.tmux_run("list-panes", "-t", "=one:", "-F", "#{pane_id}").strip()
    mine = box.tmux_run("new-window", "-P", "-F", "#{pane_pid}", "-t", "=one:", "sleep 300").strip()
    os.kill(view["pid"], signal.SIGKILL)
    box.ready(view["id"], 2)
    again = box.wait("one", "running")
    assert Path(f"/proc/{mine}").exists()
    # Its pane closed by hand, the user's window open: the agent gets a new window.
    box.tmux_run("kill-pane", "-t", agent)
    box.ready(view["id"], 3)
    box.until(lambda: box.view("one")["pid"] not in (None, again["pid"], int(mine)))
    assert Path(f"/proc/{mine}").exists()
    box.say("one", "print still me")
    box.until(lambda: "still me" in box.call("logs", name="one")["text"])
    box.call("rm", name="one")
    box.until(lambda: not Path(f"/proc/{mine}").exists())
    assert not box.sessions()


def test_a_session_renamed_by_hand_is_called_back(box):
    view = box.call("add", name="one", prompt="go")["session"]
    box.ready(view["id"])
    box.tmux_run("rename-session", "-t", "=one", "other")
    box.until(lambda: box.tmux_run("list-sessions", "-F", "#{session_name}").split() == ["one"])
    assert box.view("one")["pid"] == view["pid"]
    assert list(box.sessions()) == ["one"]
    assert len(box.launches(view["id"])) == 1


def test_foreign_sessions_are_shown_and_never_touched(box):
    box.tmux_run("new-session", "-d", "-s", "mine", "sleep 300")
    box.tmux_run("new-session", "-d", "-s", "a|b", "sleep 300")
    view = box.until(lambda: box.sessions().get("mine"))
    assert view["state"] == "unmanaged"
    assert "a|b" in box.sessions()
    box.call("add", name="one", agent="shell")
    box.call("restart", all=True, includeStopped=True)
    box.kill_supervisor()
    box.start_supervisor()
    assert box.view("mine")["pid"] == view["pid"]
    os.kill(view["pid"], 0)


def test_a_foreign_session_with_a_listed_name_is_left_alone(box):
    box.tmux_run("new-session", "-d", "-s", "one", "sleep 300")
    pid = box.until(lambda: box.sessions().get("one"))["pid"]
    box.call("add", name="one", agent="shell", wait=False)
    failed = box.wait("one", "failed")
    assert "did not start" in failed["reason"]
    for op in ("stop", "start", "restart"):
        box.call(op, name="one")
    box.wait("one", "failed")
    os.kill(pid, 0)
    box.tmux_run("rename-session", "-t", "=one", "moved")
    running = box.wait("one", "running")
    assert running["pid"] != pid
    assert box.view("moved")["pid"] == pid
    box.call("rm", name="one")
    assert box.view("moved")["state"] == "unmanaged"


def test_rm_of_a_blocked_name_leaves_the_foreign_session(box):
    box.tmux_run("new-session", "-d", "-s", "one", "sleep 300")
    box.call("add", name="one", agent="shell", wait=False)
    box.wait("one", "failed")
    box.call("rm", name="one")
    assert box.wait("one", "unmanaged")["agent"] == "-"


def test_a_stubborn_program_is_killed(box):
    view = box.call("add", name="one", agent="shell")["session"]
    box.say("one", "trap '' HUP TERM INT; echo set-\"up\"")
    box.until(lambda: "set-up" in box.call("logs", name="one")["text"])
    box.call("rm", name="one")
    box.until(lambda: not Path(f"/proc/{view['pid']}").exists())


def test_a_stopped_program_can_be_removed(box):
    view = box.call("add", name="one", agent="shell")["session"]
    os.kill(view["pid"], signal.SIGSTOP)
    box.call("rm", name="one")
    box.until(lambda: not Path(f"/proc/{view['pid']}").exists())


def test_running_is_said_with_the_process(make_box):
    """The launcher may be heard before a slow tmux has told which process it started."""
    box = make_box()
    slow = box.root / "slow-tmux"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *list-panes*) sleep 0.3 ;; esac\nexec '
        f'{shutil.which("tmux")} "$@"\n'
    )
    slow.chmod(0o755)
    document = json.loads(box.config_path.read_text())
    document["programs"]["tmux"] = str(slow)
    box.config_path.write_text(json.dumps(document))
    box.start()
    views: list[dict] = []

    def hear() -> None:
        with contextlib.suppress(SupervisorDown), Client(box.run_dir, 60.0) as client:
            views.extend(
                event["session"] for event in client.subscribe() if event.get("event") == "session"
            )

    threading.Thread(target=hear, daemon=True).start()
    box.call("add", name="one", wait=False)
    waited = box.call("wait", name="one", states=["running"], timeout=20)["session"]
    assert waited["pid"] is not None
    os.kill(waited["pid"], signal.SIGKILL)
    box.until(lambda: any(view["pid"] not in (None, waited["pid"]) for view in views))
    seen = [*views, *box.sessions().values()]
    assert [view for view in seen if view["state"] == "running" and view["pid"] is None] == []
    assert "starting" in {view["state"] for view in views}
