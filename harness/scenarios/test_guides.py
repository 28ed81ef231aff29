"""Agents are told about the box where they look for it, and nowhere else."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agent_box_harness.box import Box

GUIDE = "/etc/agent-box-guides/AGENTS.alice.md"

PLACES = {
    "claude": ".claude/CLAUDE.md",
    "codex": ".codex/AGENTS.md",
    "opencode": ".config/opencode/AGENTS.md",
    "pi": ".pi/agent/AGENTS.md",
}
"""Where each agent looks for instructions of its user."""


@pytest.mark.renewed
def test_guides(box: Box) -> None:
    """The guide names the user's own addresses and cannot be changed; every agent is led to
    it unless the user has instructions already, and a project's checkout gets nothing.
    """
    home = box.home("alice")
    guide = box.in_session("alice", f"cat {GUIDE}").check("guide").out
    for text in (
        "https://box.test/alice/",
        "agent-box-site add",
        "agent-box-webhook subscribe",
        "agent-box-session",
        "downloads",
    ):
        assert text in guide
    assert "bob" not in guide
    assert box.in_session("alice", f"echo x >>{GUIDE}").rc != 0
    assert box.as_user("alice", f"echo x >>{GUIDE}").rc != 0

    for agent in PLACES:
        box.use_stub(agent)
        box.sign_in("alice", agent)
    project = f"{home}/project"
    box.as_user("alice", f"git init -q {project}").check("git init")
    for agent, place in PLACES.items():
        add = f"agent-box-session add {agent}-x --agent {agent} --cwd {project}"
        box.as_user("alice", add).check(add)
        assert box.as_user("alice", f"readlink {home}/{place}").out.strip() == GUIDE
        assert box.in_session("alice", f"cat {home}/{place}").out == guide
        assert box.succeed(f"stat -c %U {home}/{place}").strip() == "alice"
        # words of the user's own stay
        own = f"cd {home} && rm {place} && echo mine >{place}"
        box.as_user("alice", own).check(own)
        box.as_user("alice", f"agent-box-session restart {agent}-x").check("restart")
        box.wait_session("alice", f"{agent}-x", "running")
        assert box.as_user("alice", f"cat {home}/{place}").out == "mine"
    status = f"git -C {shlex.quote(project)} status --porcelain --ignored"
    assert box.as_user("alice", status).check("git status").out == ""

    # settings that are kept in a repository
    box.as_user("alice", f"cd {home}/.claude && rm CLAUDE.md && git init -q").check("git init")
    box.as_user("alice", "agent-box-session restart claude-x").check("restart")
    box.wait_session("alice", "claude-x", "running")
    assert box.run(f"test -L {home}/.claude/CLAUDE.md").rc != 0
