"""Telling sessions of the cloud's notices: what one user's supervisor does costs nobody else."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from agent_box.control_client import Client
from agent_box.errors import InternalError
from agent_box.notify import tell as module
from agent_box.notify.tell import tell

if TYPE_CHECKING:
    from pathlib import Path

Answer = Callable[[dict[str, Any]], "bytes | None"]
NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="takes on the rights of another user")


class Box:
    """Users whose supervisors answer as they like."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users: dict[str, None] = {}
        self.delivered: list[tuple[str, str]] = []
        self._listeners: list[socket.socket] = []

    def add(self, user: str, answer: Answer, *, path: str = "control.sock") -> Path:
        directory = self.folder / f"agent-box-{user}"
        directory.mkdir(exist_ok=True)
        self.users[user] = None
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / path))
        listener.listen(64)
        self._listeners.append(listener)

        def serve(connection: socket.socket) -> None:
            gone = contextlib.suppress(ConnectionError)
            with gone, connection, connection.makefile("rb") as lines:
                for line in lines:
                    request = json.loads(line)
                    if request["op"] == "deliver":
                        self.delivered.append((user, request["args"]["name"]))
                    reply = answer(request)
                    if reply is None:
                        time.sleep(60)
                    else:
                        connection.sendall(reply)

        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        return directory

    def user(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, runtime_dir=self.folder / f"agent-box-{name}")

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def reply(result: object) -> bytes:
    return json.dumps({"ok": True, "result": result}).encode() + b"\n"


def honest(*names: str) -> Answer:
    sessions = [{"name": name, "state": "running"} for name in names]
    return lambda request: reply({"sessions": sessions} if request["op"] == "ls" else {})


def hanging(count: int) -> Answer:
    """List sessions, and never answer for one."""
    sessions = [{"name": f"s{number}", "state": "running"} for number in range(count)]
    return lambda request: reply({"sessions": sessions}) if request["op"] == "ls" else None


def test_a_supervisor_that_hangs_keeps_nobody_else_from_the_news(box: Box) -> None:
    box.add("bob", hanging(200))
    box.add("eve", lambda _: None)
    box.add("alice", honest("main", "work"))
    start = time.monotonic()
    done = []
    thread = threading.Thread(target=lambda: done.append(tell(box, "soon", 3.0)))
    thread.start()
    while time.monotonic() < start + 2.0 and len(told_of(box, "alice")) < 2:
        time.sleep(0.02)
    assert sorted(told_of(box, "alice")) == ["main", "work"]
    assert time.monotonic() < start + 2.0
    thread.join(10)
    assert done == [2]
    assert time.monotonic() < start + 5.0
    # Its share, and no more.
    assert len(told_of(box, "bob")) <= module.AT_ONCE * 2


def told_of(box: Box, user: str) -> list[str]:
    return [name for whose, name in box.delivered if whose == user]


def test_more_sessions_than_anybody_has_are_not_all_told(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    box.add("alice", honest(*(f"s{number}" for number in range(50))))
    assert tell(box, "soon", 5.0) == 5


@pytest.mark.parametrize(
    "answer",
    [
        b"no json\n",
        b"[" * 100_000 + b"\n",
        reply({"sessions": None}),
        reply({"sessions": [1, None]}),
        reply({"sessions": [{"name": "main"}]}),
        reply([]),
        json.dumps({"ok": False, "error": {"code": "x", "message": "a\nbob: b\x1b[2J"}}).encode()
        + b"\n",
        b"x" * (module.LONGEST + 300_000),
    ],
    ids=["text", "nested", "null", "numbers", "no state", "list", "controls", "endless"],
)
def test_whatever_it_answers_others_are_told(
    box: Box, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    box.add("bob", lambda _: answer)
    box.add("alice", honest("main"))
    with caplog.at_level(logging.INFO):
        assert tell(box, "soon", 5.0) == 1
    assert all(record.getMessage().isprintable() for record in caplog.records)


def refusal(directory: Path) -> str:
    """Return why nobody there is talked to; empty when somebody was."""
    try:
        Client(directory).call("ls")
    except InternalError as error:
        return str(error)
    return ""


@root
def test_a_link_to_the_socket_of_another_is_not_followed(box: Box) -> None:
    """Root would say there what was meant for somebody else."""
    alice = box.add("alice", honest("main"))
    bob = box.folder / "agent-box-bob"
    bob.mkdir()
    (bob / "control.sock").symlink_to(alice / "control.sock")
    os.chown(bob, NOBODY, NOBODY)
    assert "no socket of its owner" in refusal(bob)
    (bob / "control.sock").unlink()
    os.link(alice / "control.sock", bob / "control.sock")
    assert "no socket of its owner" in refusal(bob)


@root
def test_a_socket_on_which_another_user_listens_is_not_talked_to(box: Box) -> None:
    """The file may change hands; who listens does not."""
    bob = box.add("bob", honest("main"))
    for path in (bob, bob / "control.sock"):
        os.chown(path, NOBODY, NOBODY)
    assert "another user listens" in refusal(bob)


@root
def test_the_owner_of_the_directory_is_talked_to(box: Box, tmp_path: Path) -> None:
    bob = tmp_path / "agent-box-bob"
    bob.mkdir()
    os.chown(bob, NOBODY, NOBODY)
    serve = (
        "import os, socket, sys\n"
        f"os.chdir({str(bob)!r}); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "listener = socket.socket(socket.AF_UNIX); listener.bind('control.sock')\n"
        "listener.listen(1); print(flush=True)\n"
        "connection, _ = listener.accept(); connection.recv(1000)\n"
        f"connection.sendall({reply({'sessions': []})!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        assert Client(bob).call("ls") == {"sessions": []}
