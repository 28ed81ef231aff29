"""The shared HTTP runner: socket, idle exit, streams, limits."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_box.seldom import Seldom

from .conftest import SRC, eventually, raw, request

_APP = """
import asyncio, os, socket, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
from agent_box import httpd
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

async def echo(request):
    body = await request.body()
    names = ",".join(name for name in request.headers)
    return PlainTextResponse(f"{request.method} {len(body)} {names}")

async def events(request):
    async def stream():
        for _ in range(20):
            yield b"x"
            await asyncio.sleep(0.1)
    return StreamingResponse(stream())

app = Starlette(routes=[
    Route("/", echo, methods=["GET", "POST"]), Route("/events", events),
    Route("/upload", echo, methods=["POST"]),
])
def limits(scope):
    if scope["path"] == "/upload":
        return httpd.Limits(body=None, seconds=None)
    return httpd.Limits(body=1000, seconds=0.5)
more = {}
if len(sys.argv) > 3:
    more = {"strangers": socket.socket(fileno=int(sys.argv[3])), "turns": int(sys.argv[4])}
httpd.run(
    app, float(sys.argv[2]), sock=next(iter(httpd.activated().values())), limits=limits, **more
)
"""


class Server:
    def __init__(self, path: Path, idle: float, turns: int) -> None:
        self.path = path
        self.strangers = path.with_name("strangers.sock")
        self.log = path.with_name("log")
        self.listeners = [socket.socket(socket.AF_UNIX) for _ in range(2 if turns else 1)]
        for listener, place in zip(self.listeners, (path, self.strangers), strict=False):
            listener.bind(str(place))
            listener.listen(64)
        self.idle = idle
        self.turns = turns
        self.start()

    def said(self) -> str:
        return self.log.read_text()

    def start(self) -> None:
        numbers = [listener.fileno() for listener in self.listeners]
        words = [str(numbers[0]), str(self.idle), *map(str, numbers[1:])]
        words += [str(self.turns)] if self.turns else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _APP, *words],
                pass_fds=numbers,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(SRC)},
            )


@pytest.fixture
def serve(tmp_path: Path):
    servers: list[Server] = []

    def go(idle: float = 60, turns: int = 0) -> Server:
        servers.append(Server(tmp_path / "http.sock", idle, turns))
        return servers[-1]

    yield go
    for server in servers:
        server.process.kill()
        server.process.wait()
        for listener in server.listeners:
            listener.close()


def test_it_exits_when_idle_and_comes_back_for_the_next_request(serve):
    server = serve(idle=0.5)
    assert request(server.path, "GET", "/").status == 200
    start = time.monotonic()
    assert server.process.wait(5) == 0
    assert 0.3 < time.monotonic() - start < 2
    server.start()
    assert request(server.path, "GET", "/").status == 200


def test_a_stream_is_not_idle_and_ends_with_its_reader(serve):
    server = serve(idle=0.5)
    start = time.monotonic()
    assert request(server.path, "GET", "/events").body.count(b"x") == 20
    assert time.monotonic() - start > 1.9
    with socket.socket(socket.AF_UNIX) as reader:
        reader.connect(str(server.path))
        reader.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        assert reader.recv(100)
    assert server.process.wait(5) == 0


def test_upgrades_are_requests_like_any_other(serve):
    server = serve()
    extra = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("X-Kept", "1")]
    data = "GET / HTTP/1.1\r\nHost: x\r\n" + "".join(f"{k}: {v}\r\n" for k, v in extra) + "\r\n"
    answer = raw(server.path, data.encode() + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == 200
    assert answer.text == "GET 0 host,x-kept"
    assert request(server.path, "POST", "/", extra).text.startswith("POST 0 ")
    assert request(server.path, "POST", "/", extra, b"abc").status == 400


def test_what_follows_a_body_is_no_header(serve):
    server = serve()
    text = (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Smuggled\r\n"
        b"Connection: close\r\n\r\n1\r\nx\r\n0\r\nX-Smuggled: 1\r\n\r\n"
    )
    answer = raw(server.path, text)
    assert answer.text == "POST 1 host,transfer-encoding,trailer"


def test_no_server_header(serve):
    answer = request(serve().path, "GET", "/")
    assert answer.get("server") is None


def test_bodies_are_bounded_in_size_and_time(serve):
    server = serve()
    assert request(server.path, "POST", "/", body=b"a" * 1000).status == 200
    assert request(server.path, "POST", "/", body=b"a" * 1001).status == 413
    start = time.monotonic()
    slow = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"
    assert raw(server.path, slow).status == 408
    assert time.monotonic() - start < 3
    assert request(server.path, "POST", "/upload", body=b"a" * 5_000_000).status == 200


def test_heads_are_bounded(serve):
    server = serve()
    assert request(server.path, "GET", "/", [("X", "a" * 60_000)]).status == 200
    for headers in ([("X", "a" * 70_000)], [(f"X{n}", "a" * 1000) for n in range(70)]):
        assert request(server.path, "GET", "/", headers).status == 431
    assert request(server.path, "GET", "/" + "a" * 70_000).status == 431


def test_it_sleeps_when_nothing_happens(serve):
    server = serve()
    request(server.path, "GET", "/")
    eventually(lambda: _switches(server.process.pid) >= 0)
    time.sleep(0.3)
    before = _switches(server.process.pid)
    time.sleep(1.5)
    assert _switches(server.process.pid) - before <= 1


def _switches(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_without_a_socket_it_says_who_should_start_it():
    with contextlib.suppress(KeyError):
        del os.environ["LISTEN_FDS"]
    from agent_box import httpd
    from agent_box.errors import InternalError

    with pytest.raises(InternalError, match=r"\.socket"):
        httpd.run(lambda *_: None)


def test_clients_that_leave_are_no_errors(serve):
    server = serve(60)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    for stage in (b"", head[:9], head[:-2], head, head + b"abc", head + b"0123456789"):
        for pause in (0, 0.001, 0.01):
            for _ in range(10):
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(str(server.path))
                    link.sendall(stage)
                    time.sleep(pause)
    assert request(server.path, "GET", "/").status == 200
    assert server.said() == ""


def test_strangers_wait_for_their_turn_and_nobody_for_them(serve):
    server = serve(60, turns=3)
    held = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    for link in held:
        link.connect(str(server.strangers))
        link.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    time.sleep(0.3)
    for _ in range(50):
        assert request(server.path, "GET", "/").status == 200
    waits = False
    try:
        request(server.strangers, "GET", "/", timeout=0.5)
    except TimeoutError:
        waits = True
    assert waits
    for link in held:
        link.close()
    assert request(server.strangers, "GET", "/").status == 200
    # One request each, so that nobody keeps a turn by being idle.
    answer = raw(server.strangers, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", timeout=3)
    assert answer.get("connection") == "close"


def test_what_strangers_cause_is_told_seldom():
    now = [0.0]
    seldom = Seldom(lambda: now[0])
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%s refused", ("a",), None)
    assert [seldom.filter(record) for _ in range(5)] == [True] + [False] * 4
    now[0] += 60
    assert seldom.filter(record)
    assert record.getMessage() == "a refused (and 4 more since the last such line)"
