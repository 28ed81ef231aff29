"""The adapters against the real programs, under tmux, without network.

Give AGENT_BOX_REAL_CLIS a directory with claude, codex, opencode, pi and the node they need (for
instance node_modules/.bin). Runs as root, which it uses to make a namespace without network and
to become an ordinary user in it: claude refuses to skip permissions as root.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

import agent_box
from agent_box import agents, guides
from agent_box.naming import TMUX_SOCKET
from agent_box.terminal.main import FEATURES

from .conftest import Config, FakeBox, FakeEntry, FakeRecord, FakeUser, entry, record

CLIS = os.environ.get("AGENT_BOX_REAL_CLIS", "")
NAMES = ["claude", "codex", "opencode", "pi"]
UID = 54321
PORT = 8123
PATIENCE = 240.0
MODEL = Path(__file__).parents[4] / "harness/src/agent_box_harness/stub_model.py"
ANSWER = "All done here."
TMUX_CONF = Path(__file__).parents[4] / "modules/tmux.conf"
HOOK = """\
#!/usr/bin/python3 -I
import sys
sys.path.insert(0, {src!r})
from agent_box.agents.hook import main
main()
"""

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
    """One agent in a tmux server of its own, and the supervisor's ear for its signals."""

    def __init__(self):
        self.starts = 0
        self.socket = None
        self.ear = None
        self.heard = []
        self.config = "/dev/null"

    def tmux(self, *arguments):
        command = ["tmux", "-S", str(self.socket), "-f", str(self.config), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def start(self, ctx, launch):
        home = ctx.user.home
        # A server that is going away would take a new session with it.
        self.starts += 1
        run = home / f"run-{self.starts}"
        self.socket = run / f"tmux-{UID}" / TMUX_SOCKET
        self.socket.parent.mkdir(parents=True)
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.ear.bind(str(run / "notify.sock"))
        hook = home / "bin" / "agent-box-hook"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(HOOK.format(src=str(Path(agent_box.__file__).parents[1])))
        hook.chmod(0o755)
        self.log = home / "model.jsonl"
        subprocess.run(["chown", "-R", f"{UID}:{UID}", str(home)], check=True)
        env = {
            "HOME": str(home),
            "PATH": f"{hook.parent}:{CLIS}:/usr/bin:/bin",
            "TERM": "tmux-256color",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TMUX_TMPDIR": str(run),
            **ctx.env,
            **launch.env,
        }
        model = f'"{sys.executable}" "{MODEL}" {PORT} "{self.log}" 2>/dev/null'
        become = f"setpriv --reuid={UID} --regid={UID} --clear-groups"
        pane = 'TMUX="$TMUX" TMUX_PANE="$TMUX_PANE"'
        script = f'ip link set lo up; {model} & exec {become} env -i {pane} "$@"'
        assign = [f"{key}={value}" for key, value in env.items()]
        self.tmux(
            # What a program said before it died belongs into the failure.
            *("start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";"),
            *("new-session", "-d", "-s", "t", "-x", "110", "-y", "36"),
            *("-c", ctx.entry.working_directory, "--", "unshare", "-n", "sh", "-c", script, "sh"),
            *(*assign, *launch.argv),
        )

    def say(self, text):
        """Type a line, as a person does."""
        self.tmux("send-keys", "-t", "=t:", "-l", text)
        time.sleep(1)
        self.tmux("send-keys", "-t", "=t:", "Enter")

    def words(self):
        """Return what the agent has told about itself so far."""
        while True:
            try:
                message = json.loads(self.ear.recv(9999))
            except BlockingIOError:
                return self.heard
            assert message["event"] == "signal"
            self.heard.append(message["word"])

    def requests(self):
        """Return what reached the model."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

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
        pytest.fail(f"{what}; it told {self.words()}, the screen:\n{self.screen()}")


@pytest.fixture
def pane():
    pane = Pane()
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


@pytest.mark.parametrize("left", [b"", b"\0" * 300])
@pytest.mark.parametrize("name", ["claude", "pi"])
def test_what_a_power_cut_leaves_of_a_conversation_is_in_nobodys_way(name, left, tmp_path, pane):
    """The name of its file, or zeros in it: the agent is told its task all the same."""
    ctx = entry(sign_in(context(tmp_path, name)), initial_prompt="hello there")
    launch_id, work = ctx.record.launch_id, ctx.entry.working_directory
    folder = re.sub(r"[^A-Za-z0-9]", "-", work)
    place = ctx.user.home / f".claude/projects/{folder}/{launch_id}.jsonl"
    if name == "pi":
        folder = "--" + work.removeprefix("/").replace("/", "-") + "--"
        place = ctx.user.home / f".pi/agent/sessions/{folder}/2026-01-01T00-00-00_{launch_id}.jsonl"
    place.parent.mkdir(parents=True)
    place.write_bytes(left)
    ctx = record(ctx, launched=True, started_at=time.time())
    agent = agents.get(name)
    agent.prepare(ctx)
    assert agent.conversation(ctx) is None
    pane.start(ctx, agent.launch(ctx, "hello there"))
    pane.until(lambda: ANSWER in pane.screen(), "the model was not asked")
    pane.until(lambda: agent.conversation(ctx), "no conversation")
    pane.stop()
    shutil.rmtree(ctx.user.home)


def test_a_login_that_has_ended_is_told_from_one_that_works(ctx, pane):
    """A credential is there and the vendor refuses it: nobody is told that the agent works. Its
    screen shows it, or it says so itself.
    """
    ctx = entry(sign_in(ctx, "dead"), initial_prompt="hello there")
    agent = agents.get(ctx.entry.agent)
    agent.prepare(ctx)
    assert agent.signed_in(ctx) is True
    pane.start(ctx, agent.launch(ctx, "hello there"))

    def refused():
        return agent.refusal(ctx, pane.screen()) or "refused" in pane.words()

    reason = pane.until(refused, "no word of the refusal")
    assert reason is True or reason.startswith("sign-in needed")
    assert any(request["refused"] for request in pane.requests())


def test_shift_enter_makes_a_new_line(ctx, pane):
    """As a browser or a terminal that knows extended keys sends it, by our tmux.conf."""
    ctx = sign_in(ctx)
    agent = agents.get(ctx.entry.agent)
    agent.prepare(ctx)
    pane.config = TMUX_CONF
    pane.start(ctx, agent.launch(ctx, "hello there"))
    pane.until(lambda: ANSWER in pane.screen(), "it did not start")
    client, terminal = pty.fork()
    if client == 0:
        argv = ["tmux", "-u", "-T", FEATURES, "-S", str(pane.socket), "attach", "-t", "=t"]
        os.execvpe(argv[0], argv, {**os.environ, "TERM": "xterm-256color"})
    os.set_blocking(terminal, False)

    def asked(text):
        with contextlib.suppress(BlockingIOError):
            os.read(terminal, 1 << 20)
        return any(json.dumps(text)[1:-1] in json.dumps(body) for body in pane.requests())

    try:
        time.sleep(2)
        for words in (b"over", b"\x1b[13;2u", b"under", b"\r"):
            os.write(terminal, words)
            time.sleep(1)
        pane.until(lambda: asked("over\nunder"), "no two lines reached the model")
    finally:
        pane.tmux("kill-server")
        os.close(terminal)
        os.waitpid(client, 0)


ASKS_OF_PI = """
export default function (pi) {
  pi.registerCommand("ask", {
    description: "ask",
    handler: async (_, ctx) => { await ctx.ui.confirm("Sure?", "Really sure?"); },
  });
}
"""
TELLS = {
    "claude": ("STUB ask", ["working", "asks"], "claude asks a question"),
    "codex": ("STUB run touch asked", [], "permission question"),
    "opencode": ("STUB ask", ["working", "asks"], "opencode asks a question"),
    "pi": ("/ask", ["asks"], None),
}
"""What makes it ask, what it tells of that, and what its screen shows."""


def others_of(ctx):
    """Give the user plugins of their own, which must go on to work beside ours; return a witness
    for each.
    """
    home = ctx.user.home
    if ctx.entry.agent == "pi":
        (home / ".pi/agent/extensions").mkdir()
        (home / ".pi/agent/extensions/ask.js").write_text(ASKS_OF_PI)
    if ctx.entry.agent != "opencode":
        return []
    config = home / ".config/opencode/opencode.json"
    places = [home / "named.js", config.with_name("plugin") / "found.js"]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        witness = json.dumps(str(place.with_suffix(".ran")))
        place.write_text(
            'import { writeFileSync } from "node:fs";\n'
            f"export const Own = async () => {{ writeFileSync({witness}, ''); return {{}}; }};\n"
        )
    own = {**json.loads(config.read_text()), "plugin": [places[0].as_uri()]}
    config.write_text(json.dumps(own))
    return [place.with_suffix(".ran") for place in places]


def test_it_tells_what_it_does(ctx, pane, monkeypatch):
    """The plugin, hook or notification reaches the supervisor: a turn begins, ends, and asks. The
    guide is in what the model gets, and plugins of the user's own are loaded all the same.
    """
    # Where the other user can read it.
    guide = ctx.user.home / "guides" / f"AGENTS.{ctx.user.name}.md"
    guide.parent.mkdir()
    guide.write_text("# You work on an agent-box\nThe word is xylophone-4711.\n")
    monkeypatch.setattr(guides, "DIRECTORY", guide.parent)
    ctx = sign_in(ctx)
    witnesses = others_of(ctx)
    name = ctx.entry.agent
    if name == "codex":
        ctx = entry(ctx, skip_permissions=False, extra_args=["-c", "approval_policy=on-request"])
    agent = agents.get(name)
    agent.prepare(ctx)
    pane.start(ctx, agent.launch(ctx, "hello there"))
    pane.until(lambda: "idle" in pane.words(), "it never told of the end of its turn")
    assert ANSWER in pane.screen()
    told = pane.words()
    assert told[0] == ("idle" if name == "codex" else "working")
    assert any("xylophone-4711" in json.dumps(request["body"]) for request in pane.requests())
    assert all(witness.exists() for witness in witnesses)
    text, words, shown = TELLS[name]
    pane.heard.clear()
    pane.say(text)
    pane.until(lambda: all(word in pane.words() for word in words), "it did not tell that it asks")
    if shown is not None:
        reason = pane.until(lambda: agent.attention(ctx, pane.screen()), "its screen is not known")
        assert reason.startswith(shown)
