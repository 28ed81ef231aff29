"""The stub agent, driven through a pseudo-terminal as tmux would."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path

import pexpect
import pytest

import agent_box_harness

STUB = Path(agent_box_harness.__file__).with_name("stub_agent.py")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("claude", "codex"):
        (tmp_path / "bin" / name).symlink_to(STUB)
    return tmp_path


def spawn(home, *arguments, name="claude"):
    return pexpect.spawn(
        sys.executable,
        [str(home / "bin" / name), *arguments],
        env={**os.environ, "HOME": str(home)},
        cwd=str(home),
        timeout=10,
        encoding="utf-8",
    )


def records(home, name):
    path = home / ".stub" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ended(child):
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus if child.signalstatus is None else -child.signalstatus


def test_a_kickoff_prompt_begins_the_conversation(home):
    ident = str(uuid.uuid4())
    child = spawn(home, "--settings", "/x", "--session-id", ident, "--", "do it\nnow")
    child.expect("stub: ready")
    [path] = (home / ".claude/projects").glob(f"*/{ident}.jsonl")
    assert json.loads(path.read_text())["message"]["content"] == "do it\nnow"
    [prompt] = records(home, "prompts.jsonl")
    assert (prompt["prompt"], prompt["via"], prompt["id"]) == ("do it\nnow", "argv", ident)
    child.send("!exit 0\r")
    assert ended(child) == 0
    [launch] = records(home, "launches.jsonl")
    assert launch["argv"][1:] == ["--settings", "/x", "--session-id", ident, "--", "do it\nnow"]


def test_no_prompt_no_conversation(home):
    ident = str(uuid.uuid4())
    child = spawn(home, "--session-id", ident)
    child.expect("stub: ready")
    assert not (home / ".claude").exists()
    child.send("!exit 3\r")
    assert ended(child) == 3


def test_resume_needs_a_conversation_and_a_new_id_must_be_new(home):
    ident = str(uuid.uuid4())
    child = spawn(home, "--resume", ident)
    child.expect("No conversation found")
    assert ended(child) == 1
    child = spawn(home, "--session-id", ident, "--", "first")
    child.expect("stub: ready")
    child.send("!exit 0\r")
    ended(child)
    child = spawn(home, "--resume", ident, "--", "go on")
    child.expect("stub: ready")
    child.send("!exit 0\r")
    ended(child)
    assert [r["resumed"] for r in records(home, "prompts.jsonl")] == [False, True]
    child = spawn(home, "--session-id", ident)
    child.expect("already in use")
    assert ended(child) == 1


def test_a_pasted_prompt_arrives_whole(home):
    child = spawn(home, "--session-id", str(uuid.uuid4()))
    child.expect("stub: ready")
    text = "x" * 20_000 + "\r" + "second line ü"
    child.send(f"\x1b[200~{text}\x1b[201~")
    child.send("\r")
    child.expect("stub: prompt of")
    [prompt] = records(home, "prompts.jsonl")
    assert prompt["prompt"] == text.replace("\r", "\n")
    child.close(force=True)


def test_commands_come_from_files_too(home):
    ident = str(uuid.uuid4())
    child = spawn(home, "--session-id", ident)
    child.expect("stub: ready")
    (home / ".stub/command").write_text("print from a file\n")
    child.expect("from a file")
    (home / f".stub/command.{uuid.uuid4()}").write_text("exit 9\n")
    (home / f".stub/command.{ident}").write_text("kill 15\n")
    assert ended(child) == -15


def test_on_start_comes_before_the_prompt_is_taken(home):
    (home / ".stub").mkdir()
    (home / ".stub/on-start").write_text("exit 7\n")
    child = spawn(home, "--session-id", str(uuid.uuid4()), "--", "lost?")
    assert ended(child) == 7
    assert records(home, "prompts.jsonl") == []
    assert not (home / ".claude").exists()


def test_codex_keeps_rollouts(home):
    child = spawn(home, "--", "task", name="codex")
    child.expect("stub: ready")
    [path] = (home / ".codex/sessions").glob("*/*/*/rollout-*.jsonl")
    ident = path.stem[-36:]
    meta, prompt = (json.loads(line) for line in path.read_text().splitlines())
    assert meta["payload"]["id"] == ident
    assert prompt["payload"]["message"] == "task"
    child.send("!exit 0\r")
    ended(child)
    child = spawn(home, "resume", "--yolo", "--", ident, "go on", name="codex")
    child.expect("stub: ready")
    assert [r["prompt"] for r in records(home, "prompts.jsonl")] == ["task", "go on"]
    child.close(force=True)


def test_children_and_memory_are_told(home):
    child = spawn(home, "--session-id", str(uuid.uuid4()))
    child.expect("stub: ready")
    child.send("!fork 2\r")
    child.expect("stub: 2 children")
    child.send("!eat 3\r")
    child.expect("holding 3 MiB")
    child.send("!exit 0\r")
    assert ended(child) == 0
