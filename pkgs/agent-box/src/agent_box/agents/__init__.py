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
    if name not in NAMES:
        raise KeyError(name)
    if name not in _loaded:
        import importlib

        # Not at the top: a user who runs claude need not hold the others in memory.
        _loaded[name] = importlib.import_module(f"agent_box.agents.{name}").AGENT
    return _loaded[name]
