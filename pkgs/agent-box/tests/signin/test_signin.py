"""Guided sign-in from start to end, with stub vendors in a real tmux server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_box.errors import ConflictError, UsageError
from agent_box.signin.flows import FLOWS
from agent_box.supervisor import signin as module
from agent_box.supervisor.signin import Signin
from agent_box.tmux import TmuxError

ASK = "Paste code here if prompted > "
URL = "https://claude.ai/oauth/authorize?code=true&client_id=9d1c&state=" + "x" * 400


def environment(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def credential(stand, path=".claude/.credentials.json", text='{"token": "of before"}'):
    file = stand.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


async def test_a_credential_that_its_vendor_refuses(stand):
    """The CLI calls it good; a session found out that it is not, until somebody signs in again."""
    stand.steer("claude", ask=ASK, raw=True)
    (stand.home / ".claude").mkdir(exist_ok=True)
    (stand.home / ".claude/.credentials.json").write_text('{"token": "expired"}')
    card = await stand.until("claude", "connected")
    assert card["error"] is None
    entry = SimpleNamespace(agent="claude")
    session = SimpleNamespace(name="work", alive=True, last_call="refused", entry=entry)
    stand.supervisor.sessions["work"] = session
    card = await stand.card("claude")
    assert card["state"] == "connected"
    assert card["error"] == "refused when session 'work' used it; sign in again"
    await stand.start("claude")
    await stand.until("claude", "waiting")
    await stand.code("claude", "code")
    card = await stand.until("claude", "connected")
    assert card["error"] is None
    assert session.last_call is None


@pytest.mark.parametrize("form", ["plain", "hard", "osc8"])
async def test_claude_from_start_to_end(stand, form):
    if form == "osc8" and (await stand.tmux.run("-V")).strip() < "tmux 3.4":
        form = "plain"  # this tmux knows no hyperlinks; the guest's does
    stand.steer("claude", ask=ASK, raw=True, form=form, decoys=["https://evil.test/oauth/x"])
    assert (await stand.start("claude"))["state"] in ("starting", "waiting")
    card = await stand.until("claude", "waiting")
    assert card["url"] == URL
    assert card["needsCode"] is True
    card = await stand.code("claude", "the-code#state")
    assert card["state"] == "exchanging"
    card = await stand.until("claude", "connected")
    assert card["detail"] == "as claude.ai"
    assert card["url"] is None
    assert "_signin-claude" not in await stand.tmux.panes()


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("form", ["plain", "hard"])
async def test_address_is_whole_however_narrow_the_pane(stand, monkeypatch, columns, form):
    """Broken by the terminal, or by the program. The target of a link has no width."""
    monkeypatch.setattr(module, "COLUMNS", columns)
    stand.steer("claude", end="silent", form=form, prose=["Never share WELL-KNOWN codes"])
    await stand.start("claude")
    card = await stand.until("claude", "waiting")
    assert card["url"] == URL
    assert card["code"] is None


PROMPTS = {
    "claude": ASK,
    "opencode": "Enter your API key: ",
    "pi": "Paste the authorization code or full redirect URL: ",
}
"""How each CLI that takes a code asks for it."""
CODES = [
    "abc#def",
    "$(touch /tmp/x)`id`",
    "\"double\" 'single' \\back\\",
    "two\rlines",
    "a;b|c&d>e<f*?[x]{y}~!",
    "x" * 2048,
    "schön-ключ-鍵-🔑",
    " blanks around ",
    "-starts-with-dash",
    "#{pane_pid}%1",
]


def test_every_cli_that_takes_a_code_is_tried():
    assert {flow.id for flow in FLOWS.values() if flow.code_prompt} == set(PROMPTS)


@pytest.mark.parametrize(
    ("flow", "code"),
    [
        *(("claude", code) for code in CODES),
        *((flow, "".join(CODES)) for flow in PROMPTS),
    ],
)
async def test_code_arrives_byte_for_byte(stand, flow, code, caplog):
    stand.steer(flow, ask=PROMPTS[flow], raw=True)
    await stand.start(flow, **({"provider": "anthropic"} if FLOWS[flow].providers else {}))
    await stand.until(flow, "waiting")
    with caplog.at_level(logging.DEBUG):
        await stand.code(flow, code)
        await stand.until(flow, "connected")
    received = next(str(item["received"]) for item in stand.log() if "received" in item)
    assert bytes.fromhex(received).decode() == code
    assert code not in caplog.text


async def test_code_is_in_no_argument_list(stand, monkeypatch):
    seen = []
    real = asyncio.create_subprocess_exec

    async def spy(*argv, **options):
        seen.append(argv)
        return await real(*argv, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spy)
    stand.steer("claude", ask=ASK, raw=True)
    await stand.start("claude")
    await stand.until("claude", "waiting")
    await stand.code("claude", "very-secret-code")
    await stand.until("claude", "connected")
    assert seen
    assert not any("very-secret-code" in str(word) for argv in seen for word in argv)
    for path in stand.home.rglob("*"):
        if path.is_file() and path.parent.name != ".vendor":
            assert b"very-secret-code" not in path.read_bytes(), path


async def test_code_is_not_in_the_error_when_the_vendor_prints_it(stand, caplog):
    stand.steer("claude", ask=ASK, raw=True, end="echo")
    await stand.start("claude")
    await stand.until("claude", "waiting")
    with caplog.at_level(logging.DEBUG):
        await stand.code("claude", "very#secret code")
        card = await stand.until("claude", "failed")
    assert "was refused" in str(card["error"])
    for secret in ("very", "tok-0123456789", "https://"):
        assert secret not in json.dumps(card)
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("expired", "device code has expired"),
        ("disabled", "device code login is not enabled"),
        ("refused", "says that nobody is signed in"),
    ],
)
async def test_codex_fails_and_keeps_what_worked(stand, end, words):
    kept = credential(stand, ".codex/auth.json")
    stand.steer("codex", code="ABCD-12345", end=end)
    await stand.start("codex")
    # The old sign-in still works, unless the CLI itself denies it.
    card = await stand.until("codex", "failed", "connected")
    assert words in str(card["error"])
    assert kept.read_text() == '{"token": "of before"}'


async def test_codex_shows_its_code_and_replaces_the_credential_at_the_end(stand):
    kept = credential(stand, ".codex/auth.json")
    (stand.home / ".codex/config.toml").write_text("# mine\n")
    stand.steer("codex", code="ABCD-12345", end="silent", prose=["Never share WELL-KNOWN codes"])
    await stand.start("codex")
    card = await stand.until("codex", "waiting")
    for _ in range(50):
        if card["code"]:
            break
        await asyncio.sleep(0.1)
        card = await stand.card("codex")
    assert card["url"] == "https://auth.openai.com/codex/device"
    assert card["code"] == "ABCD-12345"
    assert card["needsCode"] is False
    assert kept.read_text() == '{"token": "of before"}'
    await stand.signin.act({"flow": "codex", "action": "cancel"})
    assert "_signin-codex" not in await stand.tmux.panes()
    assert kept.read_text() == '{"token": "of before"}'
    stand.steer("codex", code="ABCD-12345", end="ok")
    await stand.start("codex")
    await stand.until("codex", "connected")
    assert "tok-" in kept.read_text()
    assert not (stand.home / ".local/state/agent-box/signin/codex").exists()
    assert (stand.home / ".codex/config.toml").read_text() == "# mine\n"


async def test_claude_that_breaks_its_credential_gets_the_old_one_back(stand):
    kept = credential(stand)
    stand.steer("claude", ask=ASK, raw=True, end="invalid")
    await stand.start("claude")
    await stand.until("claude", "waiting")
    kept.write_text("{}")  # a CLI that empties the file before it fails
    await stand.code("claude", "wrong")
    card = await stand.until("claude", "failed", "connected")
    assert "Invalid code" in str(card["error"])
    assert kept.read_text() == '{"token": "of before"}'


async def test_credential_survives_an_attempt_that_was_killed(stand):
    kept = credential(stand)
    stand.steer("claude", end="silent")
    await stand.start("claude")
    await stand.until("claude", "waiting")
    kept.unlink()
    pane = (await stand.tmux.panes())["_signin-claude"]
    os.kill(pane.pid, signal.SIGKILL)
    await stand.until("claude", "failed", "idle", "connected")
    card = await stand.card("claude", fresh=True, wait=True)
    assert kept.read_text() == '{"token": "of before"}'
    assert card["state"] == "connected"


async def test_github_presses_enter_and_hides_tokens_from_it(stand):
    (stand.home / ".config/agent-box").mkdir(parents=True)
    (stand.home / ".config/agent-box/env").write_text("GH_TOKEN=ghp_abc\n")
    stand.steer("gh", confirm=True, code="WXYZ-1234")
    await stand.start("github")
    card = await stand.until("github", "connected")
    assert card["detail"] == "as octo-alice"
    assert card["shadows"] == ["GH_TOKEN"]
    assert any(item.get("confirmed") for item in stand.log())
    for item in stand.log():
        assert item["cli"] != "gh" or "GH_TOKEN" not in item.get("variables", [])


@pytest.mark.parametrize("flow", ["opencode", "pi"])
async def test_provider_is_chosen(stand, flow):
    with pytest.raises(UsageError, match="choose a provider: anthropic"):
        await stand.start(flow)
    with pytest.raises(UsageError):
        await stand.start(flow, provider="--help")
    stand.steer(flow, ask="Enter your API key: ", raw=True)
    await stand.start(flow, provider="anthropic")
    card = await stand.until(flow, "waiting")
    for _ in range(50):
        if card["needsCode"]:
            break
        await asyncio.sleep(0.1)
        card = await stand.card(flow)
    await stand.code(flow, "sk-ant-key")
    card = await stand.until(flow, "connected")
    assert str(card["detail"]).lower() == "anthropic"
    login = next(item["argv"] for item in stand.log() if "login" in item["argv"])
    assert "anthropic" in login


async def test_nothing_is_typed_where_nothing_is_asked(stand):
    with pytest.raises(ConflictError, match="no sign-in of Claude"):
        await stand.code("claude", "x")
    stand.steer("codex", code="ABCD-12345", end="silent")
    await stand.start("codex")
    await stand.until("codex", "waiting")
    with pytest.raises(ConflictError, match="does not ask"):
        await stand.code("codex", "x")
    for wrong in ("", None, 5, "a\0b", "x" * 9000):
        with pytest.raises(UsageError):
            await stand.code("codex", wrong)
    with pytest.raises(UsageError):
        await stand.signin.act({"flow": "codex", "action": "dance"})
    with pytest.raises(UsageError, match="choose one of"):
        await stand.signin.act({"flow": "gemini", "action": "start"})


async def test_expires_and_can_be_tried_again(stand, monkeypatch):
    stand.steer("claude", end="silent")
    await stand.start("claude")
    await stand.until("claude", "waiting")
    monkeypatch.setattr(module, "LIFE", 0.0)
    card = await stand.until("claude", "expired")
    assert "_signin-claude" not in await stand.tmux.panes()
    assert card["url"] is None
    monkeypatch.setattr(module, "LIFE", 900.0)
    stand.steer("claude")
    await stand.start("claude")
    await stand.until("claude", "connected")


async def test_second_start_is_the_same_attempt(stand):
    stand.steer("claude", end="silent")
    await stand.start("claude")
    await stand.until("claude", "waiting")
    pane = (await stand.tmux.panes())["_signin-claude"]
    card = await stand.start("claude")
    assert card["state"] == "waiting"
    assert (await stand.tmux.panes())["_signin-claude"].pid == pane.pid


async def test_new_supervisor_finds_the_attempt(stand):
    stand.steer("claude", ask=ASK, raw=True)
    await stand.start("claude")
    await stand.until("claude", "waiting")
    stand.signin._attempts["claude"].task.cancel()
    stand.supervisor = stand.new_supervisor()
    stand.signin = Signin(stand.supervisor)
    await stand.supervisor.look()
    card = await stand.until("claude", "waiting")
    assert card["url"] == URL
    await stand.code("claude", "code")
    await stand.until("claude", "connected")


async def test_what_is_cancelled_is_not_adopted(stand, monkeypatch):
    stand.steer("claude", ask=ASK, raw=True)
    await stand.start("claude")
    await stand.until("claude", "waiting")
    find, adopted = stand.signin._pane, []

    async def somebody_looks(flow):
        pane = await find(flow)
        await stand.supervisor.look()
        stand.signin.adopt()
        return pane

    monkeypatch.setattr(stand.signin, "_pane", somebody_looks)
    monkeypatch.setattr(stand.signin, "_follow", adopted.append)
    await stand.signin.act({"flow": "claude", "action": "cancel"})
    await stand.supervisor.look()
    stand.signin.adopt()
    assert adopted == []
    assert (await stand.card("claude"))["error"] is None


async def test_without_a_server_none_is_started(stand):
    stand.close()
    with pytest.raises(ConflictError, match="tmux server of the sandbox does not run"):
        await stand.start("claude")
    card = await stand.card("claude")
    assert card["state"] == "blocked"
    with pytest.raises(TmuxError):
        await stand.tmux.panes()


async def test_the_window_keeps_its_size_and_the_sandbox_its_path(stand):
    stand.steer("claude", end="silent")
    await stand.start("claude")
    await stand.until("claude", "waiting")
    size = await stand.tmux.run(
        "display-message", "-p", "-t", "=_signin-claude:", "#{window_width} #{window-size}"
    )
    assert size.split()[0] == "512"
    assert size.split()[1] == "manual"
    pane = (await stand.tmux.panes())["_signin-claude"]
    assert f"PATH={stand.server_env['PATH']}".encode() in environment(pane.pid)


async def test_missing_cli_is_told(stand):
    os.unlink(stand.box.agents["pi"].command)  # noqa: PTH108
    await stand.start("pi", provider="anthropic")
    card = await stand.until("pi", "failed")
    assert "No such file" in str(card["error"])


async def test_who_has_no_credential_is_asked_only_if_that_may_not_be_all(stand):
    """opencode needs a second to say that it has none; claude's settings may name one."""
    credential = stand.home / ".local/share/opencode/auth.json"
    credential.parent.mkdir(parents=True)
    for there in (False, True):
        if there:
            credential.write_text("{}")
        before = len(stand.log())
        await stand.signin.connections({"wait": True, "fresh": True})
        asked = {entry["cli"] for entry in stand.log()[before:]}
        assert ("opencode" in asked) is there
        assert {"claude", "codex"} <= asked
        assert (await stand.card("opencode"))["state"] in ("idle", "connected")
