"""The agents: one module each, loaded when the first session needs it.

A module of this package with an `AGENT` is an adapter. A new one needs nothing else here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_box.agents.base import Agent

_loaded: dict[str, Agent] = {}


def get(name: str) -> Agent:
    """Return the adapter called `name`; KeyError when there is none."""
    if name not in _loaded:
        # A name comes from a registry: never anything but a module of this very package.
        if not (name.isascii() and name.isidentifier()):
            raise KeyError(name)
        # Not at the top: a user who runs claude need not hold the others in memory.
        try:
            module = importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            raise KeyError(name) from None
        agent: Agent | None = getattr(module, "AGENT", None)
        if agent is None:
            raise KeyError(name)
        _loaded[name] = agent
    return _loaded[name]


def names() -> list[str]:
    """Return every agent that this version can drive, installed or not; loads them all."""
    import pkgutil

    found = []
    for module in pkgutil.iter_modules(__path__):
        try:
            found.append(get(module.name).name)
        except KeyError:
            continue  # it helps the adapters
    return sorted(found)
