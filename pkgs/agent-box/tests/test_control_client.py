"""The client tells a missing, a silent, a vanished and a talking supervisor apart."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_box.control_client import (
    Client,
    SupervisorDown,
    SupervisorGone,
    SupervisorSilent,
)
from agent_box.errors import ConflictError, InternalError, NotFoundError, UsageError

Serve = Callable[[Callable[[socket.socket], None]], Path]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Run a function on each connection to a control socket; gives the runtime directory."""
    listener = socket.socket(socket.AF_UNIX)

    def start(handle: Callable[[socket.socket], None]) -> Path:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen(8)

        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        return tmp_path

    yield start
    listener.close()


def answers(*replies: object) -> Callable[[socket.socket], None]:
    def handle(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for reply, _ in zip(replies, lines, strict=False):
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode() + b"\n"
                connection.sendall(data)

    return handle


def test_calls_share_a_connection_and_keep_their_order(serve: Serve):
    seen = []

    def handle(connection: socket.socket) -> None:
        seen.append("connected")
        with connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                connection.sendall(json.dumps({"ok": True, "result": request}).encode() + b"\n")

    with Client(serve(handle)) as client:
        assert client.call("ls") == {"op": "ls", "args": {}}
        big = "ü\n" * 100_000
        assert client.call("send", name="a", text=big)["args"] == {"name": "a", "text": big}
    assert seen == ["connected"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("usage", UsageError),
        ("not_found", NotFoundError),
        ("conflict", ConflictError),
        ("internal", InternalError),
        ("from the future", InternalError),
    ],
)
def test_errors_come_out_as_their_class(serve: Serve, code, kind):
    runtime = serve(answers({"ok": False, "error": {"code": code, "message": "why"}}))
    with pytest.raises(kind, match="why"):
        Client(runtime).call("rm", name="x")


def test_missing_socket_and_refused_connection(tmp_path: Path):
    runtime = tmp_path / "agent-box-alice"
    with pytest.raises(SupervisorDown, match="alice is not running; see: systemctl status"):
        Client(runtime).call("ls")
    runtime.mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(runtime / "control.sock"))
    dead.close()
    with pytest.raises(SupervisorDown):
        Client(runtime).call("ls")


def test_silence_is_bounded_and_named(serve: Serve):
    runtime = serve(lambda connection: time.sleep(30))
    started = time.monotonic()
    with pytest.raises(SupervisorSilent, match="does not answer"):
        Client(runtime, timeout=0.2).call("add")
    with pytest.raises(SupervisorSilent):
        Client(runtime).call("ls")
    assert time.monotonic() - started < 3


def test_a_trickle_does_not_stretch_the_time_out(serve: Serve):
    def handle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.05)

    started = time.monotonic()
    with pytest.raises(SupervisorSilent):
        Client(serve(handle), timeout=0.3).call("ls")
    assert time.monotonic() - started < 2


def test_a_late_answer_is_not_taken_for_the_next(serve: Serve):
    def handle(connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            for line in lines:
                op = json.loads(line)["op"]
                time.sleep(0.4 if op == "slow" else 0)
                try:
                    connection.sendall(
                        json.dumps({"ok": True, "result": {"op": op}}).encode() + b"\n"
                    )
                except OSError:
                    return

    client = Client(serve(handle))
    with pytest.raises(SupervisorSilent):
        client.call("slow", call_timeout=0.1)
    assert client.call("fast") == {"op": "fast"}


def test_hang_up_half_way(serve: Serve):
    with pytest.raises(SupervisorGone, match="went away"):
        Client(serve(answers(b'{"ok": tru'))).call("restart", all=True)


@pytest.mark.parametrize("reply", [b"not json\n", b"[]\n", b"{}\n", b'{"ok":false}\n', b'"x"\n'])
def test_nonsense_is_an_internal_error(serve: Serve, reply):
    with pytest.raises(InternalError, match="no sense"):
        Client(serve(answers(reply))).call("ls")


def test_full_queue_counts_as_silence(tmp_path: Path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "control.sock"))
    listener.listen(0)
    crowd = []
    try:
        for _ in range(3):
            waiting = socket.socket(socket.AF_UNIX)
            waiting.setblocking(False)
            crowd.append(waiting)
            try:
                waiting.connect(str(tmp_path / "control.sock"))
            except BlockingIOError:
                break
        with pytest.raises(SupervisorSilent):
            Client(tmp_path, timeout=0.2).call("ls")
    finally:
        for waiting in [*crowd, listener]:
            waiting.close()


def test_subscription_yields_state_then_events(serve: Serve):
    def handle(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            next(iter(lines))
            first = json.dumps({"ok": True, "result": {"sessions": []}})
            event = json.dumps({"event": "removed", "name": "x"})
            connection.sendall(f"{first}\n{event}\n".encode())
            time.sleep(0.1)
            connection.sendall(f"{event}\n".encode())

    with Client(serve(handle)) as client:
        assert list(client.subscribe()) == [
            {"sessions": []},
            {"event": "removed", "name": "x"},
            {"event": "removed", "name": "x"},
        ]
