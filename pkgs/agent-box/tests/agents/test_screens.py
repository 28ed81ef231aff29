"""What the real programs showed under tmux (110x36), and what we make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_box import agents

SCREENS = Path(__file__).with_name("screens")

CODEX = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
"""What the line begins with in which codex takes words."""

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
    "claude/refused": "sign-in needed: claude's login was refused",
    "claude/refused-tries-again": "sign-in needed: claude's login was refused",
    "claude/trust": "folder trust question",
    "codex/approval": "permission question",
    "codex/approval-0.142": "permission question",
    "codex/idle": None,
    "codex/refused": "sign-in needed: codex's login was refused",
    "codex/sign-in": "sign-in needed",
    "codex/sign-in-0.142": "sign-in needed",
    "codex/trust": "folder trust question",
    "codex/trust-0.142": "folder trust question",
    "opencode/idle": None,
    "opencode/no-provider": "sign-in needed",
    "opencode/permission": "permission question",
    "pi/idle": None,
    "pi/no-models": "sign-in needed",
    "pi/refused": "sign-in needed: the provider refused",
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
    reason = agents.get(name.partition("/")[0]).asks(ctx, screen)
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
    assert agents.get(name).asks(ctx, talk * 3 + "\n" * 20 + idle) is None
    assert agents.get(name).asks(ctx, "") is None


@pytest.mark.parametrize("name", ["claude/refused", "codex/refused", "pi/refused"])
def test_a_refusal_is_over_with_the_next_answer(ctx, name):
    """What stands further up is history; a credential in its place says nothing about it."""
    agent = agents.get(name.partition("/")[0])
    screen = (SCREENS / f"{name}.txt").read_text("utf-8")
    assert agent.refusal(ctx, screen) is not None
    lines = screen.rstrip("\n").splitlines()
    foot = max(n for n, line in enumerate(lines) if line[:1] in (CODEX, "─"))
    foot -= 2 if lines[foot].startswith("─") else 0
    answered = [*lines[:foot], "", "• All done here: the 401 is gone.", "", *lines[foot:]]
    assert agent.asks(ctx, "\n".join(answered)) is None
