"""What the real programs showed under tmux (110x36), and what we make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_box import agents

SCREENS = Path(__file__).with_name("screens")

EXPECTED = {
    "claude/api-key": "API key question",
    "claude/add-dir": "folder trust question",
    "claude/bypass-warning": "permission mode warning",
    "claude/idle": None,
    "claude/login": "sign-in needed",
    "claude/no-network": None,
    "claude/not-signed-in": "sign-in needed",
    "claude/not-signed-in-2.1.197": "sign-in needed",
    "claude/not-signed-in-after-prompt": "sign-in needed",
    "claude/permission": "permission question",
    "claude/permission-2.1.197": "permission question",
    "claude/trust": "folder trust question",
    "codex/approval": "permission question",
    "codex/approval-0.142": "permission question",
    "codex/idle": None,
    "codex/sign-in": "sign-in needed",
    "codex/sign-in-0.142": "sign-in needed",
    "codex/trust": "folder trust question",
    "codex/trust-0.142": "folder trust question",
    "opencode/idle": None,
    "opencode/no-provider": "sign-in needed",
    "opencode/permission": "permission question",
    "pi/idle": None,
    "pi/no-models": "sign-in needed",
    "pi/trust": "folder trust question",
}


def test_every_screen_has_an_expectation():
    found = {
        path.relative_to(SCREENS).as_posix().removesuffix(".txt") for path in SCREENS.rglob("*.txt")
    }
    assert found == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_screen(ctx, name):
    screen = (SCREENS / f"{name}.txt").read_text("utf-8")
    reason = agents.get(name.partition("/")[0]).attention(ctx, screen)
    expected = EXPECTED[name]
    if expected is None:
        assert reason is None
    else:
        assert reason is not None
        assert reason.startswith(expected)


@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "pi"])
def test_talk_about_dialogs_is_no_dialog(ctx, name):
    idle = (SCREENS / name / "idle.txt").read_text("utf-8")
    talk = (
        "The tests print: Do you want to proceed? 1. Yes 2. No. Enter to confirm.\n"
        "Trust this folder? Not logged in. No models available. Use /login\n"
        "Sign in with ChatGPT was replaced, and Permission required is shown in red.\n"
    )
    assert agents.get(name).attention(ctx, talk * 3 + "\n" * 20 + idle) is None
    assert agents.get(name).attention(ctx, "") is None
