"""A box in a directory: its configuration, a home, and a supervisor that says what a test wants."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_box import errors
from agent_box.session_cli import context, main

SOURCES = Path(errors.__file__).parents[1]


def view(name: str, state: str = "running", **more: Any) -> dict[str, Any]:
    """Return what the supervisor says about a session."""
    return {
        "name": name,
        "agent": "claude",
        "state": state,
        "reason": None,
        "id": None,
        "pid": None,
        "workingDirectory": "/home/alice",
        "promptPending": False,
        "restarts": 0,
        "since": 1_700_000_000.0,
        "nextRetry": None,
        "lastExit": None,
        "attached": 0,
        "limits": {"memoryMax": None, "tasksMax": None},
        **more,
    }


@dataclass
class Supervisor:
    """A stand-in that answers from `replies` (a value, an error or a function per operation)."""

    path: Path
    replies: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _listener: socket.socket | None = None

    def start(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._loop, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        if self._listener is not None:
            # Wakes the accept of the other thread, which a close alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            self.path.unlink()

    def args(self, op: str) -> dict[str, Any]:
        """Return the arguments of the only request for `op`."""
        found = [args for name, args in self.requests if name == op]
        assert len(found) == 1
        return found[0]

    def _loop(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                op, args = request["op"], request["args"]
                self.requests.append((op, args))
                try:
                    reply = self.replies[op]
                    result = reply(args) if callable(reply) else reply
                    if isinstance(result, errors.AgentBoxError):
                        raise result
                    answer: dict[str, Any] = {"ok": True, "result": result}
                except errors.AgentBoxError as error:
                    answer = {"ok": False, "error": {"code": error.code, "message": str(error)}}
                except KeyError:
                    answer = {"ok": False, "error": {"code": "usage", "message": f"no {op}"}}
                except ConnectionAbortedError:
                    return
                try:
                    connection.sendall(json.dumps(answer).encode() + b"\n")
                except OSError:
                    return


@dataclass
class Box:
    """A box of one user: the one that runs the tests."""

    root: Path
    home: Path
    runtime: Path
    config: Path
    supervisor: Supervisor
    env: dict[str, str]
    user: str

    def document(self, **changes: Any) -> None:
        """Write box.json, with some top-level fields changed."""
        content = {
            "version": 1,
            "defaultAgent": "claude",
            "programs": {"tmux": str(self.root / "tmux"), "launch": "/nowhere/launch"},
            "agents": {"claude": {"command": "/bin/true"}, "codex": {"command": "/bin/true"}},
            "users": {
                self.user: {
                    "home": str(self.home),
                    "shell": "/bin/sh",
                    "runtimeDirectory": str(self.runtime),
                }
            },
            **changes,
        }
        self.config.write_text(json.dumps(content))

    def process(self, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own."""
        options = {"capture_output": True, "text": True, "timeout": 30, "env": self.env, **options}
        return subprocess.run(
            [sys.executable, "-m", "agent_box.session_cli", *argv], check=False, **options
        )


@dataclass
class Result:
    """What a command run in the tests' own process left."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Result]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    user = pwd.getpwuid(os.getuid()).pw_name
    runtime = tmp_path / "run" / f"agent-box-{user}"
    home = tmp_path / "home"
    runtime.mkdir(parents=True)
    home.mkdir()
    config = tmp_path / "box.json"
    # Nothing of this may matter.
    junk = {"TMUX": "/junk,1,2", "TMUX_TMPDIR": "/junk", "USER": "mallory", "HOME": "/junk"}
    for key, value in {**junk, "AGENT_BOX_CONFIG": str(config)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("AGENT_BOX_SESSION_ID", raising=False)
    monkeypatch.setattr(context, "PATIENCE", 0.0)
    env = {
        **junk,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCES),
        "AGENT_BOX_CONFIG": str(config),
        "LANG": "C.UTF-8",
    }
    supervisor = Supervisor(runtime / "control.sock")
    made = Box(tmp_path, home, runtime, config, supervisor, env, user)
    made.document()
    supervisor.start()
    yield made
    supervisor.stop()


@pytest.fixture
def cli(box: Box, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command here and return its status and output."""

    def run(*argv: str) -> Result:
        capsys.readouterr()
        status = main(list(argv))
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until `condition` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
