"""The supervisor can be restarted, be killed or hang, and no session notices."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed(touches=("alice",))

USER = "alice"
UNIT = outside.supervisor(USER)


@pytest.mark.parametrize("how", ["restart", "kill -9", "stop for a while"])
def test_panes_survive_the_supervisor(box: Box, how: str) -> None:
    """Whether the supervisor is restarted, killed or stopped for a while: every pane keeps its
    process and its screen, the successor adopts them all, and watches over them from then on.
    """
    views = _prepare(box)
    before = {name: box.pane_text(USER, name) for name in views}
    old = outside.main_pid(box, UNIT)
    if how == "restart":
        box.succeed(f"systemctl restart {UNIT}")
    elif how == "kill -9":
        box.succeed(f"kill -9 {old}")
    else:
        box.succeed(f"systemctl stop {UNIT}")
        # The list stays readable meanwhile.
        assert {view["name"] for view in box.sessions(USER)} == set(views)
        box.succeed(f"systemctl start {UNIT}")
    _replaced(box, old)
    after = {name: box.wait_session(USER, name, "running") for name in views}
    assert {name: view["pid"] for name, view in after.items()} == {
        name: view["pid"] for name, view in views.items()
    }
    assert {name: pane.pid for name, pane in outside.panes(box, USER).items()} == {
        name: view["pid"] for name, view in views.items()
    }
    assert {name: box.pane_text(USER, name) for name in views} == before
    assert len(box.stub_launches(USER)) == 1
    assert len(box.stub_prompts(USER)) == 1
    assert outside.restarts(box, UNIT) == (1 if how == "kill -9" else 0)
    assert outside.restarts(box, outside.sandbox(USER)) == 0

    # Adopted means watched over: the successor brings back what ends.
    box.succeed(f"kill -9 {views['work']['pid']}")
    box.wait_for("the next launch", lambda: len(box.stub_launches(USER)) == 2)
    back = box.wait_session(USER, "work", "running")
    assert back["lastExit"]["cause"] == "killed by SIGKILL"
    assert box.stub_launches(USER)[1]["resumed"] is True


@pytest.mark.limit(180)
def test_watchdog_replaces_a_hung_supervisor(
    box: Box, measured: Callable[[str, float], None]
) -> None:
    """A supervisor that hangs (SIGSTOP) is replaced by its watchdog within its 30 s and a
    little; meanwhile the list is answered within 5 s and says so, and every pane lives on.
    """
    views = _prepare(box)
    old = outside.main_pid(box, UNIT)
    box.succeed(f"kill -STOP {old}")
    began = time.monotonic()
    listing = box.ctl(USER, "ls --json")
    assert listing.rc == 0, listing
    assert time.monotonic() - began < 5 * box.time_factor
    answer = json.loads(listing.out)
    assert {view["name"]: view["state"] for view in answer["sessions"]} == dict.fromkeys(
        views, "running"
    )
    assert any("does not answer" in problem for problem in answer["problems"])

    box.wait_for("another supervisor", lambda: outside.main_pid(box, UNIT) != old, timeout=60)
    measured("SIGSTOP to another supervisor", time.monotonic() - began)
    box.wait_for("its answer", lambda: box.ctl(USER, "status").rc == 0)
    for name, view in views.items():
        assert box.wait_session(USER, name, "running")["pid"] == view["pid"]
    assert json.loads(box.ctl(USER, "ls --json").check().out)["problems"] == []
    assert outside.restarts(box, UNIT) == 1
    assert len(box.stub_launches(USER)) == 1


def test_ends_are_noticed_afterwards(box: Box) -> None:
    """What ends while there is no supervisor is dealt with by the next one: exit 0 is parked,
    a killed agent comes back, both with their cause.
    """
    _prepare(box)
    left = _stub(box, "left", None)
    killed = box.session(USER, "work")
    box.succeed(f"systemctl stop {UNIT}")
    box.stub_command(USER, "exit 0", left["id"])
    box.succeed(f"kill -9 {killed['pid']}")
    box.wait_for("the end of one", lambda: not outside.alive(box, left["pid"]))
    box.succeed(f"systemctl start {UNIT}")

    parked = box.wait_session(USER, "left", "stopped")
    assert parked["lastExit"]["cause"] == "exit 0"
    box.wait_for("the next launch", lambda: len(box.stub_launches(USER)) == 3)
    back = box.wait_session(USER, "work", "running")
    assert back["lastExit"]["cause"] == "killed by SIGKILL"
    assert box.stub_launches(USER)[2]["id"] == killed["id"]
    assert [item["prompt"] for item in box.stub_prompts(USER)].count("first task") == 1


def test_changes_without_a_supervisor(box: Box) -> None:
    """With the supervisor down, sessions can still be added, removed, stopped and renamed; the
    answer says when that takes effect, and the supervisor carries it out when it is back.
    """
    _prepare(box)
    box.ctl(USER, "add gone --agent shell").check()
    box.ctl(USER, "add parked --agent shell").check()
    gone, parked = box.session(USER, "gone"), box.session(USER, "parked")
    main = box.session(USER, "main")
    box.succeed(f"systemctl stop {UNIT}")
    added = box.ctl(USER, "add fresh --agent shell").check()
    box.expect_in(added.err, "takes effect when the supervisor runs again")
    box.ctl(USER, "rm gone").check()
    box.ctl(USER, "stop parked").check()
    box.ctl(USER, "rename main desk").check()
    box.succeed(f"systemctl start {UNIT}")

    box.wait_session(USER, "fresh", "running")
    assert box.wait_session(USER, "desk", "running")["pid"] == main["pid"]
    assert box.wait_session(USER, "parked", "stopped")["pid"] is None
    assert {view["name"] for view in box.sessions(USER)} == {"work", "desk", "fresh", "parked"}
    for view in (gone, parked):
        assert not outside.alive(box, view["pid"])


def test_edits_by_hand_without_a_supervisor(box: Box) -> None:
    """What was delisted by hand while there is no supervisor is ended by the next one, what was
    listed is started, and what its owner started in tmux is left alone.
    """
    views = _prepare(box)
    box.succeed(f"systemctl stop {UNIT}")
    box.tmux(USER, "new-session -d -s own sleep 1000").check()
    document = box.registry(USER)
    del document["sessions"]["work"]
    document["sessions"]["typed"] = {"agent": "shell"}
    path = f"{box.home(USER)}/.config/agent-box/sessions.json"
    box.write_file(path, json.dumps(document), 0o600, f"{USER}:{USER}")
    box.succeed(f"systemctl start {UNIT}")

    box.wait_session(USER, "typed", "running")
    box.wait_for("the end of work", lambda: not outside.alive(box, views["work"]["pid"]))
    assert box.session(USER, "own")["state"] == "unmanaged"
    assert box.session(USER, "main")["pid"] == views["main"]["pid"]
    assert set(outside.panes(box, USER)) == {"main", "typed", "own"}


def _prepare(box: Box) -> dict[str, dict[str, Any]]:
    """A shell with something on its screen, and a stub that has had its prompt; their views."""
    work = _stub(box, "work", "first task")
    box.wait_session(USER, "main", "running")
    box.ctl(USER, "send main 'echo still-$((40 + 2))'").check()
    box.wait_for("the shell", lambda: "still-42" in box.pane_text(USER, "main"))
    return {"work": work, "main": box.session(USER, "main")}


def _stub(box: Box, name: str, prompt: str | None) -> dict[str, Any]:
    box.use_stub("claude")
    box.ctl(
        USER, f"add {name} --agent claude" + (f" --prompt '{prompt}'" if prompt else "")
    ).check()
    box.wait_for(f"{name} to be ready", lambda: "stub: ready" in box.pane_text(USER, name))
    return box.wait_session(USER, name, "running")


def _replaced(box: Box, old: int) -> None:
    box.wait_for("another supervisor", lambda: outside.main_pid(box, UNIT) != old)
    box.wait_for("its answer", lambda: box.ctl(USER, "status").rc == 0)
