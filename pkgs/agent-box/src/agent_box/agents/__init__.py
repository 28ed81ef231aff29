"""The agents: one module each, loaded when the first session needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_box.agents.base import Agent

#: Every agent that a session can name. "shell" is always available, the others when installed.
NAMES = ("claude", "codex", "opencode", "pi", "shell")

_loaded: dict[str, Agent] = {}


def get(name: str) -> Agent:
    """Return the adapter called `name`; KeyError when there is none."""
    agent = _loaded.get(name)
    if agent is None:
        if name not in NAMES:
            raise KeyError(name)
        # Spelled out rather than computed: packagers and type checkers can follow it.
        if name == "claude":
            from agent_box.agents.claude import AGENT as agent
        elif name == "codex":
            from agent_box.agents.codex import AGENT as agent
        elif name == "opencode":
            from agent_box.agents.opencode import AGENT as agent
        elif name == "pi":
            from agent_box.agents.pi import AGENT as agent
        else:
            from agent_box.agents.shell import AGENT as agent
        _loaded[name] = agent
    return agent
