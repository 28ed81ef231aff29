"""The terminal server can hang or die; the list says so, and the sessions come back."""

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
SILENCE = 30.0  # seconds that the server is stopped for, as the guest's clock counts them


@pytest.mark.limit(180)
def test_a_server_that_hangs(box: Box, measured: Callable[[str, float], None]) -> None:
    """While the terminal server is stopped (SIGSTOP) for 30 s, `ls` answers within 3 s and says
    so, no second server appears, the supervisor stays and other users notice nothing; when the
    server goes on, every session is there with the process it had.
    """
    views = _prepare(box)
    server = outside.main_pid(box, outside.sandbox(USER))
    supervisor = outside.main_pid(box, outside.supervisor(USER))
    began = time.monotonic()
    box.succeed(f"kill -STOP {server}")
    longest, looks = 0.0, 0
    while time.monotonic() - began < SILENCE:
        asked = time.monotonic()
        answer = json.loads(box.ctl(USER, "ls --json").check().out)
        longest, looks = max(longest, time.monotonic() - asked), looks + 1
        assert {view["name"] for view in answer["sessions"]} == set(views)
        assert any("does not answer" in problem for problem in answer["problems"]), answer
        status = box.ctl(USER, "status --json")
        assert status.rc == 1
        assert json.loads(status.out).get("server", {}).get("state") == "not-answering"
        assert _tmux_programs(box) == [server]
        assert box.ctl("bob", "status").rc == 0
        time.sleep(2)
    measured("longest ls while the server hangs", longest)
    assert looks >= 3
    assert longest < 3.0 * box.time_factor

    box.succeed(f"kill -CONT {server}")
    box.wait_for("all to be well", lambda: box.ctl(USER, "status").rc == 0)
    for name, view in views.items():
        assert box.wait_session(USER, name, "running")["pid"] == view["pid"]
    assert outside.main_pid(box, outside.sandbox(USER)) == server
    assert outside.main_pid(box, outside.supervisor(USER)) == supervisor
    assert outside.restarts(box, outside.supervisor(USER)) == 0
    assert len(box.stub_launches(USER)) == 1
    box.ctl(USER, "send main 'echo back-$((40 + 2))'").check()
    box.wait_for("the shell", lambda: "back-42" in box.pane_text(USER, "main"))


def test_changes_while_the_server_hangs(box: Box) -> None:
    """While the server hangs a removed session ends; what is added is written down at once and
    starts when the server goes on.
    """
    views = _prepare(box)
    server = outside.main_pid(box, outside.sandbox(USER))
    box.succeed(f"kill -STOP {server}")
    box.ctl(USER, "add later --agent shell --no-wait").check()
    box.ctl(USER, "rm main").check()
    assert not outside.alive(box, views["main"]["pid"])
    listed = box.registry(USER)["sessions"]
    assert set(listed) == {"work", "later"}
    box.succeed(f"kill -CONT {server}")
    box.wait_session(USER, "later", "running")
    box.wait_for("the end of its pane", lambda: set(outside.panes(box, USER)) == {"work", "later"})
    assert box.session(USER, "work")["pid"] == views["work"]["pid"]


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_a_server_that_dies(box: Box, signal: str, measured: Callable[[str, float], None]) -> None:
    """When the terminal server dies, another one is there at once; agents come back by resuming
    their conversation, shells fresh, under the ids they had, and no prompt is given twice.
    """
    views = _prepare(box)
    box.ctl(USER, "add parked --agent shell").check()
    box.ctl(USER, "stop parked").check()
    server = outside.main_pid(box, outside.sandbox(USER))
    began = time.monotonic()
    box.succeed(f"kill -{signal} {server}")
    box.wait_for("the next launch", lambda: len(box.stub_launches(USER)) == 2)
    measured("server killed to agent resumed", time.monotonic() - began)
    back = {name: box.wait_session(USER, name, "running") for name in views}
    assert {name: view["id"] for name, view in back.items()} == {
        name: view["id"] for name, view in views.items()
    }
    for name, view in views.items():
        assert back[name]["pid"] != view["pid"]
        assert not outside.alive(box, view["pid"])
        assert back[name]["lastExit"] is not None
    launch = box.stub_launches(USER)[1]
    assert launch["resumed"] is True
    assert launch["id"] == views["work"]["id"]
    assert [item["prompt"] for item in box.stub_prompts(USER)].count("first task") == 1
    assert box.session(USER, "parked")["state"] == "stopped"
    assert _tmux_programs(box) == [outside.main_pid(box, outside.sandbox(USER))]
    assert set(outside.panes(box, USER)) == set(views)


def test_a_server_that_is_ended_from_inside(box: Box) -> None:
    """`tmux kill-server`, typed by the user into a session, ends no more than what is there: the
    sessions come back.
    """
    views = _prepare(box)
    box.ctl(USER, "send main 'tmux kill-server'").check()
    box.wait_for("the next launch", lambda: len(box.stub_launches(USER)) == 2)
    for name, view in views.items():
        back = box.wait_session(USER, name, "running")
        assert back["id"] == view["id"]
        assert back["pid"] != view["pid"]
    assert box.stub_launches(USER)[1]["resumed"] is True


def test_a_session_that_is_ended_in_tmux(box: Box) -> None:
    """`tmux kill-session` does not delist a session: it comes back, and says that it vanished."""
    views = _prepare(box)
    box.tmux(USER, "kill-session -t =work").check()
    box.wait_for("the next launch", lambda: len(box.stub_launches(USER)) == 2)
    back = box.wait_session(USER, "work", "running")
    assert back["lastExit"]["cause"] == "vanished"
    assert box.stub_launches(USER)[1]["resumed"] is True
    assert box.session(USER, "main")["pid"] == views["main"]["pid"]


def _prepare(box: Box) -> dict[str, dict[str, Any]]:
    """A stub that has had its prompt, and the shell of the seed; their views."""
    box.use_stub("claude")
    box.ctl(USER, "add work --agent claude --prompt 'first task'").check()
    box.wait_for("the agent", lambda: "stub: ready" in box.pane_text(USER, "work"))
    return {name: box.wait_session(USER, name, "running") for name in ("work", "main")}


def _tmux_programs(box: Box) -> list[int]:
    """Processes of the user that serve terminals: clients live for a moment only."""
    return outside.servers(box, USER)
