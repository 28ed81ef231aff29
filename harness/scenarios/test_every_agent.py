"""Every agent gets its kickoff prompt, and gets it once, whatever ends in between.

What a power cut leaves of that is proven in test_power_cut.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

USER = "alice"
AGENTS = ("claude", "codex", "opencode", "pi")


@pytest.mark.renewed(touches=("alice",))
def test_what_is_killed_resumes(box: Box) -> None:
    """Agents that are killed, alone, with their supervisor or with the terminal server, come back
    in their conversations; none is given its task again.
    """
    _add(box)
    conversations = _given(box)
    for count, victims in enumerate((_agents, _agents_and_supervisor, _server), 2):
        # The prompts are delivered, and whoever asks is told so.
        assert not any(view["promptPending"] for view in _views(box).values())
        box.succeed(f"kill -9 {' '.join(map(str, victims(box)))}")
        _launched(box, count)
        assert _last_conversations(box) == conversations
    assert _given(box) == conversations


@pytest.mark.renewed(touches=("alice",))
def test_who_dies_before_its_task_is_told_again(box: Box) -> None:
    """An agent that is killed before it has stored its task is given it at its next start, also by
    another supervisor; once.
    """
    box.stub_on_start(USER, "kill 9")
    _add(box)
    _launched(box, 2)
    assert all(view["promptPending"] for view in _views(box).values())
    box.succeed(f"kill -9 {outside.main_pid(box, outside.supervisor(USER))}")
    _launched(box, 3)
    assert box.stub_prompts(USER) == []
    box.stub_on_start(USER)
    _given(box)
    for agent in AGENTS:
        box.wait_session(USER, agent, "running")
    assert not any(view["promptPending"] for view in _views(box).values())
    _given(box)


@pytest.mark.needs("reboot")
def test_a_reboot_costs_no_task(box: Box) -> None:
    """After a reboot every agent goes on with its conversation; none is given its task again."""
    _add(box)
    conversations = _given(box)
    box.reboot()
    box.wait_ready()
    _launched(box, 2)
    assert _last_conversations(box) == conversations
    for agent in AGENTS:
        box.wait_session(USER, agent, "running")
    assert _given(box) == conversations


def _add(box: Box) -> None:
    """Add a session of each agent, called as it is, with a kickoff prompt."""
    for agent in AGENTS:
        box.use_stub(agent)
        added = box.ctl(USER, f"add {agent} --agent {agent} --prompt 'task of {agent}'")
        assert added.rc == 0, added


def _given(box: Box) -> dict[str, str]:
    """Wait until each agent has its task, once; return its conversation."""

    def tasks() -> list[dict[str, Any]]:
        return [item for item in box.stub_prompts(USER) if "task of " in item["prompt"]]

    box.wait_for("each task", lambda: {item["agent"] for item in tasks()} == set(AGENTS))
    found = tasks()
    assert sorted(item["prompt"].rpartition("task of ")[2] for item in found) == list(AGENTS)
    return {item["agent"]: item["id"] for item in found}


def _launches(box: Box) -> dict[str, list[dict[str, Any]]]:
    launches: dict[str, list[dict[str, Any]]] = {agent: [] for agent in AGENTS}
    for item in box.stub_launches(USER):
        launches[item["argv"][0].rpartition("/")[2]].append(item)
    return launches


def _launched(box: Box, count: int) -> None:
    box.wait_for(
        f"launch {count} of each agent",
        lambda: all(len(launches) >= count for launches in _launches(box).values()),
        timeout=30,
    )


def _last_conversations(box: Box) -> dict[str, str]:
    return {agent: launches[-1]["id"] for agent, launches in _launches(box).items()}


def _views(box: Box) -> dict[str, dict[str, Any]]:
    return {view["name"]: view for view in box.sessions(USER) if view["name"] in AGENTS}


def _agents(box: Box) -> list[int]:
    return [view["pid"] for view in _views(box).values()]


def _agents_and_supervisor(box: Box) -> list[int]:
    return [outside.main_pid(box, outside.supervisor(USER)), *_agents(box)]


def _server(box: Box) -> list[int]:
    return [outside.main_pid(box, outside.sandbox(USER))]
