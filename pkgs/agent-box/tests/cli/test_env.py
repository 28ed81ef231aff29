"""`env`: values go in by argument or standard input and are never printed."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest

from agent_box import envfile

from .conftest import view

SECRET = "s3cr3t-value"


@pytest.fixture
def path(box):
    box.supervisor.replies["ls"] = {"sessions": [], "problems": []}
    return box.home / ".config/agent-box/env"


def feed(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_set_list_and_remove(cli, path):
    result = cli("env", "set", "GH_TOKEN", SECRET)
    assert (result.status, result.out, result.err) == (0, "set GH_TOKEN\n", "")
    assert path.read_text() == f"GH_TOKEN={SECRET}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    cli("env", "set", "A=b=c")
    assert envfile.read(path)["A"] == "b=c"
    result = cli("env", "ls")
    assert result.out == "A\nGH_TOKEN\n"
    assert cli("env", "ls", "--json").json == {"keys": ["A", "GH_TOKEN"], "oldValuesIn": []}
    assert cli("env", "rm", "A").status == 0
    assert cli("env", "unset", "GH_TOKEN").out == "removed GH_TOKEN\n"
    assert cli("env", "ls").out == ""
    result = cli("env", "unset", "GH_TOKEN")
    assert (result.status, result.out) == (0, "")
    assert "was not set" in result.err


@pytest.mark.parametrize(
    ("data", "raw", "value"),
    [
        (b"x\n", False, "x"),
        (b"x\n\n", False, "x\n"),
        (b"x\n", True, "x\n"),
        (b"", False, ""),
        ("-----BEGIN\nü$'\"\\\n".encode(), False, "-----BEGIN\nü$'\"\\"),
        (b"\xff", False, "\udcff"),
    ],
)
def test_values_from_standard_input(cli, path, monkeypatch, data, raw, value):
    feed(monkeypatch, data)
    assert cli("env", "set", "KEY", *(["--raw"] if raw else [])).status == 0
    assert envfile.read(path) == {"KEY": value}


def test_values_may_look_like_options(cli, path):
    assert cli("env", "set", "K", "-----BEGIN KEY\n-x").status == 0
    assert cli("env", "set", "--force", "L", "--", "-x").status == 0
    assert cli("env", "set", "M", "--force", "v").status == 0
    assert envfile.read(path) == {"K": "-----BEGIN KEY\n-x", "L": "-x", "M": "v"}
    result = cli("env", "set", "N", "-x")
    assert result.status == 2
    assert "put --" in result.err


def test_reserved_and_impossible_keys(cli, path):
    for key in ("PATH", "LD_PRELOAD", "BASH_ENV"):
        result = cli("env", "set", key, SECRET)
        assert result.status == 2
        assert "--force" in result.err
        assert SECRET not in result.err
    assert cli("env", "set", "PATH", "/bin", "--force").status == 0
    for argv in (["1A", "x"], ["A-B=secret"], [""], []):
        assert cli("env", "set", *argv).status == 2
    assert cli("env").status == 2
    assert envfile.keys(path) == ["PATH"]


def test_running_sessions_are_told_of(cli, box, path):
    box.supervisor.replies["ls"] = {
        "sessions": [view("main", pid=os.getpid()), view("off", "stopped"), view("w", "waiting")],
        "problems": [],
    }
    result = cli("env", "set", "A", SECRET)
    assert "next restart of main, w" in result.err
    assert cli("env", "set", "A", SECRET, "--json").json == {"changed": [], "oldValuesIn": []}
    assert cli("env", "set", "A", "2", "--json").json == {
        "changed": ["A"],
        "oldValuesIn": ["main", "w"],
    }
    result = cli("env", "ls")
    assert "restart of main " in result.err
    assert result.out == "A\n"
    os.utime(path, (1, 1))
    assert cli("env", "ls").err == ""


def test_no_supervisor_is_no_obstacle(cli, box, path):
    box.supervisor.stop()
    assert cli("env", "set", "A", "1").err == ""
    assert cli("env", "ls").out == "A\n"


def test_an_unreadable_file_is_named(cli, path):
    path.mkdir(parents=True)
    result = cli("env", "ls")
    assert result.status == 1
    assert str(path) in result.err


def test_the_variables_of_one_session(cli, path):
    identity = "0f0e0d0c-0000-4000-8000-000000000001"
    entries = {"one": {"agent": "shell", "boxSessionId": identity}, "new": {"agent": "shell"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name("sessions.json").write_text(json.dumps({"version": 1, "sessions": entries}))
    own = path.with_name("session-env") / identity
    assert cli("env", "set", "KEY", SECRET, "--session", "one").out == "set KEY\n"
    assert envfile.read(own) == {"KEY": SECRET}
    assert own.stat().st_mode & 0o777 == 0o600
    assert own.parent.stat().st_mode & 0o777 == 0o700
    assert not path.exists()
    assert cli("env", "ls").out == ""
    assert cli("env", "ls", "--session", "one").out == "KEY\n"
    assert cli("env", "unset", "KEY", "--session=one").out == "removed KEY\n"
    assert cli("env", "set", "KEY", "x", "--session", "nobody").status == 3
    assert cli("env", "set", "KEY", "x", "--session", "new").status == 4
    assert not path.exists()
