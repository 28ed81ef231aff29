"""A receiver in a process of its own, with a supervisor and plugin processes that a test steers."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from agent_box import config
from agent_box.subscriptions import actions, files
from agent_box.subscriptions.place import filter_path, key_of, spool_dir, state_dir
from agent_box.webhook.spool import Spool

SECRET = "0123456789abcdef0123456789abcdef"
START = (
    "import os; os.environ['LISTEN_PID'] = str(os.getpid())\n"
    "from agent_box.webhook import room, service\n"
    "room.LIMIT = int(os.environ.get('TEST_ROOM', room.LIMIT))\n"
    "service.IDLE = float(os.environ.get('TEST_IDLE', service.IDLE))\n"
    "service.main()"
)


def wait_for(what: Any, seconds: float = 10.0) -> Any:
    """Return what `what()` returns once that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


class Supervisor:
    """Answers as the supervisor does; what was asked of it is in `asked`."""

    def __init__(self, path: Path) -> None:
        self.views: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.refuse: dict[str, tuple[str, str]] = {}
        """Operation -> error code and message."""
        self.hang_up: set[str] = set()
        """Operations that are carried out and never answered."""
        self.path = path
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(50)
        self._subscribers: list[socket.socket] = []
        self._lock = threading.RLock()
        threading.Thread(target=self._accept, daemon=True).start()

    def add(self, name: str, agent: str = "codex", state: str = "running", **more: Any) -> str:
        ident = more.pop("id", None) or str(uuid.uuid4())
        view = {"name": name, "agent": agent, "state": state, "id": ident, "since": time.time()}
        view |= {"attached": 0, "reason": None, **more}
        with self._lock:
            self.views[name] = view
            self._publish({"event": "session", "session": view})
        return ident

    def remove(self, name: str) -> None:
        with self._lock:
            del self.views[name]
            self._publish({"event": "removed", "name": name})

    def did(self, op: str) -> list[dict[str, Any]]:
        with self._lock:
            return [args for name, args in self.asked if name == op]

    def told(self) -> list[tuple[str, str]]:
        return [(args["name"], args["text"]) for args in self.did("deliver")]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _publish(self, event: dict[str, Any]) -> None:
        for one in self._subscribers:
            with contextlib.suppress(OSError):
                one.sendall(json.dumps(event).encode() + b"\n")

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                op, args = request["op"], request["args"]
                with self._lock:
                    answer = self._answer(op, args)
                    if op in self.hang_up:
                        return
                    link.sendall(json.dumps(answer).encode() + b"\n")
                    if op == "subscribe":
                        self._subscribers.append(link)

    def _answer(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((op, args))
        if op in self.refuse:
            code, message = self.refuse[op]
            return {"ok": False, "error": {"code": code, "message": message}}
        if op in ("subscribe", "ls"):
            return {"ok": True, "result": {"sessions": list(self.views.values()), "problems": []}}
        if op == "add":
            if args["name"] in self.views:
                message = f"session '{args['name']}' exists already"
                return {"ok": False, "error": {"code": "conflict", "message": message}}
            self.add(args["name"], args["agent"], "starting", id=args["id"])
            return {"ok": True, "result": {"session": self.views[args["name"]]}}
        if op == "rm":
            self.remove(args["name"])
        return {"ok": True, "result": {"session": None, "confirmed": True}}


class Peer:
    """A plugin process as the receiver sees one: a socket, and whatever arrives on it."""

    def __init__(self, directory: Path, key: str, pid: int | None = None) -> None:
        (directory / "instances").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / "instances" / f"{key}.{pid or os.getpid()}.sock"
        self.path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.path))
        self._listening.listen(16)
        self.lines: list[bytes] = []
        self.connections = 0
        self.reading = threading.Event()
        self.reading.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._read, args=(link,), daemon=True).start()

    def _read(self, link: socket.socket) -> None:
        data = b""
        while True:
            self.reading.wait()
            try:
                chunk = link.recv(1 << 20)
            except OSError:
                return
            if not chunk:
                return
            *lines, data = (data + chunk).split(b"\n")
            self.lines += [line for line in lines if line]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.path.unlink(missing_ok=True)


class Stand:
    """The home of one user with everything that belongs to webhooks."""

    def __init__(self, *, start: bool = True, **webhook: Any) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="wh-", dir="/tmp")
        self.root = Path(self._place.name)
        self.home, self.run = self.root / "h", self.root / "r"
        self.home.mkdir()
        self.run.mkdir()
        self.directory = state_dir(self.home)
        self.directory.mkdir(parents=True)
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.socket_path = self.root / "in.sock"
        document = {
            "version": 1,
            "defaultAgent": "claude",
            "programs": {"tmux": "/bin/false", "launch": "/bin/false"},
            "agents": {"claude": {"command": "/bin/true"}, "codex": {"command": "/bin/true"}},
            "users": {
                self.user: {
                    "home": str(self.home),
                    "shell": "/bin/sh",
                    "runtimeDirectory": str(self.run),
                }
            },
            "webhook": {
                "users": {
                    self.user: {
                        "url": f"https://box.test/{self.user}/webhook",
                        "socket": str(self.socket_path),
                    }
                },
                "plugin": "/run/agent-box-local-channels",
                **webhook,
            },
        }
        self.config = self.root / "box.json"
        self.config.write_text(json.dumps(document))
        self.box = config.load(self.config)
        self.supervisor = Supervisor(self.run / "control.sock")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.socket_path))
        self._listening.listen(1024)
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = self.root / "log"
        self.peers: list[Peer] = []
        if start:
            self.start()

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "AGENT_BOX_CONFIG": str(self.config),
            "HOME": str(self.home),
            "LOCAL_WEBHOOK_STATE_DIR": str(self.directory),
        }

    def start(self, **env: str) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"import os; os.dup2({self._listening.fileno()}, 3)\n{START}",
                ],
                env={**self.env, "LISTEN_FDS": "1", **env},
                pass_fds=(self._listening.fileno(), 3) if self._listening.fileno() != 3 else (3,),
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        wait_for(lambda: (self.directory / "receiver.json").exists() and self.status())

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(15)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill(signal.SIGTERM)
        for peer in self.peers:
            peer.close()
        self.supervisor.close()
        self._listening.close()
        self._place.cleanup()

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    # Sending -------------------------------------------------------------------

    def source(self, name: str = "github", secret: str = SECRET, **more: Any) -> None:
        path = self.directory / "sources.json"
        raw = json.loads(path.read_bytes()) if path.exists() else {"sources": {}}
        raw["sources"][name] = {"secret": secret, **more}
        path.write_text(json.dumps(raw))

    def raw(self, data: bytes, timeout: float = 30) -> bytes:
        """Send bytes as they are; return whatever comes until the end."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout)
            link.connect(str(self.socket_path))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.sendall(data)
            answer = b""
            try:
                while chunk := link.recv(65536):
                    answer += chunk
            except (TimeoutError, ConnectionResetError):
                pass
            return answer

    def request(
        self,
        body: bytes,
        headers: dict[str, str] | None = None,
        path: str = "/github",
        method: str = "POST",
    ) -> tuple[int, str]:
        given = {"Host": "x", "Connection": "close", "Content-Length": str(len(body))}
        given |= {"X-Forwarded-For": "192.0.2.1", **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value is not None)
        answer = self.raw(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        top, _, rest = answer.partition(b"\r\n\r\n")
        return (int(top.split()[1]) if top else 0), rest.decode("utf-8", "replace")

    def send(
        self,
        document: Any,
        event: str = "push",
        *,
        path: str = "/github",
        secret: str = SECRET,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        given = {
            "X-Hub-Signature-256": sign(body, secret),
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": str(uuid.uuid4()),
        }
        return self.request(body, given | (headers or {}), path)

    def status(self) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError):
            answer = self.raw(
                b"GET /.local/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
            return found
        return None

    def settled(self) -> None:
        """Wait until everything that was accepted has been dealt with."""
        wait_for(lambda: (self.status() or {}).get("unrouted") == 0, 30)

    # Subscriptions ---------------------------------------------------------------

    def subscribe(self, key: str, topic: str, **more: Any) -> None:
        actions.subscribe(self.directory, key, actions.Wish(topic, **more), "boxbot")

    def write(self, key: str, *entries: dict[str, Any], **more: Any) -> Path:
        path = filter_path(self.directory, key)
        path.write_text(json.dumps({"topics": list(entries), **more}))
        return path

    def read(self, key: str) -> files.Filter:
        return files.read(filter_path(self.directory, key))

    def peer(self, key: str, pid: int | None = None) -> Peer:
        peer = Peer(self.directory, key, pid)
        self.peers.append(peer)
        return peer

    def deliveries(self) -> list[Any]:
        spool = Spool(spool_dir(self.home), read_only=True)
        try:
            return spool.log(limit=10**6)
        finally:
            spool.close()


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def push(number: int = 1, repo: str = "acme/widgets", sender: str = "rosa") -> dict[str, Any]:
    return {
        "ref": "refs/heads/main",
        "number": number,
        "repository": {"full_name": repo},
        "sender": {"login": sender},
        "commits": [{}],
    }


def issue(number: int = 12, action: str = "opened", **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "issue": {"number": number, "title": f"Broken {number}", "html_url": "https://x/12"},
        "repository": {"full_name": "acme/widgets"},
        "sender": {"login": "rosa"},
        **more,
    }


def run(conclusion: str | None = "failure", number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "action": "completed",
        "workflow_run": {
            "id": number,
            "name": "ci",
            "conclusion": conclusion,
            "head_branch": "fix",
        },
        "repository": {"full_name": "acme/widgets"},
        "sender": {"login": "rosa"},
        **more,
    }


__all__ = ["Peer", "Stand", "Supervisor", "issue", "key_of", "push", "run", "sign", "wait_for"]
