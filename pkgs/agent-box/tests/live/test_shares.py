"""What one program of a user takes from the supervisor, and from its directory, is bounded."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from agent_box.errors import ConflictError
from agent_box.supervisor import callers, control
from agent_box.supervisor.callers import MOST, Caller, Shares, named


def connect(box) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(box.run_dir / "control.sock"))
    return sock


def answer(sock: socket.socket) -> dict:
    return json.loads(sock.makefile("rb").readline() or b"null")


def asked(box) -> dict:
    with connect(box) as sock:
        sock.sendall(b'{"op": "status"}\n')
        return answer(sock)


def memory(box) -> int:
    fields = Path(f"/proc/{box.supervisor.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def test_lines_without_end_take_little(box):
    """100 connections with 31 MiB each and no end of the line do not become 3 GB."""
    before = memory(box)
    full = [connect(box) for _ in range(MOST - 1)]
    piece = b"x" * 2**20
    for sock in full:
        sock.settimeout(0.2)
    for _ in range(4):
        for sock in full:
            with contextlib.suppress(OSError):
                sock.sendall(piece)
    assert memory(box) - before < 200 << 20
    assert box.call("status")["pid"] == box.supervisor.pid
    for sock in full:
        sock.close()
    box.until(lambda: box.call("add", name="after", agent="shell"))


def test_large_requests_beyond_the_room_are_refused(box):
    """Whoever sends too much at once is told so; a prompt of some megabytes alone is no trouble."""
    holding = connect(box)
    holding.sendall(b'{"op": "status", "args": {"x": "' + b"x" * (20 << 20))
    time.sleep(0.5)
    other = connect(box)
    other.sendall(b'{"op": "status", "args": {"x": "' + b"x" * (20 << 20) + b'"}}\n')
    told = answer(other)
    assert not told["ok"]
    assert told["error"]["code"] == "conflict"
    assert "large requests" in told["error"]["message"]
    other.sendall(b'{"op": "status"}\n')
    assert answer(other)["ok"]
    holding.close()

    def again() -> bool:
        with connect(box) as sock:
            sock.sendall(b'{"op": "status", "args": {"x": "' + b"x" * (20 << 20) + b'"}}\n')
            return answer(sock)["ok"]

    box.until(again)


def test_values_are_not_made_of_a_flood(box):
    """A request of nothing but small values is refused before it becomes objects."""
    before = memory(box)
    for value in (b"[],", b"0,", b'"",', b"{},"):
        with connect(box) as sock:
            sock.sendall(b'{"op": "status", "args": {"x": [' + value * (8 << 20 >> 2) + b"0]}}\n")
            told = answer(sock)
            assert not told["ok"], value
            assert told["error"]["code"] == "usage"
    assert memory(box) - before < 150 << 20
    text = 'a, [b], {"c": "d\\\\"},' * 50_000
    view = box.call("add", name="prompt", prompt=text, agent="claude")["session"]
    assert box.raw()["sessions"]["prompt"]["initialPrompt"] == text
    assert view["name"] == "prompt"


def test_too_many_connections_are_refused_and_say_so(box):
    """The refusal names the bound and the remedy; what was open goes on, and closing helps."""
    idle = [connect(box) for _ in range(MOST)]
    idle[0].sendall(b'{"op": "status"}\n')
    assert answer(idle[0])["ok"]
    told = asked(box)
    assert not told["ok"]
    assert re.search(f"{MOST} connections .* close some", told["error"]["message"])
    for sock in idle:
        sock.close()
    box.until(lambda: asked(box)["ok"])


def test_who_waits_and_goes_frees_the_place(box):
    """A `wait` without end is over when its client is gone."""
    box.call("add", name="one", agent="shell")
    for _ in range(3):
        for _ in range(40):
            sock = connect(box)
            args = {"name": "one", "states": ["failed"], "timeout": 1e8}
            sock.sendall(json.dumps({"op": "wait", "args": args}).encode() + b"\n")
            sock.close()
        time.sleep(control.AGAIN * 1.5)
    assert asked(box)["ok"]
    assert "internal error" not in box.log
    assert "Traceback" not in box.log


def test_answers_that_nobody_takes_are_dropped(box):
    """A long log fits an answer, and is told to others while somebody does not take theirs."""
    box.call("add", name="one", agent="shell")
    box.call("send", name="one", text="seq -f '%090.0f' 9000; echo don''e")
    box.until(lambda: "\ndone" in box.call("logs", name="one")["text"])
    deaf = connect(box)
    deaf.sendall(b'{"op": "logs", "args": {"name": "one"}}\n')
    assert box.call("status")
    deaf.close()
    assert box.call("logs", name="one")["text"].count("\n") > 5000


# Who is who ------------------------------------------------------------------

KNOWN = "0b5e8c52-8a7e-4a52-8d5c-6f8a3c1d2e4f"
SLICE = "/agent.slice/agent-box.slice/agent-box-eve.slice"


@pytest.mark.parametrize(
    ("group", "name", "ours"),
    [
        (f"{SLICE}/agent-box-eve.service/session-{KNOWN}", f"session {KNOWN}", False),
        (f"{SLICE}/agent-box-eve.service/session-{KNOWN}/mine/x", f"session {KNOWN}", False),
        (f"{SLICE}/agent-box-eve.service/session-made-up", "agent-box-eve.service", False),
        (f"{SLICE}/agent-box-eve.service/server", "agent-box-eve.service", False),
        (
            f"{SLICE}/agent-box-eve.service/agent-box-settings-eve.service",
            "agent-box-eve.service",
            False,
        ),
        ("/system.slice/agent-box-settings-eve.service", "agent-box-settings-eve.service", True),
        ("/system.slice/agent-box-settings-bob.service", "agent-box-settings-bob.service", False),
        ("/user.slice/user-1001.slice/session-4.scope", "logins", False),
        ("/user.slice/user-1001.slice/user@1001.service/a.slice/b.service", "logins", False),
        ("/", "programs outside of units", False),
        ("", "programs outside of units", False),
    ],
)
def test_who_counts_as_one(group, name, ours):
    """Only what the box made tells callers apart: a user's own groups do not."""
    assert named(group, "eve", {KNOWN}) == Caller(name, ours)


def test_one_caller_takes_nothing_from_another():
    shares = Shares()
    loud, quiet, ours = Caller("loud", False), Caller("quiet", False), Caller("web", True)
    with contextlib.ExitStack() as stack:
        for _ in range(MOST):
            assert stack.enter_context(shares.connection(loud)) is None
        assert stack.enter_context(shares.connection(loud)) is not None
        assert stack.enter_context(shares.connection(quiet)) is None
        for number in range(callers.MOST_TOGETHER // MOST):
            for _ in range(MOST):
                stack.enter_context(shares.connection(Caller(f"more{number}", False)))
        assert stack.enter_context(shares.connection(Caller("late", False))) is not None
        assert stack.enter_context(shares.connection(ours)) is None
    with shares.connection(loud) as refusal:
        assert refusal is None
    shares.take(loud, 30, 40)
    with pytest.raises(ConflictError):
        shares.take(loud, 20, 40)
    shares.take(quiet, 40, 40)
    shares.give(loud, 30)
    shares.take(loud, 40, 40)


# A directory without room -----------------------------------------------------


@pytest.fixture
def small(box):
    """The runtime directory is a file system of a few pages and a few files."""
    box.kill_supervisor()
    box.tmux_run("kill-server", check=False)
    box.tmux.wait(10)
    options = "size=256k,nr_inodes=24,mode=0700"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(box.run_dir)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("mounting takes root")
    box.start()
    yield box
    subprocess.run(["umount", "--lazy", str(box.run_dir)], check=True)


@pytest.mark.parametrize("what", ["bytes", "files"])
def test_a_full_directory_ends_nothing(small, what):
    """Sessions run on, the list is as it was, the supervisor lives and comes up again, and what
    could not be started says why and is started once there is room.
    """
    box = small
    view = box.call("add", name="one", agent="shell")["session"]
    listed = box.raw()
    if what == "bytes":
        with contextlib.suppress(OSError), (box.run_dir / "junk").open("wb", 0) as file:
            while True:
                file.write(b"x" * 4096)
    else:
        with contextlib.suppress(OSError):
            for number in range(1000):
                (box.run_dir / f"junk{number}").touch()
    second = box.call("add", name="two", agent="shell")["session"]
    assert second["state"] == "crashed"
    assert f"{box.run_dir} is full: remove" in second["reason"]
    assert not [path for path in (box.run_dir / "launch").iterdir() if path.suffix != ".json"]
    os.kill(box.supervisor.pid, signal.SIGKILL)
    box.supervisor.wait(10)
    box.start_supervisor()
    assert box.view("one")["pid"] == view["pid"]
    assert box.raw()["sessions"]["one"] == listed["sessions"]["one"]
    for path in box.run_dir.glob("junk*"):
        path.unlink()
    box.wait("two", "running", timeout=40)


def test_a_supervisor_that_cannot_listen_goes_on(small):
    """Without room for its sockets it cares for sessions all the same, and listens later."""
    box = small
    view = box.call("add", name="one", agent="shell")["session"]
    box.kill_supervisor()
    for name in ("control.sock", "notify.sock"):
        (box.run_dir / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for number in range(1000):
            (box.run_dir / f"junk{number}").touch()
    with (box.root / "supervisor.log").open("ab") as log:
        box.supervisor = subprocess.Popen(
            [str(box.supervise)], env=box.env, cwd=box.home, stdout=log, stderr=log
        )
    box.children.append(box.supervisor)
    box.until(lambda: "nobody can speak to the supervisor" in box.log)
    os.kill(view["pid"], signal.SIGKILL)
    time.sleep(1)
    assert box.supervisor.poll() is None, box.log
    for path in box.run_dir.glob("junk*"):
        path.unlink()
    box.until(box._answers)
    box.wait("one", "running", timeout=40)
    assert box.view("one")["pid"] != view["pid"]
