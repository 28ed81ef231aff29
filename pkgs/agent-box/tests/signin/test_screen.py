"""What is read from a vendor's screen: never a foreign address, never half of one."""

from __future__ import annotations

import pytest

from agent_box.signin import screen
from agent_box.signin.flows import FLOWS

CLAUDE = FLOWS["claude"]
CODEX = FLOWS["codex"]
URL = "https://claude.ai/oauth/authorize?code=true&state=" + "aB3-_x" * 70  # 469 characters


def found(text, columns=512, flow=CLAUDE):
    return screen.address(text, columns, flow)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_hard_wrapped_address_is_whole(columns):
    lines = [URL[at : at + columns] for at in range(0, len(URL), columns)]
    text = "If the browser didn't open, visit:\n" + "\n".join(lines) + "\n\nPaste code here >"
    assert found(text, columns) == URL


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_hard_wrapped_address_in_a_frame_is_whole(columns):
    inner = columns - 3
    lines = ["│ " + URL[at : at + inner] for at in range(0, len(URL), inner)]
    assert found("│\n" + "\n".join(lines) + "\n│\n└", columns) == URL


@pytest.mark.parametrize("end", ["\x07", "\x1b\\"])
def test_hyperlink_is_taken_from_its_target(end):
    text = f"\x1b]8;id=1;{URL}{end}\x1b[94mhttps://claude.ai/oauth/authori\x1b[39m\x1b]8;;{end}"
    assert found(text, 40) == URL


def test_line_after_a_short_address_is_not_part_of_it():
    text = "https://auth.openai.com/codex/device\nABCD-12345\n"
    assert found(text, 512, CODEX) == "https://auth.openai.com/codex/device"


def test_dot_at_the_end_is_not_part_of_it():
    text = "Open https://auth.openai.com/codex/device."
    assert found(text, 512, CODEX) == "https://auth.openai.com/codex/device"


@pytest.mark.parametrize(
    "decoy",
    [
        "https://evil.test/oauth/authorize",
        "https://claude.ai.evil.test/oauth/authorize",
        "https://notclaude.ai/oauth/authorize",
        "https://claude.ai@evil.test/oauth/authorize",
        "https://claude.ai:x@evil.test/oauth/authorize",
        "https://evil.test\\@claude.ai/oauth/authorize",
        "https://evil.test#@claude.ai/oauth/authorize",
        "https://evil.test?x=https://claude.ai/oauth/authorize",
        "https://me@claude.ai/oauth/authorize",
        "https://claude.ai:8443/oauth/authorize",
        "http://claude.ai/oauth/authorize",
        "javascript://claude.ai/oauth/authorize",
        "https://clаude.ai/oauth/authorize",  # noqa: RUF001 - a Cyrillic letter
    ],
)
def test_foreign_address_is_never_shown(decoy):
    for text in (decoy, f"\x1b]8;;{decoy}\x07https://claude.ai\x1b]8;;\x07 "):
        shown = found(text)
        assert shown is None or shown == "https://claude.ai"
    assert not screen.trusted(decoy, CLAUDE.hosts)
    assert found(f"{decoy}\n{URL}\n{decoy}\n") == URL


def test_sign_in_page_wins_over_help_pages():
    text = f"https://claude.ai/help\n{URL}\nhttps://support.claude.com/login\n"
    assert found(text) == URL
    assert found("https://claude.ai/new-place?x=1") == "https://claude.ai/new-place?x=1"


@pytest.mark.parametrize("flow", ["github", "opencode", "pi"])
def test_pages_that_anybody_can_make_are_no_sign_in(flow):
    text = "https://github.com/somebody/phish\nhttps://github.com/login/device\n"
    assert found(text, flow=FLOWS[flow]) == "https://github.com/login/device"
    assert found("https://github.com/somebody/phish\n", flow=FLOWS[flow]) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2. Enter this one-time code (expires in 15 minutes)\n   ABCD-12345\n", "ABCD-12345"),
        ("! First copy your one-time code: WXYZ-1234\n", "WXYZ-1234"),
        ("Enter code: AB12-CD34-EF56", "AB12-CD34-EF56"),
        ("Your code will expire.\nWELL-KNOWN facts about UTF-8", None),
        ("Enter the ONE-TIME code", None),
        ("READ-ONLY\ncode: soon", None),
        ("code at https://github.com/ABCD-1234", None),
        ("ABCD-1234", None),
        ("code: abcd-1234", None),
        ("code: XABCD-1234567890123", None),
        ("code: OLDD-0001\ncode: NEWW-0002", "NEWW-0002"),
    ],
)
def test_code(text, code):
    assert screen.code(text) == code


def test_menus_of_the_real_programs():
    clack = (
        "┌  Add credential\n│\n◆  Select provider\n│  Search: _\n│  ● OpenCode Zen (recommended)\n"
        "│  ○ OpenAI\n│  ○ GitHub Copilot\n│  ...\n│  ↑/↓ to select • Enter: confirm\n└"
    )
    menu = screen.menu(clack)
    assert menu == screen.Menu(("OpenCode Zen (recommended)", "OpenAI", "GitHub Copilot"), 0)
    arrows = (
        " Select authentication method:\n   Sign in with an account\n → Sign in with an API key\n"
        "   Sign in with Radius • not configured\n\n ↑↓ navigate  enter select\n"
    )
    menu = screen.menu(arrows)
    assert menu is not None
    assert menu.selected == 1
    assert menu.choices[0] == "Sign in with an account"
    assert screen.menu("Paste code here if prompted > ") is None
    assert screen.menu("> quoted\nprose") is None


def test_failure_says_why_and_nothing_secret():
    code = "my-code#with$(odd) things"
    token = "gho_16C7e42F292c6912E7710c838347Ae178B4a"
    text = f"Login failed: {code} was refused\nsee https://claude.ai/x?y token {token}\n"
    said = screen.failure(text, [code])
    assert "Login failed" in said
    assert "refused" in said
    for secret in (code, token, "https://"):
        assert secret not in said
    assert len(screen.failure("w " * 5000)) <= screen.MAX_FAILURE


def test_escapes_do_not_survive():
    text = "\x1b[1m\x1b]0;title\x07Login\x1b[0m failed\x1b[?25h"
    assert screen.plain(text) == ["Login failed"]
