"""A gate that really runs, on sockets like systemd's, and a client that sends exact bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from agent_box.gate import passwords

SRC = Path(__file__).parents[2] / "src"
ORIGIN = "https://box.example"
PASSWORDS = {"alice": "lantern orbit velvet mango", "bob": "Zürich: 9% gläsern & quer"}
FRESH = "copper meadow thirteen violins"
ADDRESS = "203.0.113.7"

# Moves the inherited listening sockets to where systemd puts them, then becomes the service.
_START = """
import os, sys
for target, source in enumerate((int(sys.argv[1]), int(sys.argv[2])), 3):
    os.dup2(source, target)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="gate:admin")
from agent_box.gate.service import main
main()
"""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def get(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, f"{name} occurs {len(found)} times"
        return found[0] if found else None

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def token(self) -> str:
        cookie = self.get("set-cookie")
        assert cookie is not None
        return cookie.partition(";")[0].partition("=")[2]


def request(
    path: Path,
    method: str,
    target: str,
    headers: list[tuple[str, str]] | None = None,
    body: bytes = b"",
    timeout: float = 30.0,
) -> Answer:
    """Send one request and read its answer to the end."""
    lines = [f"{method} {target} HTTP/1.1", "Host: box.example"]
    lines += [f"{name}: {value}" for name, value in headers or []]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: close")
    head = "\r\n".join([*lines, "", ""]).encode()
    return raw(path, head + body, timeout)


def raw(path: Path, data: bytes, timeout: float = 30.0) -> Answer:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        with contextlib.suppress(BrokenPipeError):  # it may answer before it has read everything
            connection.sendall(data)
        answer = b""
        while True:
            try:
                chunk = connection.recv(65536)
            except ConnectionResetError:
                break
            if not chunk:
                break
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = [
        (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in rest)
    ]
    return Answer(int(first.split()[1]), headers, body)


class Running:
    """The service, its files, and what one says to it."""

    def __init__(self, root: Path, web: dict[str, Any]) -> None:
        self.root = root
        self.socket = root / "gate.sock"
        self.admin = root / "admin.sock"
        self.runtime = root / "run"
        self.state = root / "state"
        self.state.mkdir(exist_ok=True)
        self.log = root / "log"
        self.console = root / "console"
        self.config = root / "box.json"
        web["gate"]["state"] = str(self.state)
        self.config.write_text(
            json.dumps(
                {
                    "version": 1,
                    "defaultAgent": "claude",
                    "programs": {"tmux": "tmux", "launch": "launch"},
                    "agents": {},
                    "users": {},
                    "web": web,
                }
            )
        )
        self._listeners = [self._listen(self.socket), self._listen(self.admin)]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @staticmethod
    def _listen(path: Path) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1024)
        return listener

    def start(self) -> None:
        numbers = [listener.fileno() for listener in self._listeners]
        with self.log.open("ab") as log, self.console.open("ab") as console:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, *map(str, numbers)],
                pass_fds=numbers,
                stdout=console,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": str(SRC),
                    "AGENT_BOX_CONFIG": str(self.config),
                    "RUNTIME_DIRECTORY": str(self.runtime),
                },
            )

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(10)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        for listener in self._listeners:
            listener.close()

    def send(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]] | None = None,
        body: bytes = b"",
        address: str = ADDRESS,
    ) -> Answer:
        return request(
            self.socket, method, target, [("X-Forwarded-For", address), *(headers or [])], body
        )

    def auth(
        self, uri: str, *headers: tuple[str, str], method: str = "GET", address: str = ADDRESS
    ) -> Answer:
        asked = [("X-Forwarded-Method", method), ("X-Forwarded-Uri", uri)]
        return self.send("GET", "/auth", [*asked, *headers], address=address)

    def login(
        self,
        user: str = "alice",
        password: str | None = None,
        address: str = ADDRESS,
        headers: list[tuple[str, str]] | None = None,
        **fields: str,
    ) -> Answer:
        if password is None:
            password = PASSWORDS[user]
        return self.form({"user": user, "password": password, **fields}, address, headers)

    def form(
        self,
        fields: dict[str, str],
        address: str = ADDRESS,
        headers: list[tuple[str, str]] | None = None,
    ) -> Answer:
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        sent = [kind, ("Origin", ORIGIN), *(headers or [])]
        return self.send("POST", "/login", sent, urlencode(fields).encode(), address)

    def call(
        self, method: str, target: str, token: str, content: Any = None, address: str = ADDRESS
    ) -> Answer:
        body = b"" if content is None else json.dumps(content).encode()
        return self.send(method, target, [cookie(token), ("Origin", ORIGIN)], body, address)

    def failures(self) -> list[str]:
        text = self.log.read_text()
        return [line for line in text.splitlines() if "failed login" in line]

    def live(self) -> set[str]:
        return {path.name for path in (self.runtime / "live").rglob("*") if path.is_file()}


def cookie(token: str) -> tuple[str, str]:
    return ("Cookie", f"__Host-agent_box={token}")


def basic(user: str, password: str) -> tuple[str, str]:
    import base64

    return ("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


HTML = ("Accept", "text/html,application/xhtml+xml")


def eventually(check: Callable[[], object], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def hashes() -> dict[str, str]:
    return {user: passwords.make(password) for user, password in PASSWORDS.items()}


Make = Callable[..., Running]


def begin(folder: Path, hashes: dict[str, str], **gate: float) -> Running:
    """Start a gate with all its files in a folder."""
    users: dict[str, dict[str, str]] = {"alice": {}, "bob": {}, "carol": {}}
    for user, hashed in hashes.items():
        path = folder / f"hash-{user}"
        path.write_text(hashed + "\n")
        users[user] = {"passwordHashFile": str(path)}
    web = {
        "domain": "box.example",
        "origins": [ORIGIN],
        "rootUser": "alice",
        "users": users,
        "gate": dict(gate),
    }
    return Running(folder, web)


@pytest.fixture
def make(tmp_path: Path, hashes: dict[str, str]) -> Iterator[Make]:
    started: list[Running] = []

    def go(seeds: dict[str, str] | None = None, **gate: float) -> Running:
        running = begin(tmp_path, hashes if seeds is None else seeds, **gate)
        started.append(running)
        return running

    yield go
    for running in started:
        running.close()


@pytest.fixture
def gate(make: Make) -> Running:
    return make()


@pytest.fixture(scope="module")
def standing(hashes: dict[str, str]) -> Iterator[Running]:
    """One gate for tests that do the same with many inputs, and leave nothing but logins."""
    # Short, since a UNIX socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="abg", dir="/tmp") as folder:
        running = begin(Path(folder), hashes)
        yield running
        running.close()
