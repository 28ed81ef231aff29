"""A session with a home of its own, as the supervisor would hand it to an adapter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from agent_box.agents.base import Context

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = "0b5f9d3e-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
SESSION = "11111111-2222-4333-8444-555555555555"


@dataclass
class Config:
    command: str
    full_access: bool = False
    remote_control: str | None = None


@dataclass
class FakeBox:
    agents: dict[str, Config] = field(
        default_factory=lambda: {
            name: Config(f"/bin/{name}") for name in ("claude", "codex", "opencode", "pi")
        }
    )
    host_label: str | None = "nixos"
    plugin: str | None = None

    def plugin_of(self, user: str) -> str | None:
        return self.plugin


@dataclass
class FakeUser:
    home: Path
    name: str = "alice"
    shell: str = "/bin/bash"


@dataclass
class FakeEntry:
    agent: str = "claude"
    working_directory: str = "/home/alice/work"
    skip_permissions: bool = True
    remote_control: bool = True
    remote_control_name: str | None = None
    extra_args: list[str] = field(default_factory=list)
    initial_prompt: str | None = None
    resume_prompt: str | None = None


@dataclass
class FakeRecord:
    launch_id: str = LAUNCH
    conversation: str | None = None
    launched: bool = False
    delivered: bool = False
    started_at: float = 0.0


@pytest.fixture
def ctx(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return make_context(home)


def make_context(home):
    return Context(
        box=FakeBox(),
        user=FakeUser(home),
        name="main",
        id=SESSION,
        entry=FakeEntry(),
        record=FakeRecord(),
        env={},
    )


def entry(ctx, **changes):
    """Return the context with other fields in its registry entry."""
    return replace(ctx, entry=replace(ctx.entry, **changes))


def record(ctx, **changes):
    """Return the context with other fields in its side state."""
    return replace(ctx, record=replace(ctx.record, **changes))
