"""The adapters against the real programs, under tmux, without network.

Give AGENT_BOX_REAL_CLIS a directory with claude, codex, opencode, pi and the node they need (for
instance node_modules/.bin). Runs as root, which it uses to make a namespace without network and
to become an ordinary user in it: claude refuses to skip permissions as root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from agent_box import agents

from .conftest import Config, FakeBox, FakeEntry, FakeRecord, FakeUser, entry, record

CLIS = os.environ.get("AGENT_BOX_REAL_CLIS", "")
NAMES = ["claude", "codex", "opencode", "pi"]
UID = 54321
PORT = 8123
PATIENCE = 240.0

pytestmark = [
    pytest.mark.skipif(not CLIS, reason="AGENT_BOX_REAL_CLIS names no directory with the CLIs"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root to take the network away"),
    pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux"),
]


def is_ours(process):
    try:
        return process.name.isdigit() and process.stat().st_uid == UID
    except OSError:
        return False


class Pane:
    """One agent in a tmux server of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.starts = 0
        self.socket = None

    def tmux(self, *arguments):
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def start(self, ctx, launch):
        # A server that is going away would take a new session with it.
        self.starts += 1
        self.socket = self.directory / f"tmux-{self.starts}"
        subprocess.run(["chown", "-R", f"{UID}:{UID}", str(ctx.user.home)], check=True)
        env = {
            "HOME": str(ctx.user.home),
            "PATH": f"{CLIS}:/usr/bin:/bin",
            "TERM": "tmux-256color",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            **ctx.env,
            **launch.env,
        }
        model = Path(__file__).with_name("model.py")
        script = f'ip link set lo up; "{sys.executable}" "{model}" {PORT} & exec "$@"'
        become = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        assign = [f"{key}={value}" for key, value in env.items()]
        self.tmux(
            # What a program said before it died belongs into the failure.
            *("start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";"),
            *("new-session", "-d", "-s", "t", "-x", "110", "-y", "36"),
            *("-c", ctx.entry.working_directory, "--", "unshare", "-n", "sh", "-c", script, "sh"),
            *(*become, "env", "-i", *assign, *launch.argv),
        )

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "=t:")

    def stop(self):
        self.tmux("kill-server")
        # Agents write for a moment after the hang-up.
        end = time.monotonic() + 15
        while time.monotonic() < end and any(map(is_ours, Path("/proc").iterdir())):
            time.sleep(0.1)

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            result = condition()
            if result:
                return result
            time.sleep(0.3)
        pytest.fail(f"{what}; the screen:\n{self.screen()}")


@pytest.fixture
def pane(tmp_path):
    pane = Pane(tmp_path)
    yield pane
    pane.stop()


def context(tmp_path, name):
    # The home must be reachable for the other user, which pytest's directories are not.
    home = Path("/tmp") / f"agent-box-{name}-{uuid.uuid4().hex[:8]}"
    work = home / "work"
    work.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    from agent_box.agents.base import Context

    return Context(
        box=FakeBox({name: Config(f"{CLIS}/{name}")}),
        user=FakeUser(home),
        name="main",
        id=str(uuid.uuid4()),
        entry=FakeEntry(agent=name, working_directory=str(work)),
        record=FakeRecord(launch_id=str(uuid.uuid4())),
        env={},
    )


@pytest.fixture(params=NAMES)
def ctx(request, tmp_path):
    ctx = context(tmp_path, request.param)
    yield ctx
    shutil.rmtree(ctx.user.home)


def sign_in(ctx, word="test"):
    """Point the agent at the model of the test, with a key that holds `word`."""
    home = ctx.user.home
    base = f"http://127.0.0.1:{PORT}"
    if ctx.entry.agent == "claude":
        key = f"sk-ant-{word}-" + "0" * 30
        return replace(ctx, env={"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": base})
    if ctx.entry.agent == "codex":
        (home / ".codex").mkdir(exist_ok=True)
        (home / ".codex" / "config.toml").write_text(
            'model = "mock"\nmodel_provider = "mock"\n[model_providers.mock]\nname = "mock"\n'
            f'base_url = "{base}/v1"\nwire_api = "responses"\n'
            f'experimental_bearer_token = "{word}"\n'
        )
    elif ctx.entry.agent == "opencode":
        options = {"baseURL": f"{base}/v1", "apiKey": word}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
        provider["models"] = {"mock": {"name": "Mock"}}
        path = home / ".config" / "opencode" / "opencode.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"model": "mock/mock", "provider": {"mock": provider}}))
    else:
        provider = {"baseUrl": f"{base}/v1", "api": "openai-completions", "apiKey": word}
        provider["models"] = [{"id": "mock"}]
        path = home / ".pi" / "agent" / "models.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"providers": {"mock": provider}}))
        return replace(ctx, env={"PI_OFFLINE": "1"})
    return ctx


def test_signed_out_it_waits_for_a_sign_in_and_nothing_else(ctx, pane):
    agent = agents.get(ctx.entry.agent)
    agent.prepare(ctx)
    assert agent.signed_in(ctx) is False
    assert agent.holds_prompt(ctx)
    pane.start(ctx, agent.launch(ctx, None))
    reason = pane.until(lambda: agent.attention(ctx, pane.screen()), "nothing asked for a human")
    assert reason.startswith("sign-in needed")
    assert agent.conversation(ctx) is None


@pytest.mark.parametrize("prompt", ["doctor", '--help me, it\'s $HOME\n"quoted" é'])
def test_a_prompt_is_delivered_and_resumed_by_id(ctx, pane, prompt):
    ctx = entry(sign_in(ctx), initial_prompt=prompt)
    agent = agents.get(ctx.entry.agent)
    agent.prepare(ctx)
    assert agent.holds_prompt(ctx) is None
    launch = agent.launch(ctx, prompt)
    assert launch.delivers_prompt
    ctx = record(ctx, launched=True, started_at=time.time())
    pane.start(ctx, launch)
    conversation = pane.until(lambda: agent.conversation(ctx), "the prompt did not arrive")
    pane.until(lambda: "All done here." in pane.screen(), "the model was not asked")
    assert agent.attention(ctx, pane.screen()) is None
    pane.stop()
    ctx = record(ctx, conversation=conversation)
    agent.prepare(ctx)
    launch = agent.launch(entry(ctx, resume_prompt="carry on please"), None)
    assert launch.resumes
    pane.start(ctx, launch)
    pane.until(lambda: "All done here." in pane.screen(), "the conversation did not come back")
    if launch.typed is None:
        pane.until(lambda: "carry on please" in pane.screen(), "the resume prompt did not arrive")
    assert agent.conversation(ctx) == conversation
    if conversation == ctx.record.launch_id:
        return
    # A second session in the same directory does not take it for its own.
    other = record(ctx, launch_id=str(uuid.uuid4()), conversation=None)
    assert agent.conversation(other) is None


def test_a_login_that_has_ended_is_told_from_one_that_works(ctx, pane):
    """A credential is there and the vendor refuses it: nobody is told that the agent works."""
    ctx = entry(sign_in(ctx, "dead"), initial_prompt="hello there")
    agent = agents.get(ctx.entry.agent)
    agent.prepare(ctx)
    assert agent.signed_in(ctx) is True
    pane.start(ctx, agent.launch(ctx, "hello there"))
    reason = pane.until(lambda: agent.refusal(ctx, pane.screen()), "no word of the refusal")
    assert reason.startswith("sign-in needed")
