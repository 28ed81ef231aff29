"""What one user, or one session of a user, can use up is theirs alone."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness.edge import Ask, Edge, with_cookie

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]

FILL = """
import os, sys
where = sys.argv[1]
junk = os.path.join(where, "junk")
os.makedirs(junk, exist_ok=True)
try:
    with open(f"{junk}/big", "wb", 0) as file:
        while file.tell() < 1 << 30:
            file.write(bytes(1 << 20))
except OSError:
    pass
try:
    for number in range(300_000):
        open(f"{junk}/{number}", "w").close()
except OSError:
    pass
"""

HOLD = """
import contextlib, os, socket, time
held = []
for _ in range(600):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(2)
    with contextlib.suppress(OSError):
        sock.connect(os.environ["TMUX_TMPDIR"] + "/control.sock")
        held.append(sock)
for sock in held:
    sock.settimeout(0.05)
for _ in range(8):
    for sock in held:
        with contextlib.suppress(OSError):
            sock.send(b"x" * (1 << 20))
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(5)
sock.connect(os.environ["TMUX_TMPDIR"] + "/control.sock")
sock.sendall(b'{"op": "status"}' + bytes([10]))
told = sock.recv(65536)
with open(os.path.expanduser("~/held.new"), "wb") as file:
    file.write(told)
os.rename(file.name, os.path.expanduser("~/held"))
time.sleep(60)
"""


FOLDERS = ("/run/agent-box-alice", "/run/agent-box-codex/alice")


@pytest.fixture
def alice(edge: Edge) -> Iterator[Box]:
    """The box, with two programs in alice's home, tidied up afterwards."""
    box = edge.box
    for name, text in (("fill.py", FILL), ("hold.py", HOLD)):
        box.as_user("alice", f"cat >~/{name}", stdin=text).check()
    yield box
    box.run("rm -rf " + " ".join(f"{folder}/junk" for folder in FOLDERS))
    for name in ("greedy", "late"):
        box.ask_supervisor("alice", "rm", name=name)


def in_pane(box: Box, command: str, done: str) -> None:
    """Have a shell session of alice run a command, which makes the file `done` in her home."""
    view = box.ask_supervisor("alice", "add", name="greedy", agent="shell")
    assert view
    assert view["session"]["state"] == "running"
    box.tmux("alice", f"send-keys -t =greedy: {shlex.quote(command)} Enter").check()
    box.wait_until_succeeds(f"test -e {box.home('alice')}/{done}", timeout=60)


def test_a_full_runtime_directory_is_of_its_user_alone(alice: Box, edge: Edge) -> None:
    """alice's session fills every directory below /run that it can write to: bob starts sessions,
    he signs in, /run itself has room, and alice's own sessions run on.
    """
    before = alice.session("alice", "main")
    fill = "; ".join(f"python3 ~/fill.py {folder}" for folder in FOLDERS)
    in_pane(alice, f"{fill}; touch ~/filled", "filled")
    used = alice.succeed("df --output=pcent /run | tail -1").strip().rstrip("%")
    files = alice.succeed("df --output=iused /run | tail -1").strip()
    assert int(used) < 50
    assert int(files) < 10_000
    added = alice.ask_supervisor("bob", "add", name="there", agent="shell")
    assert added
    assert added["session"]["state"] == "running"
    alice.ask_supervisor("bob", "rm", name="there")
    (answer,) = edge.ask([Ask("/bob/api/sessions", headers=with_cookie(edge.sign_in("bob")))])
    assert answer.status == 200
    assert alice.session("alice", "main")["pid"] == before["pid"]
    late = alice.ask_supervisor("alice", "add", name="late", agent="shell")
    assert late
    assert late["session"]["state"] == "crashed"
    assert "is full: remove" in late["session"]["reason"]
    alice.succeed("rm -rf /run/agent-box-alice/junk")
    alice.wait_session("alice", "late", "running", timeout=60)


def test_what_a_session_takes_of_its_supervisor(alice: Box, edge: Edge) -> None:
    """A session that opens every connection it can get, and fills them, is refused more and told
    why; other sessions, the page and root are answered, and the supervisor stays small and alive.
    """
    unit = "agent-box-supervisor-alice.service"
    pid = alice.succeed(f"systemctl show -P MainPID {unit}").strip()
    in_pane(alice, "python3 ~/hold.py", "held")
    alice.expect_in(alice.read(f"{alice.home('alice')}/held"), "which is all; close some")
    alice.in_session("alice", "agent-box-session add late --agent shell").check()
    (answer,) = edge.ask([Ask("/alice/api/sessions", headers=with_cookie(edge.sign_in("alice")))])
    assert answer.status == 200
    assert alice.ask_supervisor("alice", "status")
    memory = int(alice.succeed(f"awk '/^VmRSS/ {{print $2}}' /proc/{pid}/status"))
    assert memory < 300_000
    assert alice.succeed(f"systemctl show -P MainPID {unit}").strip() == pid
