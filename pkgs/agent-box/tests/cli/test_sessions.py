"""Every verb about sessions against a supervisor that answers as the contract says."""

from __future__ import annotations

import io
import json
import os
import sys
import time

import pytest

from agent_box.errors import ConflictError, InternalError, NotFoundError
from agent_box.session_cli import context, render

from .conftest import view


def test_ls_is_aligned_and_tells_why(cli, box):
    now = time.time()
    box.supervisor.replies["ls"] = {
        "sessions": [
            view("main"),
            view("x" * 30, "crashed", reason="exit 3", nextRetry=now + 42.4, agent="codex"),
            view("w", "waiting", reason="not signed in", promptPending=True),
            view("odd\x1b[31m", "unmanaged", agent="-"),
        ],
        "problems": [],
    }
    result = cli("ls")
    assert result.status == 0
    assert result.err == ""
    assert result.out.splitlines() == [
        "NAME" + " " * 27 + "AGENT    STATE      NOTE",
        "main" + " " * 27 + "claude   running",
        "x" * 30 + " codex    crashed    exit 3; next try in 42 s",
        "w" + " " * 30 + "claude   waiting    not signed in; first task not delivered yet",
        "odd\\x1b[31m" + " " * 20 + "-        unmanaged",
    ]


def test_ls_keeps_the_classic_columns(cli, box):
    box.supervisor.replies["ls"] = {"sessions": [view("main", "stopped")], "problems": []}
    lines = cli("ls").out.splitlines()
    assert lines[0].split() == ["NAME", "AGENT", "STATE", "NOTE"]
    assert lines[1] == f"{'main':<24} {'claude':<8} stopped"


def test_ls_problems_are_sentences_beside_the_list(cli, box):
    problem = "sessions.json does not parse (line 3); correct it"
    box.supervisor.replies["ls"] = {"sessions": [view("main")], "problems": [problem]}
    result = cli("ls")
    assert result.status == 0
    assert problem in result.err
    assert "main" in result.out
    assert problem not in result.out
    assert cli("ls", "--json").json == {"sessions": [view("main")], "problems": [problem]}
    assert cli("--json", "ls").json["problems"] == [problem]
    assert cli("ls", "--names").out == "main\n"


def test_wide_characters_keep_the_columns():
    assert render.width("日本") == 4
    assert render.width("é") == 1
    assert render.pad("日本", 6) + "|" == "日本  |"


def test_colour_only_when_asked():
    lines = render.table([view("a", "failed", reason="no such program")], colour=True)
    assert "\x1b[1;31mfailed    \x1b[0m no such program" in lines[1]
    assert "\x1b" not in lines[0]


def test_ls_with_no_supervisor_still_answers(cli, box):
    box.supervisor.stop()
    (box.home / ".config/agent-box").mkdir(parents=True)
    registry = box.home / ".config/agent-box/sessions.json"
    registry.write_text(json.dumps({"version": 1, "sessions": {"main": {"agent": "claude"}}}))
    started = time.monotonic()
    result = cli("ls")
    assert time.monotonic() - started < 3
    assert result.status == 0
    assert "main" in result.out
    assert "supervisor" in result.err
    assert "systemctl status" in result.err
    assert [item["name"] for item in cli("ls", "--json").json["sessions"]] == ["main"]


def test_ls_with_a_silent_supervisor_answers_within_three_seconds(box):
    box.supervisor.replies["ls"] = lambda args: time.sleep(10)
    started = time.monotonic()
    result = box.process("ls")
    assert time.monotonic() - started < 3.5  # what the machine needs for a process included
    assert result.returncode == 0
    assert "does not answer" in result.stderr


def test_changes_without_a_supervisor_go_to_the_registry(cli, box):
    box.supervisor.stop()
    registry = box.home / ".config/agent-box/sessions.json"
    registry.parent.mkdir(parents=True)
    registry.write_text('{"version": 1, "sessions": {}}')
    result = cli("add", "one", "--quiet")
    assert (result.status, result.out) == (0, "one\n")
    assert "takes effect when the supervisor runs" in result.err
    assert "one" in json.loads(registry.read_text())["sessions"]
    assert cli("add", "one").status == 4
    assert "added" in cli("add", "two", "--agent", "codex").out
    assert cli("rm", "nope").status == 3
    # Talking to a session needs the supervisor.
    assert cli("send", "one", "hi").status == 1
    assert cli("wait", "one", "--state", "running", "--timeout", "0").status == 1


def test_changes_wait_for_a_supervisor_that_restarts(cli, box, monkeypatch):
    monkeypatch.setattr(context, "PATIENCE", 10.0)
    box.supervisor.replies["stop"] = {"session": view("main", "stopped")}
    box.supervisor.stop()
    import threading

    threading.Timer(0.3, box.supervisor.start).start()
    result = cli("stop", "main")
    assert (result.status, result.out, result.err) == (0, "stopped main\n", "")


@pytest.mark.parametrize(
    ("verb", "word"), [("rm", "removed"), ("stop", "stopped"), ("start", "started")]
)
def test_several_sessions_at_once_report_each(cli, box, verb, word):
    def reply(args):
        if args["name"] == "gone":
            return NotFoundError("no session 'gone'")
        return {"session": None if verb == "rm" else view(args["name"])}

    box.supervisor.replies[verb] = reply
    result = cli(verb, "a", "gone", "b", "a")
    assert result.status == 3
    assert result.out == f"{word} a\n{word} b\n"
    assert "no session 'gone'" in result.err
    answer = cli(verb, "a", "gone", "--json").json
    assert answer["names"] == ["a"]
    assert answer["errors"] == [
        {"name": "gone", "code": "not_found", "message": "no session 'gone'"}
    ]


def test_names_that_cannot_be_are_usage_errors_and_long_ones_pass(cli, box):
    box.supervisor.replies["rm"] = {"session": None}
    assert cli("rm", "a b").status == 2
    assert box.supervisor.requests == []
    assert cli("rm", "x" * 151).status == 0


def test_own_session_comes_last(cli, box, monkeypatch):
    box.supervisor.replies["rm"] = {"session": None}

    def order():
        box.supervisor.requests.clear()
        assert cli("rm", "me", "b", "c").status == 0
        return [args["name"] for op, args in box.supervisor.requests if op == "rm"]

    box.supervisor.replies["ls"] = {"sessions": [view("me", pid=os.getppid())], "problems": []}
    assert order() == ["b", "c", "me"]
    box.supervisor.replies["ls"] = {"sessions": [], "problems": []}
    assert order() == ["me", "b", "c"]
    monkeypatch.setenv("AGENT_BOX_SESSION", "me")
    assert order() == ["b", "c", "me"]


def test_restart_by_name_and_all(cli, box):
    box.supervisor.replies["restart"] = lambda args: {
        "sessions": [view(args.get("name", "main"))],
        "errors": [] if "name" in args else [{"name": "bad", "message": "cannot be ended"}],
    }
    assert cli("restart", "a", "b").out == "restarted a\nrestarted b\n"
    result = cli("restart", "--all")
    assert result.status == 1
    assert result.out == "restarted main\n"
    assert "bad: cannot be ended" in result.err
    assert box.supervisor.requests[-1] == ("restart", {"all": True, "includeStopped": False})
    cli("restart", "--all", "--include-stopped", "--json")
    assert box.supervisor.requests[-1] == ("restart", {"all": True, "includeStopped": True})
    for wrong in ([], ["a", "--all"], ["a", "--include-stopped"]):
        assert cli("restart", *wrong).status == 2


def test_a_start_that_fails_is_not_a_success(cli, box):
    box.supervisor.replies["start"] = {"session": view("a", "failed", reason="no such program")}
    result = cli("start", "a")
    assert result.status == 1
    assert "no such program" in result.err


def test_show(cli, box):
    answer = {
        **view("main", "crashed", reason="out of memory", restarts=2, pid=7),
        "limits": {"memoryMax": 3 * 1024**3, "tasksMax": 2048},
        "entry": {
            "extraArgs": ["--model", "o p"],
            "initialPrompt": "do\nthis",
            "skipPermissions": True,
        },
        "exits": [{"at": 1_700_000_000.0, "code": None, "signal": 9, "cause": "killed by SIGKILL"}],
    }
    box.supervisor.replies["show"] = answer
    out = cli("show", "main").out
    assert "state:            crashed\n" in out
    assert "memory limit:     3.0 GiB\n" in out
    assert "arguments:        --model 'o p'\n" in out
    assert "first task:       do this\n" in out
    assert "killed by SIGKILL" in out
    assert cli("show", "main", "--json").json == answer
    box.supervisor.replies["show"] = NotFoundError("no session 'x'; see ls")
    result = cli("show", "x", "--json")
    assert result.status == 3
    assert result.json == {"error": {"code": "not_found", "message": "no session 'x'; see ls"}}
    assert "no session 'x'" in result.err


def test_logs(cli, box):
    box.supervisor.replies["logs"] = {"text": "a\x1b[2Jb\n\tc", "source": "live", "run": None}
    assert cli("logs", "main", "-n", "5").out == "a[2Jb\n\tc\n"
    assert box.supervisor.args("logs") == {"name": "main", "lines": 5}
    box.supervisor.replies["logs"] = {"text": "", "source": "ended", "run": 3}
    result = cli("logs", "main")
    assert result.out == ""
    assert "last run" in result.err
    cli("logs", "main", "--run", "2")
    assert box.supervisor.requests[-1] == ("logs", {"name": "main", "run": 2})
    assert cli("logs", "main", "-n", "0").status == 2


def test_send_from_argument_file_and_stdin(cli, box, tmp_path, monkeypatch):
    box.supervisor.replies["send"] = {}
    text = "line 1\n$HOME 'ü'\n"
    source = tmp_path / "text"
    source.write_text(text)

    def sent(*argv):
        assert cli("send", *argv).status == 0
        return box.supervisor.requests[-1][1]

    assert sent("main", "hi there") == {"name": "main", "text": "hi there", "enter": True}
    assert sent("main", "--no-enter", "") == {"name": "main", "text": "", "enter": False}
    assert sent("main", "--", "-x")["text"] == "-x"
    assert sent("main", "--file", str(source))["text"] == text[:-1]
    assert sent("main", "--file", str(source), "--no-enter")["text"] == text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert sent("main", "-")["text"] == text[:-1]
    for wrong in (
        ["main"],
        ["main", "x", "--file", "y"],
        ["main", "--file", "/nowhere"],
        ["main", "-x"],
    ):
        assert cli("send", *wrong).status == 2
    source.write_bytes(b"\xff")
    assert "UTF-8" in cli("send", "main", "--file", str(source)).err


def test_wait(cli, box):
    box.supervisor.replies["wait"] = {"session": view("main")}
    assert (
        cli("wait", "main", "--state", "running,waiting", "--timeout", "9").out == "main: running\n"
    )
    args = box.supervisor.args("wait")
    assert args["states"] == ["running", "waiting"]
    assert 8 < args["timeout"] <= 9
    box.supervisor.replies["wait"] = ConflictError("main is still starting after 1 s")
    assert cli("wait", "main", "--state", "failed", "--timeout", "1").status == 4
    for wrong in (["--state", "live"], [], ["--state", "running", "--timeout", "-1"]):
        assert cli("wait", "main", *wrong).status == 2


def test_wait_survives_a_restart_of_the_supervisor(cli, box):
    calls = []

    def reply(args):
        calls.append(args)
        if len(calls) == 1:
            raise ConnectionAbortedError
        return {"session": view("main")}

    box.supervisor.replies["wait"] = reply
    assert cli("wait", "main", "--state", "running", "--timeout", "20").status == 0
    assert len(calls) == 2


def test_rename(cli, box):
    box.supervisor.replies["rename"] = lambda args: {"session": view(args["newName"])}
    assert cli("rename", "a", "b").out == "a is now b\n"
    assert cli("rename", "x" * 151, "b").status == 0
    assert cli("rename", "a", "_b").status == 2
    assert cli("rename", "a", "b", "--json").json["name"] == "b"


def test_status(cli, box):
    reply = {
        "version": "1",
        "pid": 5,
        "user": "alice",
        "server": {"state": "running", "pid": 6},
        "problems": [],
    }
    box.supervisor.replies["status"] = reply
    result = cli("status")
    assert result.status == 0
    assert "running (pid 5, version 1)" in result.out
    box.supervisor.replies["status"] = {**reply, "server": {"state": "not-answering", "pid": 6}}
    result = cli("status")
    assert result.status == 1
    assert "not answering" in result.out
    box.supervisor.stop()
    result = cli("status", "--json")
    assert result.status == 1
    assert result.json["supervisor"]["state"] == "down"


@pytest.mark.parametrize(
    ("error", "status"),
    [(NotFoundError("m"), 3), (ConflictError("m"), 4), (InternalError("m"), 1)],
)
def test_exit_statuses(cli, box, error, status):
    for verb in ("add", "show", "stop", "send", "rename", "logs"):
        box.supervisor.replies[verb] = error
    for argv in (
        ["add"],
        ["show", "a"],
        ["stop", "a"],
        ["send", "a", "b"],
        ["rename", "a", "b"],
        ["logs", "a"],
    ):
        result = cli(*argv)
        assert result.status == status
        assert result.err == "agent-box-session: m\n"
        assert result.out == ""


def test_users_of_the_machine_who_are_not_of_the_box(cli, box):
    someone = {"home": "/x", "shell": "/x", "runtimeDirectory": "/x"}
    box.document(users={"alice": someone, "bob": someone})
    result = cli("ls")
    assert result.status == 2
    assert "sudo -u alice agent-box-session" in result.err
    assert "bob" in result.err


def test_missing_and_broken_configuration(cli, box):
    box.config.write_text("{")
    assert cli("ls").status == 1
    box.document(version=99)
    assert "version 99" in cli("ls").err
    box.config.unlink()
    result = cli("ls")
    assert result.status == 1
    assert str(box.config) in result.err


def test_a_closed_pipe_is_no_traceback(box):
    box.supervisor.replies["ls"] = {
        "sessions": [view(f"s{n}") for n in range(20_000)],
        "problems": [],
    }
    reader, writer = os.pipe()
    os.close(reader)
    result = box.process("ls", stdout=writer, capture_output=False, stderr=-1)
    os.close(writer)
    assert result.returncode == 141
    assert result.stderr == ""


def test_any_locale_prints_something(box):
    box.supervisor.replies["ls"] = {"sessions": [view("a", reason="größer")], "problems": []}
    env = {**box.env, "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = box.process("ls", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    assert "gr\\xf6\\xdfer" in result.stdout
