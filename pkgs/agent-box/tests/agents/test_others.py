"""opencode, pi, the shell, prompts, and what all adapters have in common."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box import agents
from agent_box.agents import hook
from agent_box.agents.base import MAX_ARGUMENT, RESUME_STEER, Agent, valid_uuid
from agent_box.agents.opencode import AGENT as OPENCODE
from agent_box.agents.pi import AGENT as PI
from agent_box.agents.prompts import argument, stamp
from agent_box.agents.shell import AGENT as SHELL

from .conftest import LAUNCH, SESSION, entry, make_context, record

OTHER = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
ARGUMENTS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))


def test_every_name_has_an_agent():
    assert agents.names() == ["claude", "codex", "opencode", "pi", "shell"]
    for name in agents.names():
        agent = agents.get(name)
        assert isinstance(agent, Agent)
        assert agent.name == name
        assert agents.get(name) is agent
    for name in ("", "base", "screen", "../x", "Claude", "claude.x", "os", "__init__"):
        with pytest.raises(KeyError):
            agents.get(name)


@given(st.sampled_from(["claude", "codex", "opencode", "pi"]), TEXT, ARGUMENTS, st.booleans())
def test_argv_carries_extra_args_in_order_and_the_whole_prompt(name, prompt, extra, skip):
    ctx = make_context(Path("/nonexistent"))
    ctx = entry(ctx, agent=name, extra_args=extra, skip_permissions=skip)
    launch = agents.get(name).launch(ctx, prompt)
    assert launch.delivers_prompt
    assert prompt.strip(" ") in launch.argv[-1]
    end = len(launch.argv) - (2 if launch.argv[-2] == "--" else 1)
    assert launch.argv[end - len(extra) : end] == extra
    without = agents.get(name).launch(ctx, None)
    assert without.argv[len(without.argv) - len(extra) :] == extra
    assert not without.delivers_prompt
    assert not without.resumes
    assert ctx.entry.extra_args == extra


def test_importing_the_agents_stays_light():
    # The supervisor pays for whatever these pull in.
    code = (
        "import sys; from agent_box import agents; from agent_box.agents import base;"
        "[agents.get(n) for n in ('claude', 'codex', 'opencode', 'pi', 'shell')];"
        "heavy = ('tomllib', 'sqlite3', 'asyncio', 'msgspec', 'subprocess');"
        "print([name for name in heavy if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


def test_a_long_prompt_goes_to_a_private_file(ctx):
    short = "é" * (MAX_ARGUMENT // 2)
    assert argument(ctx, short, "prompt") == short
    text = argument(ctx, short + "x", "prompt")
    path = ctx.user.home / ".local" / "state" / "agent-box" / "prompts" / f"{SESSION}.md"
    assert str(path) in text
    assert path.read_text() == short + "x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for name in ("claude", "codex", "opencode", "pi"):
        argv = agents.get(name).launch(ctx, "x" * 1_000_000).argv
        assert all(len(word.encode()) < 128 * 1024 for word in argv)


@given(st.text())
def test_any_text_becomes_an_argument_that_the_kernel_takes(text):
    word = argument(make_context(Path("/nonexistent")), text, "prompt")
    assert b"\0" not in word.encode()


@given(st.text())
def test_only_uuids_are_uuids(text):
    import re

    shape = re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)
    assert valid_uuid(text) == bool(shape)
    assert valid_uuid(LAUNCH)
    assert not valid_uuid(LAUNCH + "\n")
    assert not valid_uuid(None)


# The hook


def test_hook_records_the_conversation(tmp_path):
    path = hook.record({"session_id": OTHER, "source": "clear"}, LAUNCH, tmp_path)
    assert path == tmp_path / ".local" / "state" / "agent-box" / "live" / LAUNCH
    assert path.read_text() == OTHER + "\n"
    assert [item.name for item in path.parent.iterdir()] == [LAUNCH]


@given(st.one_of(st.text(max_size=100), st.none(), st.integers()), st.text(max_size=40))
def test_hook_takes_nothing_that_is_not_sound(identity, launch):
    assert hook.record({"session_id": identity}, launch, Path("/nonexistent")) is None
    assert hook.record(identity, LAUNCH, Path("/nonexistent")) is None


@pytest.mark.parametrize(
    ("event", "word"),
    [
        ({"hook_event_name": "UserPromptSubmit"}, "working"),
        ({"hook_event_name": "Stop"}, "idle"),
        ({"hook_event_name": "Notification", "notification_type": "idle_prompt"}, "idle"),
        ({"hook_event_name": "Notification", "notification_type": "permission_prompt"}, "asks"),
        ({"hook_event_name": "Notification", "notification_type": "auth_success"}, None),
        ({"hook_event_name": "PermissionRequest"}, "asks"),
        ({"hook_event_name": "StopFailure", "error": "authentication_failed"}, "refused"),
        ({"hook_event_name": "StopFailure", "error": "rate_limit"}, "failed"),
        ({"hook_event_name": "SessionStart"}, None),
        ({}, None),
    ],
)
def test_events_of_claude_in_one_word(event, word):
    assert hook.word_of_claude(event) == word


def test_the_word_reaches_the_supervisor_of_the_pane_only(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify.sock"))
        sock.settimeout(5)
        server = f"{tmp_path}/tmux-{os.getuid()}/agent-box"
        env = {"TMUX_TMPDIR": str(tmp_path), "TMUX_PANE": "%7", "TMUX": f"{server},1,0"}
        # tmux in a pane has panes of its own, which are not ours.
        hook.send("asks", {**env, "TMUX": "/tmp/tmux-1/default,1,0"})
        hook.send("asks", {})
        for words in (["idle"], ["codex", '{"type": "agent-turn-complete"}'], ["other"]):
            program = [sys.executable, "-m", "agent_box.agents.hook", *words]
            cwd = Path(hook.__file__).parents[2]
            subprocess.run(program, env=env, check=True, cwd=cwd, stdin=subprocess.DEVNULL)
        wanted = {"event": "signal", "pane": "%7", "word": "idle"}
        assert [json.loads(sock.recv(999)) for _ in range(2)] == [wanted, wanted]
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(999)


def test_hook_as_a_program_is_silent_and_succeeds(tmp_path):
    for stdin in ("", "{", json.dumps({"session_id": "../x"}), json.dumps({"session_id": OTHER})):
        env = {"HOME": str(tmp_path), "AGENT_BOX_SESSION_ID": LAUNCH}
        done = subprocess.run(
            [sys.executable, "-m", "agent_box.agents.hook"],
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(hook.__file__).parents[2],
        )
        assert done.stdout == done.stderr == ""
    assert (tmp_path / ".local/state/agent-box/live" / LAUNCH).exists()


# opencode


def database(ctx, rows):
    path = ctx.user.home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, time_created INTEGER);"
        "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);"
        "CREATE TABLE part (id TEXT, message_id TEXT, time_created INTEGER, data TEXT);"
    )
    for identity, parent, directory, created, words in rows:
        connection.execute(
            "INSERT INTO session VALUES (?,?,?,?)", (identity, parent, directory, created)
        )
        if words is None:
            continue
        for number, (role, text) in enumerate((("user", words), ("assistant", stamp(LAUNCH)))):
            message = f"{identity}-{number}"
            connection.execute(
                "INSERT INTO message VALUES (?,?,?,?)",
                (message, identity, created + number, json.dumps({"role": role})),
            )
            data = json.dumps({"type": "text", "text": text})
            connection.execute(
                "INSERT INTO part VALUES (?,?,?,?)",
                ("p" + message, message, created + number, data),
            )
    connection.commit()
    connection.close()


HERE = "/home/alice/work"


def test_opencode_first_start(ctx):
    launch = OPENCODE.launch(entry(ctx, extra_args=["--model", "a/b"]), "-look")
    assert launch.argv == [
        "/bin/opencode",
        "--auto",
        "--model",
        "a/b",
        f"--prompt=[agent-box session {LAUNCH}] -look",
    ]
    assert launch.env["OPENCODE_DISABLE_AUTOUPDATE"] == "1"
    assert OPENCODE.launch(entry(ctx, skip_permissions=False), None).argv == ["/bin/opencode"]


def test_opencode_resumes_by_stamp_and_has_its_steer_typed(ctx):
    database(
        ctx,
        [
            ("ses_mine00001", None, HERE, 1000, f"{stamp(LAUNCH)} look"),
            ("ses_child0001", "ses_mine00001", HERE, 1100, f"{stamp(LAUNCH)} child"),
            ("ses_sibling01", None, HERE, 2000, f"what is {stamp(LAUNCH)}"),
            ("ses_elsewhere", None, "/else", 3000, f"{stamp(LAUNCH)} look"),
        ],
    )
    assert OPENCODE.conversation(ctx) == "ses_mine00001"
    launch = OPENCODE.launch(ctx, None)
    assert launch.argv == ["/bin/opencode", "--auto", "--session", "ses_mine00001"]
    assert launch.typed == RESUME_STEER
    assert launch.resumes
    # A kickoff prompt is never passed where it would be ignored.
    kickoff = OPENCODE.launch(ctx, "look")
    assert "--session" not in kickoff.argv
    assert kickoff.delivers_prompt


def test_opencode_without_a_prompt_wants_a_single_candidate(ctx):
    started = record(ctx, launched=True, started_at=10.0)
    rows = [
        ("ses_old000001", None, HERE, 5000, "before"),
        ("ses_empty0001", None, HERE, 20000, None),
        ("ses_mine00001", None, HERE, 20000, "after"),
    ]
    database(ctx, rows)
    assert OPENCODE.conversation(started) == "ses_mine00001"
    (ctx.user.home / ".local/share/opencode/opencode.db").unlink()
    database(ctx, [*rows, ("ses_sibling01", None, HERE, 21000, "too")])
    assert OPENCODE.conversation(started) is None
    assert OPENCODE.conversation(record(started, conversation="ses_sibling01")) == "ses_sibling01"
    assert OPENCODE.conversation(record(started, conversation="ses_gone00000")) is None


@pytest.mark.parametrize("content", [b"", b"not a database"])
def test_opencode_with_a_database_that_makes_no_sense(ctx, content):
    path = ctx.user.home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert OPENCODE.conversation(ctx) is None
    assert path.read_bytes() == content


def test_opencode_provider(ctx, tmp_path):
    assert OPENCODE.signed_in(ctx) is False
    assert OPENCODE.holds_prompt(ctx)
    assert OPENCODE.signed_in(replace(ctx, env={"OPENAI_API_KEY": "k"}))
    assert OPENCODE.signed_in(replace(ctx, env={"SEARCH_API_KEY": "k"})) is False
    config = ctx.user.home / ".config" / "opencode" / "opencode.jsonc"
    config.parent.mkdir(parents=True)
    config.write_text('{"$schema": "x"}')
    assert OPENCODE.signed_in(ctx) is False
    config.write_text('{ // mine\n "model": "opencode/free" }')
    assert OPENCODE.signed_in(ctx)


# pi


def pi_file(ctx, identity, folder="--home-alice-work--"):
    path = ctx.user.home / ".pi" / "agent" / "sessions" / folder / f"2026_{identity}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"type": "session", "id": identity, "cwd": "/home/alice/work"}
    message = {"type": "message", "message": {"role": "user", "content": "look"}}
    path.write_text(f"{json.dumps(header)}\n{json.dumps(message)}\n")
    return path


def test_pi_starts_and_resumes_by_our_id(ctx):
    launch = PI.launch(entry(ctx, extra_args=["--thinking", "high"]), "look")
    assert launch.argv == [
        "/bin/pi",
        "--approve",
        "--extension",
        str(Path(hook.__file__).with_name("plugins") / "pi.js"),
        "--session-id",
        LAUNCH,
        "--thinking",
        "high",
        "look",
    ]
    assert not launch.resumes
    pi_file(ctx, OTHER)
    pi_file(ctx, LAUNCH, folder="--home-alice-else--")
    assert PI.conversation(ctx) is None
    pi_file(ctx, LAUNCH)
    again = PI.launch(ctx, None)
    assert again.argv == [*launch.argv[:4], "--session-id", LAUNCH, RESUME_STEER]
    assert again.resumes


def test_pi_description_alone_is_no_delivery(ctx):
    """pi writes it first: a power cut may leave it, or half of what follows."""
    path = pi_file(ctx, LAUNCH)
    whole = path.read_bytes()
    description = whole.index(b"\n") + 1
    for length in (0, 10, description, description + 30):
        path.write_bytes(whole[:length])
        assert PI.conversation(ctx) is None
        again = PI.launch(ctx, "look")
        assert again.argv[-3:] == ["--session-id", LAUNCH, "look"]
        assert again.delivers_prompt
        assert not again.resumes
        assert PI.launch(ctx, None).argv[-2:] == ["--session-id", LAUNCH]
    path.write_bytes(whole)
    assert PI.conversation(ctx) == LAUNCH


@pytest.mark.parametrize("prompt", ["@README.md is wrong", "--help", "- a list"])
def test_pi_prompts_are_words(ctx, prompt):
    assert PI.launch(ctx, prompt).argv[-1] == " " + prompt


def test_pi_provider(ctx):
    agent = ctx.user.home / ".pi" / "agent"
    agent.mkdir(parents=True)
    (agent / "auth.json").write_text("{}")
    assert PI.signed_in(ctx) is False
    assert PI.holds_prompt(ctx)
    (agent / "auth.json").write_text('{"anthropic": {"type": "api_key"}}')
    assert PI.signed_in(ctx)


# shell


def test_shell(ctx):
    launch = SHELL.launch(entry(ctx, extra_args=["-l"]), "never")
    assert launch.argv == ["/bin/bash", "-l"]
    assert not launch.delivers_prompt
    assert SHELL.conversation(ctx) is None
    assert SHELL.holds_prompt(ctx) is None
    assert SHELL.attention(ctx, "Not logged in") is None
