"""The vocabulary of agent-box, spoken to a machine that only looks like one."""

from __future__ import annotations

import base64
import json

import pytest

from agent_box_harness.apart import Result
from agent_box_harness.box import Box
from agent_box_harness.errors import RequestFailedError, WaitTimeoutError

from .fakes import FakeMachine


def answer(out: str, err: str = "", rc: int = 0) -> tuple[int, str]:
    """What a guest says after `Box.run` asked it."""
    encoded = [base64.b64encode(text.encode()).decode() for text in (out, err)]
    return 0, "\n".join([str(rc), *encoded]) + "\n"


DOCUMENT = json.dumps(
    {
        "programs": {"tmux": "/usr/bin/tmux"},
        "agents": {"claude": {"command": "/opt/agents/claude/bin/claude"}},
        "users": {
            "alice": {
                "home": "/home/alice",
                "shell": "/bin/bash",
                "runtimeDirectory": "/run/agent-box-alice",
            }
        },
    }
)


def make(tmp_path, **answers):
    table = {"/etc/agent-box/box.json": answer(DOCUMENT)}
    table.update({key: answer(value) for key, value in answers.items()})
    return Box(FakeMachine(tmp_path, table))


def test_run_keeps_the_streams_apart(tmp_path):
    box = Box(FakeMachine(tmp_path))
    result = box.run("echo out; echo 'it''s err' >&2; exit 3")
    assert result == Result(3, "out", "its err")
    with pytest.raises(RequestFailedError, match=r"ended with 3[\s\S]*its err"):
        result.check()


@pytest.mark.parametrize("text", ["", "a\nb\n", "ü \x1b[1m", "'\"$x`", "no newline"])
def test_run_brings_any_output_back(tmp_path, text):
    result = Box(FakeMachine(tmp_path)).run("cat", stdin=text)
    assert result.out == text.removesuffix("\n")


def test_a_machine_that_answers_nonsense_is_an_error(tmp_path):
    box = Box(FakeMachine(tmp_path, {"uptime": (0, "no such thing")}))
    with pytest.raises(RequestFailedError, match="no answer from the guest"):
        box.run("uptime")


def test_a_time_out_is_status_124(tmp_path):
    box = Box(FakeMachine(tmp_path, {"sleep": (124, "")}))
    assert box.run("sleep 100").rc == 124


def test_unknown_words_are_the_machines_own(tmp_path):
    box = Box(FakeMachine(tmp_path))
    assert box.succeed("echo hello").strip() == "hello"
    assert box.description == "fake machine"
    with pytest.raises(AttributeError):
        _ = box.no_such_word


def test_a_user_gets_a_clean_environment(tmp_path):
    box = make(tmp_path, runuser="alice")
    assert box.as_user("alice", "echo '$HOME'").out == "alice"
    sent = box.machine.seen[-1]
    assert "env -i -C /home/alice" in sent
    assert "HOME=/home/alice" in sent
    assert "SHELL=/bin/bash" in sent


def test_sessions_are_read_from_ls(tmp_path):
    views = {
        "sessions": [{"name": "main", "state": "running", "id": "i", "pid": 7}],
        "problems": [],
    }
    box = make(tmp_path, **{"agent-box-session ls": json.dumps(views)})
    assert box.session("alice", "main")["state"] == "running"
    assert box.wait_session("alice", "main", ["running", "waiting"])["id"] == "i"
    with pytest.raises(RequestFailedError, match=r"no session x .sessions: main"):
        box.session("alice", "x")


def test_the_supervisor_is_asked_itself_while_it_answers(tmp_path):
    command = json.dumps({"sessions": [{"name": "from the command"}]})
    answer = json.dumps({"ok": True, "result": {"sessions": [{"name": "from the socket"}]}}) + "\n"
    refusal = json.dumps({"ok": False, "error": {}}) + "\n"
    for said, name in ((answer, "socket"), (answer[:-9], "command"), (refusal, "command")):
        machine = make(tmp_path, **{"agent-box-session ls": command}).machine
        machine.answers["nc -N -U /run/agent-box-alice/control.sock"] = (0, said)
        assert Box(machine).sessions("alice") == [{"name": f"from the {name}"}]


def test_waiting_lasts_until_the_pid_is_known(tmp_path):
    box = make(tmp_path)
    found = [{"name": "main", "state": "running", "pid": pid} for pid in (None, None, 7)]
    box.sessions = lambda _: [found.pop(0)]
    assert box.wait_session("alice", "main", "running")["pid"] == 7


def test_waiting_in_vain_tells_what_was_seen(tmp_path):
    views = {"sessions": [{"name": "main", "state": "crashed"}]}
    box = make(tmp_path, **{"agent-box-session ls": json.dumps(views)})
    with pytest.raises(RequestFailedError, match=r"main in state running[\s\S]*crashed"):
        box.wait_session("alice", "main", "running", timeout=0.05)


def test_wait_for_takes_a_failed_request_as_not_yet(tmp_path):
    box = Box(FakeMachine(tmp_path))
    tries = iter([None, RequestFailedError("not there"), 7])

    def probe():
        value = next(tries)
        if isinstance(value, Exception):
            raise value
        return value

    assert box.wait_for("seven", probe) == 7
    with pytest.raises(WaitTimeoutError, match="never"):
        box.wait_for("never", lambda: False, timeout=0.05)


def test_in_session_goes_through_the_users_own_tmux_server(tmp_path):
    box = make(tmp_path, **{"run-shell": "probe says"})
    assert box.in_session("alice", "id").out == "probe says"
    sent = box.machine.seen[-1]
    assert "-L agent-box -N run-shell" in sent
    assert "TMUX_TMPDIR=/run/agent-box-alice" in sent


def test_expect_in_shows_the_output(tmp_path):
    box = Box(FakeMachine(tmp_path))
    box.expect_in("abc", "b")
    box.expect_in(Result(0, "abc", ""), "c")
    box.expect_not_in(Result(0, "abc", ""), "x")
    with pytest.raises(RequestFailedError, match=r"'x' in:\nabc"):
        box.expect_in("abc", "x")
    with pytest.raises(RequestFailedError, match="did not expect"):
        box.expect_not_in(Result(0, "", "abc"), "b")


def test_the_stub_takes_the_place_of_the_box_own_command(tmp_path):
    box = make(tmp_path, readlink="/opt/agents/claude/real/claude", mkdir="")
    box.use_stub("claude", signed_in=False)
    assert "ln -sfn /opt/agent-box-stub/stub_agent.py" in box.machine.seen[-1]
    assert box.machine.seen[-1].endswith("/opt/agents/claude/bin/claude")
    with pytest.raises(RequestFailedError, match=r"no agent pi .it has claude"):
        box.use_stub("pi")
