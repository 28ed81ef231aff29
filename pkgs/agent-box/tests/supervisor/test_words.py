"""When the CLIs are asked whether somebody is signed in."""

from __future__ import annotations

import asyncio
import json
import shlex
from types import SimpleNamespace

import pytest

from agent_box.supervisor import words


class Clis:
    """A supervisor whose CLIs answer what `says` holds, and count."""

    def __init__(self, root):
        self.user = SimpleNamespace(
            home=root / "home", runtime_dir=root / "run", env_path=root / "home/env"
        )
        self.server = "running"
        self.tmux = self
        self.says = {"claude": True, "codex": False, "opencode": None}
        self.asked = []
        (self.user.runtime_dir / "signin").mkdir(parents=True)
        self.credential = self.user.home / ".claude/.credentials.json"
        self.credential.parent.mkdir(parents=True)
        self.during = None

    async def run(self, _verb, command, **_):
        names = shlex.split(command.partition(" >")[0])[2:]
        self.asked += names
        for name in names:
            answer = {"connected": self.says[name], "detail": ""}
            (self.user.runtime_dir / f"signin/{name}.probe.json").write_text(json.dumps(answer))
        if self.during is not None:
            self.during()

    def take_asked(self):
        found, self.asked = self.asked, []
        return found


@pytest.fixture
def clis(tmp_path):
    return Clis(tmp_path)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(value=1000.0)
    monkeypatch.setattr(words.time, "monotonic", lambda: now.value)
    return now


@pytest.fixture
def ask(clis, clock):
    """Ask all three `later` seconds after the last time; return who was asked."""
    subject = words.Words(clis, "agent-box-signin")
    loop = asyncio.new_event_loop()

    def run(later=0.0, fresh=False):
        clock.value += later
        loop.run_until_complete(subject.ask(list(clis.says), fresh=fresh, wait=True))
        return clis.take_asked()

    run.subject = subject
    yield run
    loop.close()


def test_an_answer_counts_while_nothing_changes(ask):
    assert ask() == ["claude", "codex", "opencode"]
    assert ask.subject.of("claude")["connected"] is True
    assert ask.subject.of("codex")["connected"] is False
    assert ask(words.FRESH / 2) == []
    # Who could not tell is asked again.
    assert ask(words.FRESH) == ["opencode"]
    assert ask(words.HOLDS) == ["claude", "codex", "opencode"]


@pytest.mark.parametrize("change", ["credential", "env"])
def test_a_change_is_a_reason(ask, clis, change):
    ask()
    if change == "credential":
        clis.credential.write_text("{}")
    else:
        clis.user.env_path.write_text("ANTHROPIC_API_KEY=sk\n")
    expected = ["claude", "opencode"] if change == "credential" else list(clis.says)
    assert ask(words.FRESH) == expected
    assert ask() == []


def test_a_credential_is_looked_for_where_the_environment_moves_it(ask, clis, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    clis.user.env_path.write_text(f"CLAUDE_CONFIG_DIR={moved}\n")
    ask()
    (moved / ".credentials.json").write_text("{}")
    assert "claude" in ask(words.FRESH)


def test_fresh_answers_on_request(ask, clis):
    ask()
    clis.says["claude"] = False
    assert ask(1.0, fresh=True) == ["claude", "codex", "opencode"]
    assert ask.subject.of("claude")["connected"] is False


def test_what_came_up_while_it_was_asked(ask, clis, clock):
    """A sign-in that ends meanwhile makes the answer one about the time before."""

    def signed_in():
        clock.value += 1.0
        ask.subject.doubt()

    clis.during = signed_in
    ask()
    clis.during = None
    assert ask(1.0) == ["claude", "codex", "opencode"]


def test_what_a_sign_in_said_is_checked_once(ask):
    ask()
    ask.subject.take("codex", {"connected": True})
    assert ask.subject.of("codex") == {"connected": True}
    assert ask(1.0) == ["codex"]


def test_nobody_is_asked_outside_of_the_sandbox(ask, clis):
    clis.server = "down"
    assert ask() == []
    assert ask.subject.of("claude") is None
