"""What follows from the end of a session's program: parked, brought back, or given up."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed(touches=("alice",))

USER = "alice"


def test_exit_0_parks(box: Box) -> None:
    """An agent that exits 0 is parked: it stays listed as stopped, also after a restart of the
    supervisor, until somebody starts it; then it resumes its conversation.
    """
    view = _add(box, "work", prompt="first task")
    box.stub_command(USER, "exit 0")
    parked = box.wait_session(USER, "work", "stopped")
    assert parked["lastExit"]["cause"] == "exit 0"
    assert parked["pid"] is None
    assert not outside.alive(box, view["pid"])
    box.wait_for("it to be written down", lambda: _listed(box, "work").get("stopped") is True)
    box.succeed(f"systemctl restart {outside.supervisor(USER)}")
    box.sleep(3)
    assert box.session(USER, "work")["state"] == "stopped"
    assert len(box.stub_launches(USER)) == 1

    box.ctl(USER, "start work").check()
    _launched(box, 2)
    assert _resumes(box)[-1] == view["id"]
    assert "stopped" not in _listed(box, "work")
    assert [item["prompt"] for item in box.stub_prompts(USER)].count("first task") == 1


def test_exit_3_comes_back_later_each_time(box: Box) -> None:
    """An agent that exits 3 comes back at once and resumes; when it fails again and again, the
    delay grows, and `ls` tells the cause and the time of the next try.
    """
    view = _add(box, "work", prompt="first task")
    box.stub_on_start(USER, "exit 3")
    box.stub_command(USER, "exit 3")
    box.wait_for("five launches", lambda: len(box.stub_launches(USER)) >= 5, timeout=30)
    crashed = box.wait_session(USER, "work", "crashed")
    assert crashed["reason"] == "exit 3"
    assert crashed["nextRetry"] is not None
    exits = _exits(box, "work")
    launches = box.stub_launches(USER)
    assert _resumes(box)[1:5] == [view["id"]] * 4
    # From each end to the next start: at once, then at least 1, 2 and 4 seconds less a tenth.
    delays = [
        launch["at"] - exit_["at"] for launch, exit_ in zip(launches[1:], exits, strict=False)
    ]
    assert delays[0] < 2.0 * box.time_factor
    for delay, least in zip(delays[1:4], (0.9, 1.8, 3.6), strict=True):
        assert delay >= least

    # Once it lives for a while again, it is as any other.
    box.stub_on_start(USER)
    box.ctl(USER, "restart work").check()
    back = box.wait_session(USER, "work", "running")
    assert back["nextRetry"] is None


def test_kill_9_resumes(box: Box) -> None:
    """An agent that is killed comes back with its conversation; the kickoff prompt is not given
    a second time.
    """
    view = _add(box, "work", prompt="first task")
    for count in (2, 3):
        pid = box.session(USER, "work")["pid"]
        box.succeed(f"kill -9 {pid}")
        _launched(box, count)
        back = box.wait_session(USER, "work", "running")
        assert back["pid"] != pid
        assert back["id"] == view["id"]
        assert back["lastExit"]["cause"] == "killed by SIGKILL"
        assert back["restarts"] == count - 1
    assert _resumes(box) == [None, view["id"], view["id"]]
    box.wait_for("the word on the resume", lambda: len(box.stub_prompts(USER)) >= 3)
    assert [item["prompt"] for item in box.stub_prompts(USER)].count("first task") == 1


def test_missing_binary_fails_with_the_reason(box: Box) -> None:
    """A session whose program is missing is `failed` and says which; it is not tried again, its
    kickoff prompt is kept, and it starts when the program is there and somebody asks for it.
    """
    box.use_stub("claude")
    box.remove_agent("claude")
    added = box.ctl(USER, "add work --agent claude --prompt 'first task'")
    assert added.rc == 1
    box.expect_in(added.err, "is not installed")
    failed = box.wait_session(USER, "work", "failed")
    command = box.document["agents"]["claude"]["command"]
    assert failed["reason"] == f"the program {command} is not installed on this box"
    assert failed["promptPending"] is True
    box.expect_in(box.ctl(USER, "logs work").check(), "is not installed")

    tries = _starts(box, "work")
    assert tries == 1
    box.sleep(5)
    assert _starts(box, "work") == tries
    assert box.session(USER, "work")["state"] == "failed"
    assert box.session(USER, "main")["state"] == "running"

    box.use_stub("claude")
    box.ctl(USER, "restart work").check()
    box.wait_session(USER, "work", "running")
    box.wait_for("the prompt", lambda: len(box.stub_prompts(USER)) == 1)
    assert box.stub_prompts(USER)[0]["prompt"] == "first task"


def test_missing_directory_fails_with_the_reason(box: Box) -> None:
    """A session whose working directory is gone is `failed` and names it, and lives again once
    the directory is back and somebody asks for it.
    """
    home = box.home(USER)
    box.use_stub("claude")
    box.ctl(USER, f"add work --agent claude --cwd {home}/there --mkdir").check()
    box.ctl(USER, "stop work").check()
    box.as_user(USER, "rm -r there").check()
    started = box.ctl(USER, "start work")
    box.expect_in(started.err, f"{home}/there")
    failed = box.wait_session(USER, "work", "failed")
    assert f"{home}/there" in failed["reason"]
    box.as_user(USER, "mkdir there").check()
    box.ctl(USER, "restart work").check()
    box.wait_session(USER, "work", "running")
    _launched(box, 2)
    assert box.stub_launches(USER)[-1]["cwd"] == f"{home}/there"


def test_scrollback_of_ended_runs(box: Box) -> None:
    """What a run showed can be read after its end: of each run that crashed, of one that is
    parked, and beyond one screen.
    """
    _add(box, "work")
    for number in (1, 2):
        lines = f"for i in $(seq 1 120); do echo run-{number}-line-$i; done"
        box.stub_command(USER, f"run {lines}")
        _shows(box, "work", f"run-{number}-line-120")
        box.stub_command(USER, "exit 3")
        _launched(box, number + 1)
    for number, other in ((1, 2), (2, 1)):
        told = box.ctl(USER, f"logs work --run {number}")
        assert told.rc == 0, told
        text = told.out
        box.expect_in(text, f"run-{number}-line-1\n")
        box.expect_in(text, f"run-{number}-line-120")
        box.expect_not_in(text, f"run-{other}-line-")

    box.stub_command(USER, "print the last words")
    _shows(box, "work", "the last words")
    box.stub_command(USER, "exit 0")
    box.wait_session(USER, "work", "stopped")
    box.expect_in(box.ctl(USER, "logs work").check(), "the last words")


def test_shell_is_left_and_comes_back(box: Box) -> None:
    """Leaving a shell gives a fresh one, at once and as often as one likes."""
    view = box.wait_session(USER, "main", "running")
    box.sleep(1.5)
    for _ in range(3):
        box.ctl(USER, "send main exit").check()
        view = _fresh(box, view["pid"])
        assert view["state"] == "running"
        box.sleep(1.5)
    # No growing delay, and nothing to apologise for.
    assert view["nextRetry"] is None
    assert view["restarts"] == 3


def test_a_child_that_holds_the_terminal(box: Box) -> None:
    """An agent that dies while a child of it lives on comes back all the same, and the child,
    which belongs to the run that ended, does not hold the terminal for ever.
    """
    view = _add(box, "work", prompt="first task")
    box.stub_command(USER, "run setsid -f sleep 600 </dev/tty >/dev/tty 2>&1")
    box.wait_for("the child", lambda: outside.processes(box, USER, "^sleep 600$"))
    box.succeed(f"kill -9 {view['pid']}")
    _launched(box, 2)
    back = box.wait_session(USER, "work", "running")
    assert back["lastExit"]["cause"] == "killed by SIGKILL"
    _shows(box, "work", "stub: ready")


def _add(box: Box, name: str, *, prompt: str | None = None) -> dict[str, Any]:
    """Add a session of the stub and wait until it is at work; return its view."""
    box.use_stub("claude")
    words = f"add {name} --agent claude"
    box.ctl(USER, words + (f" --prompt {shlex.quote(prompt)}" if prompt else "")).check(words)
    view = box.wait_session(USER, name, "running")
    _shows(box, name, "stub: ready")
    return view


def _shows(box: Box, name: str, text: str) -> None:
    box.wait_for(f"{text!r} on the screen of {name}", lambda: text in box.pane_text(USER, name))


def _launched(box: Box, count: int) -> None:
    box.wait_for(f"launch {count} of a stub", lambda: len(box.stub_launches(USER)) == count)


def _fresh(box: Box, seen: int) -> dict[str, Any]:
    box.wait_for("a fresh shell", lambda: box.session(USER, "main")["pid"] not in (None, seen))
    return box.wait_session(USER, "main", "running")


def _listed(box: Box, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = box.registry(USER)["sessions"][name]
    return entry


def _resumes(box: Box) -> list[str | None]:
    """The conversation that each launch of a stub resumed."""
    return [item["id"] if item["resumed"] else None for item in box.stub_launches(USER)]


def _exits(box: Box, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(box.ctl(USER, f"show {name} --json").check().out)[
        "exits"
    ]
    return found


def _starts(box: Box, name: str) -> int:
    said = outside.journal(box, outside.supervisor(USER))
    return said.count(f"session {name}: started") + said.count(f"session {name}: resumed")
