"""Sessions through the control socket, from birth to removal."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path

import pytest

from agent_box.control_client import Client
from agent_box.errors import ConflictError, NotFoundError, UsageError


def test_seeds_on_the_first_boot_only(make_box):
    box = make_box(
        {"main": {"agent": "claude", "initialPrompt": "hello"}, "sh": {"agent": "shell"}}
    )
    box.start()
    assert list(box.sessions()) == ["main", "sh"]
    main = box.wait("main", "running")
    box.ready(main["id"])
    box.call("rm", name="sh")
    before = box.registry.read_bytes()
    box.kill_supervisor()
    box.write_config({"other": {"agent": "shell"}})
    box.start_supervisor()
    assert box.registry.read_bytes() == before
    assert list(box.sessions()) == ["main"]


def test_a_life(box):
    view = box.call("add", name="one", prompt="do it")["session"]
    assert view["state"] == "running"
    assert uuid.UUID(view["id"])
    launch = box.ready(view["id"])[0]
    assert launch["prompt"] == "do it"
    assert launch["env"] == "a b"
    assert launch["pid"] == view["pid"]
    box.until(lambda: not box.view("one")["promptPending"])

    box.say("one", "print over here")
    box.until(lambda: "over here" in box.call("logs", name="one")["text"])
    assert box.call("logs", name="one")["source"] == "live"

    assert box.call("stop", name="one")["session"]["state"] == "stopped"
    assert box.raw()["sessions"]["one"]["stopped"] is True
    assert "over here" in box.call("logs", name="one")["text"]
    assert box.call("logs", name="one")["source"] == "ended"
    with pytest.raises(ConflictError):
        box.say("one", "print nobody")

    view = box.call("start", name="one")["session"]
    assert view["state"] == "running"
    assert "stopped" not in box.raw()["sessions"]["one"]
    second = box.ready(view["id"], 2)[1]
    assert second["resumed"]
    assert second["prompt"] != "do it"

    restarted = box.call("restart", name="one")
    assert restarted["errors"] == []
    assert restarted["sessions"][0]["pid"] != view["pid"]
    box.ready(view["id"], 3)

    assert box.call("rename", name="one", newName="two")["session"]["name"] == "two"
    assert "two" in box.tmux_run("list-sessions", "-F", "#{session_name}").split()
    assert list(box.sessions()) == ["two"]
    assert box.view("two")["pid"] == restarted["sessions"][0]["pid"]
    assert len(box.launches(view["id"])) == 3

    shown = box.call("show", name="two")
    assert shown["entry"]["boxSessionId"] == view["id"]
    pid = shown["pid"]
    box.call("rm", name="two")
    assert box.sessions() == {}
    box.until(lambda: not Path(f"/proc/{pid}").exists())
    box.until(lambda: not box.traces(view["id"]), explain=lambda: box.traces(view["id"]))


def test_refusals_name_their_kind(box):
    box.call("add", name="one", agent="shell")
    with pytest.raises(ConflictError):
        box.call("add", name="one", agent="shell")
    for op in ("rm", "stop", "start", "restart", "show", "logs", "send"):
        with pytest.raises(NotFoundError):
            box.call(op, name="nobody", text="x")
    for args in (
        {"name": "a b"},
        {"name": "_box"},
        {"agent": "nonesuch"},
        {"agent": "shell", "prompt": "x"},
        {"workingDirectory": "relative"},
        {"workingDirectory": "/nonexistent/dir"},
        {"prompt": "a\0b"},
        {"extraArgs": "no list"},
        {"remoteControlName": "a\nb"},
    ):
        with pytest.raises(UsageError):
            box.call("add", **args)
    with pytest.raises(UsageError):
        box.call("nonesuch")
    with pytest.raises(UsageError):
        box.call("wait", name="one", states=["dead"])
    with pytest.raises(ConflictError), Client(box.run_dir) as client:
        client.call("wait", name="one", states=["failed"], timeout=0.2)
    assert list(box.sessions()) == ["one"]


def test_wait_ends_with_the_state_or_the_session(box):
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    box.say("one", "exit 0")
    assert box.call("wait", name="one", states=["stopped"], timeout=20)["session"]["pid"] is None


@pytest.mark.parametrize("agent", ["claude", "shell"])
def test_leaving_parks_an_agent_and_renews_a_shell(box, agent):
    view = box.call("add", name="one", agent=agent)["session"]
    if agent == "claude":
        box.ready(view["id"])
        box.say("one", "exit 0")
        assert box.wait("one", "stopped")["lastExit"]["cause"] == "exit 0"
        assert box.raw()["sessions"]["one"]["stopped"] is True
        assert len(box.launches(view["id"])) == 1
        box.until(lambda: not box.tmux_run("list-sessions", check=False))
    else:
        box.say("one", "exit 0")
        box.until(lambda: box.view("one")["pid"] not in (None, view["pid"]))
        box.wait("one", "running")


def test_a_crash_brings_it_back_slower_each_time(box):
    view = box.call("add", name="one", prompt="work")["session"]
    box.ready(view["id"])
    box.say("one", "exit 3")
    launches = box.ready(view["id"], 2)
    assert launches[1]["resumed"]
    assert box.view("one")["lastExit"]["cause"] == "exit 3"
    os.kill(box.wait("one", "running")["pid"], signal.SIGKILL)
    crashed = box.wait("one", "crashed")
    assert crashed["reason"] == "killed by SIGKILL"
    assert crashed["nextRetry"] is not None
    launches = box.ready(view["id"], 3)
    assert launches[2]["at"] - launches[1]["at"] > 0.85
    os.kill(box.wait("one", "running")["pid"], signal.SIGKILL)
    launches = box.ready(view["id"], 4)
    assert launches[3]["at"] - launches[2]["at"] > 1.75
    exits = box.call("show", name="one")["exits"]
    assert [item["cause"] for item in exits] == ["exit 3", *["killed by SIGKILL"] * 2]
    assert [item["signal"] for item in exits] == [None, 9, 9]
    assert box.view("one")["restarts"] == 3
    text = box.call("logs", name="one", run=1)["text"]
    assert "stub fresh" in text
    assert "Pane is dead" not in text
    assert "\n\n\n" not in text


def test_a_missing_program_fails_once_and_works_when_corrected(box):
    box.claude.unlink()
    view = box.call("add", name="one", prompt="do it later")["session"]
    failed = box.wait("one", "failed")
    assert "not installed" in failed["reason"]
    assert view["id"] == failed["id"]
    starts = box.log.count("session one: started")
    assert starts == 1
    assert "agent-box-session restart one" in box.call("logs", name="one")["text"]
    # A second supervisor does not try either.
    box.kill_supervisor()
    box.start_supervisor()
    assert box.wait("one", "failed")["reason"] == failed["reason"]
    assert box.log.count("session one: started") == starts
    box.install_agent()
    assert box.call("restart", name="one")["sessions"][0]["state"] == "running"
    assert box.ready(view["id"])[0]["prompt"] == "do it later"
    assert len(box.call("show", name="one")["exits"]) == 1


def test_a_missing_directory_fails_with_its_name(box):
    place = box.home / "place"
    box.call("add", name="one", agent="shell", workingDirectory=str(place), mkdir=True)
    assert place.is_dir()
    box.call("stop", name="one")
    place.rmdir()
    view = box.call("start", name="one")["session"]
    assert box.wait("one", "failed")["reason"].startswith(f"the working directory {place}"), view
    place.mkdir()
    assert box.call("start", name="one")["session"]["state"] == "running"


def test_100_kb_of_prompt_and_odd_characters(box):
    prompt = "zeile\n\t'\"$`\\ äöü \U0001f600 %s #{x} ;\n" * 2850
    assert 95_000 < len(prompt.encode()) < 102_400
    view = box.call("add", name="one", prompt=prompt, extraArgs=["a\nb", "", "c;"])["session"]
    assert box.ready(view["id"])[0]["prompt"] == prompt


def test_from_inside_a_session(box):
    others = [box.call("add", name=f"o{i}")["session"] for i in range(3)]
    me = box.call("add", name="me")["session"]
    for view in (*others, me):
        box.ready(view["id"])
    request = '{"op": "restart", "args": {"all": true}}'
    script = box.root / "tell"
    script.write_text(
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\n"
        f"s.connect({str(box.run_dir / 'control.sock')!r})\n"
        "s.sendall(sys.argv[1].encode() + b'\\n')\nprint(s.recv(9))\n"
    )
    box.say("me", f"run python3 {script} '{request}'")
    for view in (*others, me):
        box.ready(view["id"], 2)
    box.wait("me", "running")
    box.say("me", f"run python3 {script} " + '\'{"op": "rm", "args": {"name": "me"}}\'')
    box.until(lambda: sorted(box.sessions()) == ["o0", "o1", "o2"])
    box.until(lambda: not box.traces(me["id"]))
    assert [len(box.launches(view["id"])) for view in others] == [2, 2, 2]


def test_an_idle_box_sleeps(box):
    for name in ("one", "two", "three"):
        box.call("add", name=name, agent="shell")

    def wakeups() -> int:
        status = Path(f"/proc/{box.supervisor.pid}/status").read_text()
        return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])

    def quiet() -> bool:
        before = wakeups()
        time.sleep(2)
        return wakeups() - before <= 2

    box.until(quiet)


def test_restart_all_leaves_parked_ones_unless_asked(box):
    first = box.call("add", name="one")["session"]
    second = box.call("add", name="two")["session"]
    box.call("stop", name="two")
    box.ready(first["id"])
    assert [v["name"] for v in box.call("restart", all=True)["sessions"]] == ["one"]
    assert box.view("two")["state"] == "stopped"
    result = box.call("restart", all=True, includeStopped=True)
    assert [v["name"] for v in result["sessions"]] == ["one", "two"]
    assert box.wait("two", "running")["id"] == second["id"]
    assert box.raw()["sessions"]["two"].get("stopped") is None


def test_an_agent_that_was_not_signed_in_keeps_its_prompt(box):
    (box.registry.parent / "env").write_text("")
    view = box.call("add", name="one", prompt="do it later")["session"]
    assert box.ready(view["id"])[0]["prompt"] is None
    box.say("one", "say the user's own first words")
    box.until(lambda: box.transcript(view["id"]))
    assert box.view("one")["promptPending"]
    (box.registry.parent / "env").write_text("ANTHROPIC_API_KEY=sk-test\n")
    box.call("restart", name="one")
    launches = box.ready(view["id"], 2)
    assert launches[1]["resumed"]
    assert launches[1]["prompt"] == "do it later"
    box.call("restart", name="one")
    assert box.ready(view["id"], 3)[2]["prompt"] != "do it later"
    assert not box.view("one")["promptPending"]


def test_enter_alone(box):
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    box.call("send", name="one", text="print al", enter=False)
    box.call("send", name="one", text="one", enter=False)
    box.call("send", name="one", text="")
    box.until(lambda: "did print" in box.call("logs", name="one")["text"])
