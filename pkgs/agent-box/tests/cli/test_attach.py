"""`attach`: the session that was meant or an error, never another session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pexpect
import pytest

from .conftest import view


def listing(box, *views):
    box.supervisor.replies["ls"] = {"sessions": list(views), "problems": []}


def target(result):
    assert result.status == 0, result.err
    return result.json["argv"][-1]


def test_default_is_main_then_the_only_one(cli, box):
    listing(box, view("a"), view("main"), view("z"))
    assert target(cli("attach", "--json")) == "=main"
    listing(box, view("_connect-claude"), view("a"))
    assert target(cli("attach", "--json")) == "=a"
    listing(box, view("a"), view("b", "unmanaged"))
    result = cli("attach")
    assert result.status == 2
    assert "a, b" in result.err
    listing(box, view("_connect-claude"))
    result = cli("attach")
    assert result.status == 3
    assert "agent-box-session add" in result.err


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("nope", 3, "there are: main"),
        ("ma", 3, "no session ma"),
        ("a b", 2, "not a session name"),
        ("parked", 4, "start parked"),
        ("broken", 4, "no such program"),
        ("dead", 4, "next try in"),
    ],
)
def test_names_that_lead_nowhere(cli, box, name, status, says):
    listing(
        box,
        view("main"),
        view("parked", "stopped"),
        view("broken", "failed", reason="no such program"),
        view("dead", "crashed", reason="exit 3", nextRetry=2e10),
    )
    result = cli("attach", name)
    assert result.status == status
    assert says in result.err


def test_a_stopped_main_is_not_replaced_by_another(cli, box):
    listing(box, view("main", "stopped"), view("other"))
    result = cli("attach")
    assert result.status == 4
    assert "start main" in result.err


def test_a_starting_session_is_waited_for(cli, box):
    listing(box, view("main", "starting"))
    box.supervisor.replies["wait"] = {"session": view("main", "waiting")}
    assert target(cli("attach", "--json")) == "=main"
    box.supervisor.replies["wait"] = {"session": view("main", "failed", reason="exit 127")}
    assert cli("attach").status == 4


def test_the_command(cli, box, monkeypatch):
    listing(box, view("main"))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    answer = cli("attach", "--json").json
    tmux = str(box.root / "tmux")
    assert answer["argv"] == [tmux, "-L", "agent-box", "-N", "attach", "-t", "=main"]
    assert answer["environment"] == {"TMUX_TMPDIR": str(box.runtime)}
    assert "-r" in cli("attach", "-r", "main", "--json").json["argv"]
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.delenv("LC_CTYPE", raising=False)
    assert "-u" in cli("attach", "--json").json["argv"]
    # Inside our own server, the client that is there changes over.
    socket = box.runtime / f"tmux-{os.getuid()}" / "agent-box"
    socket.parent.mkdir()
    socket.touch()
    monkeypatch.setenv("TMUX", f"{socket},1,0")
    assert "switch-client" in cli("attach", "--json").json["argv"]


def test_no_terminal(cli, box):
    listing(box, view("main"))
    result = cli("attach")
    assert result.status == 2
    assert "terminal" in result.err


def test_the_process_becomes_tmux_with_a_clean_environment(box):
    listing(box, view("main"))
    fake = box.root / "tmux"
    fake.write_text('#!/bin/sh\necho "args: $*"; echo "env: $TMUX_TMPDIR [$TMUX] $TERM"\n')
    fake.chmod(0o755)
    env = {**box.env, "TERM": "no-such-terminal"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "agent_box.session_cli", "attach"],
        env=env,
        encoding="utf-8",
        timeout=20,
        dimensions=(24, 200),
    )
    child.expect("args: -L agent-box -N attach -t =main\r\n")
    child.expect_exact(f"env: {box.runtime} [] xterm-256color\r\n")
    child.expect(pexpect.EOF)


@pytest.mark.skipif(not Path("/usr/bin/tmux").exists(), reason="needs tmux")
def test_a_missing_server_is_not_started(box):
    listing(box, view("main"))
    box.document(programs={"tmux": "/usr/bin/tmux", "launch": "/nowhere"})
    child = pexpect.spawn(
        sys.executable,
        ["-m", "agent_box.session_cli", "attach"],
        env={**box.env, "TERM": "xterm"},
        encoding="utf-8",
        timeout=20,
    )
    child.expect("(no server running|error connecting)")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
