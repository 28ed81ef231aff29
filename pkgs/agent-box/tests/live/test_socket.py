"""Clients of the control socket: listeners, and those that misbehave."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

from agent_box.control_client import Client


def connect(box) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(box.run_dir / "control.sock"))
    return sock


def ask(sock: socket.socket, data: bytes) -> dict:
    sock.sendall(data)
    return json.loads(sock.makefile("rb").readline())


def test_listeners_hear_of_every_change_in_order(box):
    heard: list[dict] = []
    client = Client(box.run_dir, 40.0)
    stream = client.subscribe()
    assert next(stream)["sessions"] == []
    listener = threading.Thread(target=lambda: heard.extend(stream), daemon=True)
    listener.start()
    view = box.call("add", name="one")["session"]
    box.ready(view["id"])
    box.say("one", "exit 3")
    box.ready(view["id"], 2)
    box.wait("one", "running")
    box.call("stop", name="one")
    box.call("rename", name="one", newName="two")
    box.call("rm", name="two")
    box.registry.write_text("{")
    box.until(lambda: heard and heard[-1].get("problems"), explain=lambda: heard)
    box.kill_supervisor()
    listener.join(10)
    told = [
        (event["event"], event.get("name") or event["session"]["name"])
        for event in heard
        if event["event"] != "problems"
    ]
    assert told[-1] == ("removed", "two")
    assert ("removed", "one") in told
    states = [e["session"]["state"] for e in heard if e["event"] == "session"]
    order = [
        state for state, before in zip(states, [None, *states], strict=False) if state != before
    ]
    assert order[0] == "starting"
    assert order[-1] == "stopped"
    assert order.index("running") < order.index("stopped")
    exits = [e["session"]["lastExit"] for e in heard if e["event"] == "session"]
    assert any(item and item["cause"] == "exit 3" for item in exits)


def test_a_removal_right_after_subscribing_is_told(box):
    box.call("add", name="one", agent="shell")
    with Client(box.run_dir, 40.0) as client:
        stream = client.subscribe()
        assert [view["name"] for view in next(stream)["sessions"]] == ["one"]
        box.call("rm", name="one")
        for event in stream:
            if event == {"event": "removed", "name": "one"}:
                break


def test_requests_on_one_connection_are_answered_in_order(box):
    sock = connect(box)
    lines = [{"op": "status"}, {"op": "nonesuch", "args": {}}, {"op": "ls", "args": {}}]
    sock.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    reader = sock.makefile("rb")
    answers = [json.loads(reader.readline()) for _ in lines]
    assert answers[0]["result"]["pid"] == box.supervisor.pid
    assert answers[1]["error"]["code"] == "usage"
    assert answers[2]["result"]["sessions"] == []


def test_nonsense_is_refused_and_harms_nobody(box):
    box.call("add", name="one", agent="shell")
    for junk in (
        b"\n",
        b"\x00\xff\xfe\n",
        b"[]\n",
        b"5\n",
        b'{"op": 5}\n',
        b'{"op": "ls", "args": []}\n',
        b'{"op": "show", "args": {"name": ["a"]}}\n',
        b"[" * 100_000 + b"\n",
        b'{"op": "wait", "args": {"name": "one", "states": [[]]}}\n',
        b'{"op": "wait", "args": {"name": "one", "states": ["failed"], "timeout": "x"}}\n',
        b'{"op": "logs", "args": {"name": "one", "lines": -1}}\n',
        b'{"op": "add", "args": {"name": "x", "extraArgs": [1]}}\n',
        b'{"op": "add", "args": {"name": "\\ud800"}}\n',
        b'{"op": "send", "args": {"name": "one"}}\n',
    ):
        with connect(box) as sock:
            answer = ask(sock, junk)
            assert answer["ok"] is False
            assert answer["error"]["code"] == "usage", (junk[:60], answer)
            # The connection is still good.
            assert ask(sock, b'{"op": "ls"}\n')["ok"]
    assert list(box.sessions()) == ["one"]


def test_a_line_without_end_is_cut_off(box):
    with connect(box) as sock:
        try:
            for _ in range(33):
                sock.sendall(b"x" * 2**20)
            sock.sendall(b"\n")
            answer = json.loads(sock.makefile("rb").readline() or b"null")
        except OSError:
            answer = None
    assert answer is None or answer["error"]["code"] == "usage"
    assert box.call("status")["pid"] == box.supervisor.pid


def test_slow_and_vanishing_clients(box):
    slow = [connect(box) for _ in range(50)]
    for sock in slow:
        sock.sendall(b'{"op": ')
    gone = connect(box)
    gone.sendall(b'{"op": "add", "args": {"name": "kept", "agent": "shell"}}\n')
    gone.close()
    half = connect(box)
    half.sendall(b'{"op": "rm", "args"')
    half.close()
    assert box.call("status")
    # What was asked for is done, heard or not.
    box.wait("kept", "running")
    for sock in slow:
        sock.sendall(b'"status"}\n')
        assert json.loads(sock.makefile("rb").readline())["ok"]
        sock.close()


def test_a_listener_that_never_reads_holds_up_nobody(box):
    deaf = connect(box)
    deaf.sendall(b'{"op": "subscribe"}\n')
    for number in range(30):
        box.call("add", name=f"s{number}", agent="shell", wait=False)
        box.call("rm", name=f"s{number}")
    assert box.sessions() == {}
    deaf.close()


def test_200_sessions_leave_nothing_behind(box):
    pid = box.supervisor.pid

    def cycle(count: int) -> None:
        for number in range(count):
            box.call("add", name=f"s{number}", agent="shell", wait=number % 10 == 0)
            box.call("rm", name=f"s{number}")

    def descriptors() -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    def resident() -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    cycle(20)
    time.sleep(0.5)
    box.until(lambda: not box.tmux_run("list-sessions", check=False))
    fds, memory = descriptors(), resident()
    cycle(180)
    box.until(lambda: not box.tmux_run("list-sessions", check=False))
    box.until(lambda: descriptors() <= fds, explain=lambda: (fds, descriptors()))
    assert resident() - memory < 8_000, (memory, resident())
    for place in ("launch",):
        assert list((box.run_dir / place).iterdir()) == []
    for place in ("sessions", "logs"):
        assert list((box.state / place).iterdir()) == []
