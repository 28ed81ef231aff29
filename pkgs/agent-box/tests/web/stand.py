"""A box to look at: the web service over plain HTTP, with stand-ins for everything around it.

The front plays edge and gate (it names the user, answers `/gate/*`, serves a terminal that shows
what is typed), and a steerable supervisor holds some sessions. Run it to work on the pages:

    python pkgs/agent-box/tests/web/stand.py [PORT]
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import uvicorn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from agent_box import config, errors
from agent_box.web import assets
from agent_box.web.app import application
from agent_box.web.uploads import Uploads

TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

TERMINAL = """<!doctype html><html lang="en"><title>Terminal</title>
<style>body{margin:0;background:#161614;color:#d8d6d0;font:13px/1.4 monospace;padding:8px}
textarea{position:fixed;bottom:0;left:0;width:1px;height:1px;opacity:0;border:0}</style>
<pre id="screen">%s</pre><textarea class="xterm-helper-textarea" aria-label="Terminal"></textarea>
<script>
const field = document.querySelector("textarea"), keys = [];
window.keys = keys;
field.addEventListener("keydown", (event) => {
  keys.push((event.ctrlKey ? "C-" : "") + (event.shiftKey ? "S-" : "") + event.key);
  document.getElementById("screen").textContent += " " + keys.at(-1);
});
</script></html>"""

SCREEN = """╭──────────────────────────────────────────────╮
│ ✻ Welcome back                               │
│   ~/work/shop                                │
╰──────────────────────────────────────────────╯

> add a test for the empty basket

● I will look at the basket first.
  Read(src/basket.py) … 84 lines
● The total of an empty basket is None; it should be 0.
  Update(src/basket.py) +2 -1
  Bash(pytest -q) … 41 passed

> ▌"""


def view(name: str, state: str = "running", **more: Any) -> dict[str, Any]:
    """Return what the supervisor says about a session."""
    return {
        "name": name,
        "agent": "claude",
        "state": state,
        "reason": None,
        "id": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "pid": os.getpid() if state in ("running", "waiting") else None,
        "workingDirectory": "/home/alice/work/shop",
        "promptPending": False,
        "restarts": 0,
        "since": time.time() - 3000,
        "nextRetry": None,
        "lastExit": None,
        "attached": 0,
        "limits": {"memoryMax": None, "tasksMax": None},
        **more,
    }


class Supervisor:
    """Answers on the control socket and pushes what changes; a test can steer every answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions: dict[str, dict[str, Any]] = {}
        self.problems: list[str] = []
        self.replies: dict[str, Any] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.subscriptions = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._subscribers: set[asyncio.StreamWriter] = set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def start(self) -> None:
        self._do(self._start())

    def stop(self) -> None:
        self._do(self._stop())

    def close(self) -> None:
        if self._server is not None:
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def put(self, name: str, state: str = "running", **more: Any) -> None:
        """Make or change a session and push it."""
        self._do(self._put(view(name, state, **more)))

    def push(self, event: dict[str, Any]) -> None:
        self._do(self._push(event))

    def args(self, op: str) -> dict[str, Any]:
        return [args for name, args in self.requests if name == op][-1]

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path), limit=2**25)

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._server = None
        for writer in list(self._writers):
            writer.close()
        self.path.unlink(missing_ok=True)

    async def _put(self, changed: dict[str, Any]) -> None:
        self.sessions[changed["name"]] = changed
        await self._push({"event": "session", "session": changed})

    async def _push(self, event: dict[str, Any]) -> None:
        for writer in self._subscribers:
            writer.write(json.dumps(event).encode() + b"\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                request = json.loads(line)
                op, args = request["op"], request["args"]
                self.requests.append((op, args))
                try:
                    answer = {"ok": True, "result": await self._answer(op, args)}
                except errors.AgentBoxError as error:
                    answer = {"ok": False, "error": {"code": error.code, "message": str(error)}}
                writer.write(json.dumps(answer).encode() + b"\n")
                if op == "subscribe":
                    self.subscriptions += 1
                    self._subscribers.add(writer)
        except (ConnectionError, ValueError):
            pass
        finally:
            self._writers.discard(writer)
            self._subscribers.discard(writer)
            writer.close()

    async def _answer(self, op: str, args: dict[str, Any]) -> Any:
        if op in self.replies:
            reply = self.replies[op]
            result = reply(args) if callable(reply) else reply
            if isinstance(result, errors.AgentBoxError):
                raise result
            return result
        # What the stand-in itself does to be one has the plain names.
        return await getattr(self, f"_op_{op}")(**args)

    async def _op_ls(self) -> Any:
        return {"sessions": list(self.sessions.values()), "problems": self.problems}

    _op_subscribe = _op_ls

    async def _op_connections(self, **_args: Any) -> Any:
        return {"connections": []}

    async def _op_status(self) -> Any:
        server = {"state": "running", "pid": 1}
        return {"version": "0.1.0", "pid": 1, "server": server, "problems": self.problems}

    def _get(self, name: str) -> dict[str, Any]:
        if name not in self.sessions:
            raise errors.NotFoundError(f"no session '{name}'; `agent-box-session ls` lists them")
        return self.sessions[name]

    async def _op_show(self, name: str) -> Any:
        found = self._get(name)
        return {**found, "entry": {"agent": found["agent"]}, "exits": []}

    async def _op_add(self, **args: Any) -> Any:
        name = args.get("name") or args.get("agent") or "claude"
        if name in self.sessions:
            raise errors.ConflictError(f"session '{name}' exists already; choose another name")
        made = view(name, agent=args.get("agent") or "claude")
        made["workingDirectory"] = args.get("workingDirectory")
        await self._put(made)
        return {"session": made}

    async def _change(self, name: str, state: str) -> Any:
        changed = view(name, state, agent=self._get(name)["agent"])
        await self._put(changed)
        return {"session": changed}

    async def _op_start(self, name: str) -> Any:
        return await self._change(name, "running")

    async def _op_stop(self, name: str) -> Any:
        return await self._change(name, "stopped")

    async def _op_restart(self, name: str = "", **args: Any) -> Any:
        names = [name] if name else list(self.sessions)
        return {
            "sessions": [(await self._change(n, "running"))["session"] for n in names],
            "errors": [],
        }

    async def _op_rm(self, name: str) -> Any:
        self._get(name)
        del self.sessions[name]
        await self._push({"event": "removed", "name": name})
        return {"session": None}

    async def _op_rename(self, name: str, newName: str) -> Any:  # noqa: N803
        changed = {**self._get(name), "name": newName}
        self.sessions = {
            changed["name"] if key == name else key: changed if key == name else item
            for key, item in self.sessions.items()
        }
        await self._push({"event": "session", "session": changed})
        await self._push({"event": "removed", "name": name})
        return {"session": changed}

    async def _op_send(self, name: str, text: str, enter: bool = True) -> Any:
        self._get(name)
        return {}

    async def _op_logs(self, name: str, lines: int = 0, run: int | None = None) -> Any:
        self._get(name)
        return {"text": SCREEN, "source": "ended", "run": 1}


class Front:
    """What is around the web service: names the user, answers for the gate and the terminal."""

    def __init__(self, app: Any, user: str) -> None:
        self.app = app
        self.user = user
        self.signed_in = True
        self.gate_requests: list[tuple[str, str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        if not self.signed_in:
            form = b'<form action="/login"><h1>Sign in</h1></form>'
            await _reply(send, 401, b"<!doctype html><title>Sign in</title>" + form, "text/html")
        elif path.startswith("/gate/"):
            await self._gate(scope, receive, send, path)
        elif path.startswith(f"/{self.user}/t/"):
            await _reply(send, 200, (TERMINAL % SCREEN).encode(), "text/html; charset=utf-8")
        elif (page := self._page(path)) is not None:
            await _reply(send, 200, *page)
        else:
            kept = [item for item in scope["headers"] if item[0] != b"x-agent-box-user"]
            scope["headers"] = [*kept, (b"x-agent-box-user", self.user.encode())]
            await self.app(scope, receive, send)

    def _page(self, path: str) -> tuple[bytes, str] | None:
        """Return what the edge has on its disk under an address."""
        inner = path.removeprefix(f"/{self.user}/")
        name = {"": "workspace", "settings/": "settings"}.get(inner)
        if inner.startswith("downloads/") and inner.endswith("/"):
            name = "downloads"
        if name is not None:
            return assets.page(self.user, "box.example", name), "text/html; charset=utf-8"
        content = assets.files().get(inner.rpartition("/")[2]) if "assets/" in inner else None
        kind = TYPES.get(inner.rpartition(".")[2], "text/plain")
        return None if content is None else (content, kind)

    async def _gate(self, scope: Any, receive: Any, send: Any, path: str) -> None:
        body = (await receive()).get("body", b"")
        self.gate_requests.append((scope["method"], path, json.loads(body) if body else None))
        now = time.time()
        login = {
            "device": "Firefox on Linux",
            "address": "203.0.113.7",
            "created": now - 9000,
            "lastUse": now - 60,
            "ends": now + 600000,
            "kind": "browser",
        }
        logins = [
            {**login, "id": "one", "current": True},
            {**login, "id": "two", "device": "Safari on iPhone", "current": False},
        ]
        if path == "/gate/password" and json.loads(body).get("current") != "right":
            answer = {
                "error": {"code": "wrong_password", "message": "The current password is wrong."}
            }
            await _reply(send, 403, json.dumps(answer).encode(), "application/json")
            return
        content = {
            "user": self.user,
            "login": "one",
            "logins": logins,
            "ended": 1,
            "bans": [
                {
                    "address": "2001:db8::/64",
                    "unban": "2001:db8::",
                    "since": now - 60,
                    "until": now + 3540,
                }
            ],
            "password": {"changed": now, "minLength": 16, "maxLength": 64},
        }
        await _reply(send, 200, json.dumps(content).encode(), "application/json")


async def _reply(send: Any, status: int, body: bytes, kind: str) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    if kind == "text/html; charset=utf-8" and b"<script>" not in body:
        headers.append((b"content-security-policy", b"default-src 'self'"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Stand:
    """The whole of it, in a directory."""

    def __init__(
        self,
        root: Path,
        port: int = 0,
        runtime: Path | None = None,
        config_name: str = "box.json",
    ) -> None:
        self.root = root
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.home = root / "home"
        self.home.mkdir(exist_ok=True)
        self.runtime = runtime or root / "run"
        self.runtime.mkdir(exist_ok=True)
        self.listener = socket.create_server(("127.0.0.1", port))
        self.origin = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.base = f"{self.origin}/{self.user}"
        self.config = root / config_name
        self.config.write_text(json.dumps(self.document()))
        self.supervisor = Supervisor(self.runtime / "control.sock")
        self.box = config.load(self.config)
        self.me = self.box.user(self.user)
        self.uploads = Uploads(self.home, quota=50 << 20, spare=0)
        self.front = Front(application(self.box, self.me, self.uploads), self.user)
        options = uvicorn.Config(
            self.front, log_level="warning", lifespan="on", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(options)
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.listener]}, daemon=True
        )

    def document(self) -> dict[str, Any]:
        return {
            "version": 1,
            "box": {"revision": "3f9c1d20ab", "hostLabel": "box"},
            "defaultAgent": "claude",
            "programs": {"tmux": "/usr/bin/tmux", "launch": "/bin/true"},
            "agents": {"claude": {"command": "/bin/true"}, "codex": {"command": "/bin/true"}},
            "users": {
                self.user: {
                    "home": str(self.home),
                    "shell": "/bin/sh",
                    "runtimeDirectory": str(self.runtime),
                }
            },
            "web": {
                "domain": "box.example",
                "origins": [self.origin],
                "rootUser": self.user,
                "users": {self.user: {}},
            },
            "webhook": {
                "users": {
                    self.user: {
                        "url": f"https://box.example/{self.user}/webhook",
                        "socket": "/run/agent-box-webhook/nobody.sock",
                    }
                },
                "sessionArgs": ["--model", "sonnet"],
            },
            "update": {
                "flake": "/etc/nixos",
                "input": "agent-box",
                "commands": {},
                "users": [self.user],
            },
        }

    def start(self, supervisor: bool = True) -> None:
        if supervisor:
            self.supervisor.start()
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.supervisor.close()
        self.listener.close()

    def fill(self) -> None:
        """Make it look like a box in use."""
        put = self.supervisor.put
        put("main")
        put("shop-tests", "waiting", reason="claude asks: run the migration on the database?")
        put("docs", agent="codex", workingDirectory="/home/alice/work/docs")
        put("nightly", "stopped", lastExit={"at": time.time() - 9000, "cause": "exit 0"})
        put("import", "failed", reason="the working directory is gone", agent="opencode")
        downloads, settings = self.home / "downloads", self.home / ".config/agent-box"
        downloads.mkdir(exist_ok=True)
        settings.mkdir(parents=True, exist_ok=True)
        (downloads / "report.pdf").write_bytes(b"x" * 812345)
        (downloads / "coverage.txt").write_text("98 %\n" * 900)
        (self.home / "work/shop").mkdir(parents=True, exist_ok=True)
        (settings / "env").write_text("ANTHROPIC_API_KEY=x\nDATABASE_URL=y\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="abw") as directory:
        stand = Stand(Path(directory), int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
        stand.start()
        stand.fill()
        print(f"{stand.base}/", flush=True)
        try:
            stand.thread.join()
        except KeyboardInterrupt:
            stand.close()
