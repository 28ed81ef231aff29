"""A command that is given inside a session is carried out whole, even when it ends its sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed(touches=("alice",))

USER = "alice"


@pytest.mark.parametrize("way", ["typed into a shell", "run by an agent", "detached"])
def test_a_session_removes_itself(box: Box, way: str) -> None:
    """`rm` of its own session, by a shell, by an agent's child, or by a child that left the
    terminal: list, processes, control group, side state and launch files are gone afterwards.
    """
    view = _session(box, "self", "claude" if way == "run by an agent" else "shell")
    other = box.wait_session(USER, "main", "running")
    if way == "run by an agent":
        box.stub_command(USER, "run agent-box-session rm self")
    elif way == "detached":
        box.ctl(USER, "send self 'setsid -f agent-box-session rm self >/dev/null 2>&1'").check()
    else:
        box.ctl(USER, "send self 'agent-box-session rm self'").check()
    _gone(box, view)
    assert set(box.registry(USER)["sessions"]) == {"main"}
    assert box.session(USER, "main")["pid"] == other["pid"]
    assert box.ctl(USER, "status").rc == 0


def test_several_are_removed_from_inside_one(box: Box) -> None:
    """`rm` of several sessions from inside the first of them removes them all."""
    views = [_session(box, name, "shell") for name in ("self", "second", "third")]
    box.ctl(USER, "send self 'agent-box-session rm self second third'").check()
    for view in views:
        _gone(box, view)
    assert set(box.registry(USER)["sessions"]) == {"main"}


def test_restart_all_from_inside(box: Box) -> None:
    """`restart --all` from inside a session restarts every session that is not stopped, its own
    included; agents resume their conversation.
    """
    views = [_session(box, "self", "shell"), _session(box, "work", "claude", "first task")]
    views.append(box.wait_session(USER, "main", "running"))
    _session(box, "parked", "shell")
    box.ctl(USER, "stop parked").check()
    box.ctl(USER, "send self 'agent-box-session restart --all'").check()
    for view in views:
        _another(box, view)
        assert box.wait_session(USER, view["name"], "running")["id"] == view["id"]
    assert box.session(USER, "parked")["state"] == "stopped"
    box.wait_for("the resumed agent", lambda: len(box.stub_launches(USER)) == 2)
    assert box.stub_launches(USER)[1]["resumed"] is True
    # Once, not again and again.
    settled = {view["name"]: view["pid"] for view in box.sessions(USER)}
    box.sleep(3)
    assert {view["name"]: view["pid"] for view in box.sessions(USER)} == settled


def test_an_agent_restarts_itself(box: Box) -> None:
    """`restart` of its own session by an agent's child: it is back with its conversation."""
    view = _session(box, "work", "claude", "first task")
    box.stub_command(USER, "run agent-box-session restart work")
    _another(box, view)
    box.wait_for("the resumed agent", lambda: len(box.stub_launches(USER)) == 2)
    assert box.stub_launches(USER)[1]["id"] == view["id"]
    assert box.stub_launches(USER)[1]["resumed"] is True


def test_a_session_stops_itself(box: Box) -> None:
    """`stop` of its own session parks it: it stays listed, nothing of it runs, `start` works."""
    view = _session(box, "self", "shell")
    box.ctl(USER, "send self 'agent-box-session stop self'").check()
    box.wait_session(USER, "self", "stopped")
    box.wait_for("its end", lambda: not outside.alive(box, view["pid"]))
    assert "self" not in outside.panes(box, USER)
    assert box.registry(USER)["sessions"]["self"]["stopped"] is True
    box.ctl(USER, "start self").check()
    box.wait_session(USER, "self", "running")


def test_a_session_renames_itself(box: Box) -> None:
    """`rename` of its own session: the process goes on, and it still finds itself afterwards."""
    view = _session(box, "self", "shell")
    box.ctl(USER, "send self 'agent-box-session rename self desk'").check()
    after = box.wait_session(USER, "desk", "running")
    assert after["pid"] == view["pid"]
    assert after["id"] == view["id"]
    box.wait_for("tmux to follow", lambda: set(outside.panes(box, USER)) == {"main", "desk"})
    box.ctl(USER, "send desk 'agent-box-session rm desk'").check()
    _gone(box, view)


def test_a_session_adds_another(box: Box) -> None:
    """A session can start another one, which outlives it."""
    view = _session(box, "self", "shell")
    box.ctl(USER, "send self 'agent-box-session add child --agent shell'").check()
    child = box.wait_session(USER, "child", "running")
    box.ctl(USER, "rm self").check()
    _gone(box, view)
    assert box.session(USER, "child")["pid"] == child["pid"]
    assert outside.alive(box, child["pid"])


def _session(box: Box, name: str, agent: str, prompt: str | None = None) -> dict[str, Any]:
    words = f"add {name} --agent {agent}"
    if agent == "shell":
        box.ctl(USER, words).check(words)
        box.wait_for("the shell's prompt", lambda: box.pane_text(USER, name).strip())
    else:
        box.use_stub(agent)
        words += f" --prompt '{prompt}'" if prompt else ""
        box.ctl(USER, words).check(words)
        box.wait_for("the agent", lambda: "stub: ready" in box.pane_text(USER, name))
    return box.wait_session(USER, name, "running")


def _another(box: Box, view: dict[str, Any]) -> None:
    box.wait_for(
        f"another process of {view['name']}",
        lambda: box.session(USER, view["name"])["pid"] not in (None, view["pid"]),
    )
    assert not outside.alive(box, view["pid"])


def _gone(box: Box, view: dict[str, Any]) -> None:
    """Wait until nothing of a session is left; fails telling what is."""
    ident = view["id"]
    group = f"{outside.group(box, outside.sandbox(USER))}/session-{ident}"
    state = f"{box.home(USER)}/.local/state/agent-box"
    look = (
        f"grep -o {ident} {box.home(USER)}/.config/agent-box/sessions.json; "
        f"ls -d {group} {state}/sessions/{ident}* {state}/logs/{ident} {state}/prompts/{ident}* "
        f"/run/agent-box-{USER}/launch/{ident}* 2>/dev/null; "
        f"ps -o pid=,args= -p {view['pid']}"
    )
    box.wait_for(f"nothing of {view['name']} to be left", lambda: box.run(look).out == "")
    assert ident not in {listed["id"] for listed in box.sessions(USER)}
    assert view["pid"] not in {pane.pid for pane in outside.panes(box, USER).values()}
