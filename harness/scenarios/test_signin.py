"""Guided sign-in: the vendors' own CLIs, driven in the sandbox, from the command line.

Stubs stand for the vendors where a scenario has to say what the vendor does; the real CLIs show
that their screens are understood. What the card in the browser shows is the same answer.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from agent_box_harness.vendors import Vendors, no_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module", touches=("alice",))]

USER = "alice"
AGENTS = ("claude", "codex", "opencode", "pi")
ASK = "Paste code here if prompted > "
URL = "https://claude.ai/oauth/authorize?code=true&client_id=9d1c&state=" + "x" * 400
DECOYS = [
    "https://evil.test/oauth/authorize?x=1",
    "https://claude.ai@evil.test/oauth/authorize?x=2",
    "https://claude.ai.evil.test/oauth/authorize?x=3",
    "https://evil.test\\@claude.ai/oauth/authorize?x=4",
]
CODE = "a#b$(id)`id`\"q\" 'q' \\ ü鍵🔑\rtail;&|<>*" + "z" * 2000


@pytest.fixture
def vendors(box: Box) -> Iterator[Vendors]:
    """The stubs, with nobody signed in and nothing steered; the real CLIs come back."""
    home = box.home(USER)
    places = ".vendor .claude .codex .config/gh .local/share/opencode .pi"
    box.succeed("cd " + home + " && rm -rf " + places)
    found = Vendors(box, USER)
    found.use(*AGENTS, "gh")
    yield found
    for agent in AGENTS:
        box.use_real(agent)


@pytest.mark.parametrize("form", ["plain", "hard", "osc8"])
def test_claude_signs_in(box: Box, vendors: Vendors, form: str) -> None:
    """The vendor's page is shown whole, however it was written and whatever stood before it; the
    code arrives byte by byte; success is what claude itself says; the pane is in the sandbox, in
    no list, and gone afterwards.
    """
    vendors.steer("claude", ask=ASK, raw=True, form=form, decoys=DECOYS)
    vendors.start("claude")
    card = vendors.until("claude", "waiting", needsCode=True, url=URL)
    for session in box.sessions(USER):
        assert not session["name"].startswith("_")
    pid = box.tmux(USER, "display-message -p -t =_signin-claude: '#{pane_pid}'").check().out
    box.expect_in(box.run(f"cat /proc/{pid}/cgroup").check(), f"agent-box-{USER}.service")
    vendors.code("claude", CODE)
    card = vendors.until("claude", "connected")
    assert card["detail"] == "as claude.ai"
    assert card in json.loads(box.ctl(USER, "signin --json").check().out)["connections"]
    received = [bytes.fromhex(item["received"]) for item in vendors.log() if "received" in item]
    assert received == [CODE.encode()]
    assert "_signin" not in box.tmux(USER, "list-sessions").out


@pytest.mark.parametrize(
    ("flow", "ask"),
    [
        ("opencode", "Enter your API key: "),
        ("pi", "Paste the authorization code or full redirect URL: "),
    ],
)
def test_key_or_code_arrives(vendors: Vendors, flow: str, ask: str) -> None:
    """The other CLIs that take a code get it byte by byte as well."""
    vendors.steer(flow, ask=ask, raw=True)
    vendors.start(flow, "--provider anthropic")
    vendors.until(flow, "waiting", needsCode=True)
    vendors.code(flow, CODE)
    vendors.until(flow, "connected")
    received = [bytes.fromhex(item["received"]) for item in vendors.log() if "received" in item]
    assert received == [CODE.encode()]


def test_foreign_page_is_never_shown(box: Box, vendors: Vendors) -> None:
    """A program that shows other people's pages only gets none of them onto the card."""
    for decoy in DECOYS:
        vendors.steer("claude", ask=ASK, raw=True, url=decoy)
        vendors.start("claude")
        card = vendors.until("claude", "waiting", needsCode=True)
        assert card["url"] is None
        box.ctl(USER, "signin claude --cancel").check()


def test_secrets_are_in_no_log_and_no_argument(box: Box, vendors: Vendors) -> None:
    """A code goes through standard input all the way. Neither the arguments of any tmux client
    nor the journal nor the vendor's error as it is shown holds it, or the token that the vendor
    prints.
    """
    since = box.succeed("date +%s").strip()
    watch = f"/run/agent-box-{USER}/argv"
    tmux = box.document["programs"]["tmux"]
    box.succeed(
        f"mv {tmux} {tmux}.real && printf '%s\\n' '#!/bin/sh' "
        f"'echo \"$*\" >>{watch} 2>/dev/null' 'exec {tmux}.real \"$@\"' >{tmux} && "
        f"chmod 0755 {tmux}"
    )
    secret = "zq7-secret-code"
    try:
        vendors.steer("claude", ask=ASK, raw=True, end="echo")
        vendors.start("claude")
        vendors.until("claude", "waiting", needsCode=True)
        vendors.code("claude", secret)
        card = vendors.until("claude", "failed")
    finally:
        box.succeed(f"mv {tmux}.real {tmux}")
    assert "was refused" in card["error"]
    calls = box.read(watch)
    box.expect_in(calls, "_signin-claude")
    for text in (calls, json.dumps(card), box.succeed(f"journalctl --since=@{since}")):
        box.expect_not_in(text, secret)
        box.expect_not_in(text, "tok-0123456789")


def test_success_is_the_word_of_the_cli(vendors: Vendors) -> None:
    """A CLI that ends well and then denies that somebody is signed in has failed."""
    vendors.steer("claude", end="refused")
    vendors.start("claude")
    card = vendors.until("claude", "failed", "connected")
    assert card["state"] == "failed"
    assert "says that nobody is signed in" in card["error"]


@pytest.mark.parametrize("end", ["expired", "disabled", "silent"])
def test_working_codex_credential_is_kept(box: Box, vendors: Vendors, end: str) -> None:
    """codex drops its credential when it starts to sign in. Whatever becomes of the attempt,
    refused, expired or given up, the one of before is in its place all the time.
    """
    kept = vendors.credential(".codex/auth.json")
    vendors.steer("codex", code="ABCD-12345", end=end)
    vendors.start("codex")
    if end == "silent":
        card = vendors.until("codex", "waiting", code="ABCD-12345")
        assert card["url"] == "https://auth.openai.com/codex/device"
        assert "of before" in box.run(f"cat {kept}").out
        box.ctl(USER, "signin codex --cancel").check()
    else:
        card = vendors.until("codex", "connected", "failed")
        assert ("expired" if end == "expired" else "not enabled") in card["error"]
    assert "of before" in box.read(kept)
    vendors.steer("codex", code="ABCD-12345")
    vendors.start("codex")
    box.wait_for("the new credential", lambda: "tok-" in box.read(kept))
    vendors.until("codex", "connected")


def test_broken_claude_credential_comes_back(box: Box, vendors: Vendors) -> None:
    """A CLI that empties its credential and then fails does not sign anybody out."""
    kept = vendors.credential(".claude/.credentials.json")
    vendors.steer("claude", ask=ASK, raw=True, end="invalid")
    vendors.start("claude")
    vendors.until("claude", "waiting", needsCode=True)
    box.as_user(USER, f"echo '{{}}' >{kept}").check()
    vendors.code("claude", "wrong")
    card = vendors.until("claude", "connected")
    assert "Invalid code" in card["error"]
    assert "of before" in box.read(kept)


def test_github_is_confirmed_by_itself(box: Box, vendors: Vendors) -> None:
    """gh waits for Enter before it goes on: nobody has to press it. A token of the env file,
    which would keep gh from signing in, is hidden from it and told of.
    """
    box.ctl(USER, "env set GH_TOKEN ghp_of_nobody").check()
    try:
        vendors.steer("gh", confirm=True, code="WXYZ-1234")
        vendors.start("github")
        card = vendors.until("github", "connected")
    finally:
        box.ctl(USER, "env rm GH_TOKEN").check()
    assert card["detail"] == "as octo-alice"
    assert card["shadows"] == ["GH_TOKEN"]
    assert all("GH_TOKEN" not in item.get("variables", []) for item in vendors.log()
               if item["cli"] == "gh")  # fmt: skip


def test_supervisor_may_go_meanwhile(box: Box, vendors: Vendors) -> None:
    """A supervisor that dies in the middle of a sign-in finds it again."""
    vendors.steer("claude", ask=ASK, raw=True)
    vendors.start("claude")
    vendors.until("claude", "waiting", url=URL)
    box.succeed(f"systemctl kill -s KILL agent-box-supervisor-{USER}")
    time.sleep(box.machine.scaled(1))
    vendors.until("claude", "waiting", url=URL)
    vendors.code("claude", "code")
    vendors.until("claude", "connected")


REAL = {
    "claude": ("", "waiting"),
    "codex": ("", "failed"),
    "opencode": ("--provider anthropic", "waiting"),
    "pi": ("--provider anthropic", "waiting"),
}


@pytest.mark.needs("agents")
@pytest.mark.parametrize("flow", list(REAL))
def test_real_clis_reach_their_sign_in(box: Box, flow: str) -> None:
    """The real CLIs, without a network: claude and pi show the page and ask for the code; codex
    says that it cannot reach its server; opencode asks for a key. Nobody is signed in before or
    after.
    """
    vendors = Vendors(box, USER)
    box.succeed(f"cd {box.home(USER)} && rm -rf .claude .codex .local/share/opencode .pi")
    # The card tells of all of them; the others, which would be asked as often, need not be real.
    others = [name for name in AGENTS if name != flow]
    vendors.use(*others)
    no_registry(box, USER)
    options, *states = REAL[flow]
    # What came of the attempt before is nothing of this one.
    box.ctl(USER, f"signin {flow} --cancel").check()
    vendors.until(flow, "idle")
    vendors.start(flow, options)
    card = vendors.until(flow, *states, timeout=70)
    if flow in ("claude", "pi"):
        assert card["url"].startswith("https://claude.ai/oauth/authorize?")
        assert " " not in card["url"]
        assert card["needsCode"] is True
    if flow == "codex":
        assert "error sending request" in card["error"]
        assert "http" not in card["error"]
    if flow == "opencode":
        assert card["needsCode"] is True
    box.ctl(USER, f"signin {flow} --cancel").check()
    vendors.until(flow, "idle")
    for name in others:
        box.use_real(name)
