"""`signin`: what it asks the supervisor and prints. The sign-ins themselves: tests/signin."""

from __future__ import annotations

import io
import json
import sys

import pytest

from agent_box import errors
from agent_box.session_cli import parser
from agent_box.signin.flows import FLOWS


def card(**more):
    return {
        "id": "claude",
        "label": "Claude",
        "state": "idle",
        "detail": "",
        "url": None,
        "code": None,
        "needsCode": False,
        "choices": [],
        "error": None,
        "shadows": [],
        **more,
    }


def test_grammar_knows_every_flow():
    assert set(parser.SIGNINS) == set(FLOWS)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "claude     not signed in"),
        ({"state": "connected", "detail": "as a@b.test"}, "claude     signed in as a@b.test"),
        (
            {"state": "idle", "shadows": ["GH_TOKEN"]},
            "claude     not signed in; GH_TOKEN of the env file wins over it",
        ),
        ({"state": "failed", "error": "expired\x1b[2J"}, "claude     failed: expired"),
    ],
)
def test_list(box, cli, facts, line):
    box.supervisor.replies["connections"] = {"connections": [card(**facts)]}
    result = cli("signin")
    assert result.status == 0
    assert result.out.startswith(line)
    assert "\x1b" not in result.out
    assert box.supervisor.requests[-1] == ("connections", {"wait": True})


def test_code_comes_from_standard_input(box, cli, monkeypatch):
    box.supervisor.replies["signin"] = {"connection": card(state="exchanging")}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a#b\rc \n")))
    result = cli("signin", "claude", "--code")
    assert result.status == 0
    wanted = {"flow": "claude", "action": "code", "text": "a#b\rc "}
    assert box.supervisor.requests[-1] == ("signin", wanted)
    assert "a#b" not in result.out + result.err


def test_follows_to_the_end(box, cli, monkeypatch):
    monkeypatch.setattr("agent_box.session_cli.signin.POLL", 0.01)
    states = [
        card(state="waiting", url="https://claude.ai/oauth/x", code="ABCD-1234"),
        card(state="waiting", url="https://claude.ai/oauth/x", code="ABCD-1234"),
        card(state="connected", detail="as me"),
    ]
    box.supervisor.replies["signin"] = {"connection": states[0]}
    box.supervisor.replies["connections"] = lambda _: {"connections": [states.pop(0)]}
    result = cli("signin", "claude")
    assert result.status == 0
    assert result.out.count("https://claude.ai/oauth/x") == 1
    assert result.out.count("ABCD-1234") == 1
    assert result.out.rstrip().endswith("claude: signed in as me")


def test_failure_is_told_with_the_vendors_words(box, cli):
    failed = card(state="failed", error="This device code has expired.")
    box.supervisor.replies["signin"] = {"connection": failed}
    result = cli("signin", "claude")
    assert result.status == 1
    assert "This device code has expired." in result.out
    box.supervisor.replies["signin"] = errors.ConflictError("the tmux server does not run")
    assert cli("signin", "claude").status == 4
    assert cli("signin", "gemini").status == 2


def test_json(box, cli):
    box.supervisor.replies["signin"] = {"connection": card(state="starting")}
    assert json.loads(cli("signin", "claude", "--json").out)["state"] == "starting"
