"""Whether somebody is signed in is what the CLI says, as the real ones say it."""

from __future__ import annotations

import pytest

from agent_box.signin import probe
from agent_box.signin.flows import FLOWS


@pytest.mark.parametrize(
    ("flow", "status", "text", "connected", "detail"),
    [
        ("claude", 1, '{\n "loggedIn": false,\n "authMethod": "none"\n}', False, ""),
        ("claude", 0, '{"loggedIn": true, "email": "a@b.test"}', True, "as a@b.test"),
        ("claude", 0, '{"loggedIn": "true"}', False, ""),
        ("claude", 1, '{"loggedIn": true}', False, ""),
        ("claude", 1, "Segmentation fault", None, None),
        ("codex", 1, "WARNING: x\nNot logged in", False, ""),
        ("codex", 0, "Logged in using ChatGPT", True, "Logged in using ChatGPT"),
        ("codex", 0, "Logged in using an API key - sk-12***9", True, "Logged in using an API key"),
        ("codex", 1, "Error: no such file", None, None),
        ("github", 0, "✓ Logged in to github.com account alice (x)", True, "as alice"),
        ("github", 1, "You are not logged into any GitHub hosts. Run gh", False, ""),
        ("github", 1, "X Failed to log in\n- The token in x is invalid.", False, None),
        ("github", 1, "error connecting to api.github.com", None, None),
        ("opencode", 0, "┌  Credentials\n│\n└  0 credentials", False, ""),
        ("opencode", 0, "●  Anthropic api\n│\n└  1 credentials", True, "Anthropic"),
        ("pi", 0, "No models available. Use /login to log in", False, ""),
        ("pi", 0, "provider   model\nanthropic  claude-x  1M", True, "anthropic"),
        ("pi", 1, "Error", None, None),
    ],
)
def test_answers(flow, status, text, connected, detail):
    found, words = probe.read(FLOWS[flow], status, text)
    assert found is connected
    if detail is not None:
        assert words == detail


def test_what_wins_is_not_asked_with(tmp_path):
    program = tmp_path / "gh"
    program.write_text(
        '#!/bin/sh\n[ -z "$GH_TOKEN$GITHUB_TOKEN" ] || exit 0\n'
        "echo You are not logged into any GitHub hosts; exit 1\n"
    )
    program.chmod(0o755)
    answer = probe.ask(FLOWS["github"], str(program), {"GH_TOKEN": "x", "PATH": "/bin:/usr/bin"})
    assert answer == (False, "")


def test_program_that_is_not_there():
    connected, detail = probe.ask(FLOWS["claude"], "/nowhere/claude", {})
    assert connected is None
    assert "/nowhere/claude cannot be run" in detail
