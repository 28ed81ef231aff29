"""A real tmux server and a real supervisor in a directory of their own, and a steerable agent."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from agent_box.control_client import Client

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1]
REPOSITORY = HERE.parents[3]
STUB = HERE / "stub_claude.py"
PROGRAM = (
    "#!{python} -I\nimport sys\nsys.path.insert(0, {src!r})\nfrom {module} import main\nmain()\n"
)

AIDER = """\
#!/bin/sh
stty -echo
echo "aider was told: $*"
while read -r line; do
  case $line in "run "*) eval "${line#run }" ;; *) printf "$line" ;; esac
done
"""
"""A program that runs or puts out, escapes interpreted, what it is told."""


class LiveBox:
    """One user's box. The test plays systemd: it starts and restarts the two processes."""

    def __init__(self, root: Path, seed: dict) -> None:
        self.root = root
        self.home = root / "home"
        self.run_dir = root / "run"
        self.config_path = root / "box.json"
        self.claude = root / "claude"
        self.registry = self.home / ".config/agent-box/sessions.json"
        self.state = self.home / ".local/state/agent-box"
        self.user = pwd.getpwuid(os.getuid()).pw_name
        for path in (self.home, self.run_dir, self.registry.parent):
            path.mkdir(mode=0o700, parents=True)
        (self.registry.parent / "env").write_text(
            "ANTHROPIC_API_KEY=sk-test\nFROM_ENV_FILE='a b'\n"
        )
        self.install_agent()
        self.use_package(PACKAGE)
        self.write_config(seed)
        self.tmux: subprocess.Popen | None = None
        self.supervisor: subprocess.Popen | None = None
        self.children: list[subprocess.Popen] = []

    def use_package(self, package: Path) -> None:
        """Run what is below `package`; takes effect with the next start."""
        self.package = package
        self.launch = self.program("launch", "agent_box.supervisor.launch")
        self.supervise = self.program("supervise", "agent_box.supervisor.start")
        (self.root / "bin").mkdir(exist_ok=True)
        self.program("bin/agent-box-hook", "agent_box.agents.hook")

    def program(self, name: str, module: str) -> Path:
        path = self.root / name
        src = str(self.package / "src")
        path.write_text(PROGRAM.format(python=sys.executable, src=src, module=module))
        path.chmod(0o755)
        return path

    def install_agent(self) -> None:
        self.claude.write_text(f"#!{sys.executable} -IS\n" + STUB.read_text())
        self.claude.chmod(0o755)

    def install_fifth_agent(self) -> None:
        """Add an agent that the runtime does not know: one file in its package, one of the box."""
        package = self.root / "package"
        shutil.copytree(self.package / "src", package / "src")
        shutil.copy(HERE / "adapter_aider.py", package / "src/agent_box/agents/aider.py")
        self.use_package(package)
        program = self.root / "aider"
        program.write_text(AIDER)
        program.chmod(0o755)
        document = json.loads(self.config_path.read_text())
        document["programs"]["launch"] = str(self.launch)
        document["agents"]["aider"] = {"command": str(program)}
        self.config_path.write_text(json.dumps(document))

    def write_config(self, seed: dict) -> None:
        document = {
            "version": 1,
            "box": {"revision": None, "hostLabel": "test"},
            "defaultAgent": "claude",
            "programs": {"tmux": shutil.which("tmux"), "launch": str(self.launch)},
            "agents": {"claude": {"command": str(self.claude)}},
            "users": {
                self.user: {
                    "home": str(self.home),
                    "shell": "/bin/sh",
                    "runtimeDirectory": str(self.run_dir),
                    "seed": seed,
                    "limits": {"memoryMax": "50%", "tasksMax": 100},
                }
            },
        }
        self.config_path.write_text(json.dumps(document))

    @property
    def env(self) -> dict[str, str]:
        return {
            "AGENT_BOX_CONFIG": str(self.config_path),
            "TMUX_TMPDIR": str(self.run_dir),
            "HOME": str(self.home),
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
        }

    # Processes

    def start_tmux(self) -> None:
        # As systemd does, again if need be: a child that the server before forked just when it was
        # killed has its socket until it becomes a program, and a new one believes that it runs.
        for _ in range(5):
            if self._start_tmux():
                return
        pytest.fail("no tmux server stays")

    def _start_tmux(self) -> bool:
        config = REPOSITORY / "modules/tmux.conf"
        tmux = subprocess.Popen(
            ["tmux", "-L", "agent-box", "-f", str(config), "-D"],
            env=self.env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.tmux = tmux
        self.children.append(tmux)
        ask = ("show-options", "-s", "exit-empty")
        self.until(
            lambda: tmux.poll() is not None or self.tmux_run(*ask, check=False).strip() != ""
        )
        return tmux.poll() is None

    def start_supervisor(self) -> None:
        with (self.root / "supervisor.log").open("ab") as log:
            self.supervisor = subprocess.Popen(
                [str(self.supervise)], env=self.env, cwd=self.home, stdout=log, stderr=log
            )
        self.children.append(self.supervisor)
        self.until(self._answers)

    def _answers(self) -> bool:
        assert self.supervisor is not None
        assert self.supervisor.poll() is None, self.log
        with contextlib.suppress(Exception):
            return self.call("status")["pid"] == self.supervisor.pid
        return False

    def start(self) -> None:
        self.start_tmux()
        self.start_supervisor()

    def kill_supervisor(self, number: int = signal.SIGKILL) -> None:
        assert self.supervisor is not None
        self.supervisor.send_signal(number)
        self.supervisor.wait(10)

    def kill_tmux(self) -> None:
        assert self.tmux is not None
        self.tmux.send_signal(signal.SIGKILL)
        self.tmux.wait(10)

    def close(self) -> None:
        for child in reversed(self.children):
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signal.SIGCONT)
                    if child is self.tmux:
                        self.tmux_run("kill-server", check=False)
                    child.kill()
                child.wait(10)
        # What was started in the panes is in sessions of its own.
        for path in self.root.glob("home/stub/*.launches"):
            for launch in _lines(path):
                _kill_ours(launch["pid"], self.root)
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def log(self) -> str:
        return (self.root / "supervisor.log").read_text()

    # Talking

    def call(self, op: str, **args):
        with Client(self.run_dir, 40.0) as client:
            return client.call(op, **args)

    def tmux_run(self, *args: str, check: bool = True, timeout: float = 10) -> str:
        result = subprocess.run(
            ["tmux", "-N", "-u", "-L", "agent-box", *args],
            env=self.env,
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout,
        )
        return result.stdout

    def sessions(self) -> dict[str, dict]:
        return {view["name"]: view for view in self.call("ls")["sessions"]}

    def view(self, name: str) -> dict:
        return self.sessions()[name]

    def wait(self, name: str, *states: str, timeout: float = 20) -> dict:
        return self.until(
            lambda: next(
                (v for v in [self.sessions().get(name)] if v and v["state"] in states), None
            ),
            timeout,
            lambda: f"{name}: {self.sessions().get(name)}\n{self.log}",
        )

    def until(self, check, timeout: float = 20, explain=None):
        deadline = time.monotonic() + timeout
        while True:
            result = check()
            if result:
                return result
            if time.monotonic() > deadline:
                pytest.fail(f"not so after {timeout} s: {explain() if explain else self.log}")
            time.sleep(0.03)

    # Evidence

    def raw(self) -> dict:
        return json.loads(self.registry.read_text())

    def launches(self, session_id: str) -> list[dict]:
        return _lines(self.home / f"stub/{session_id}.launches")

    def transcript(self, session_id: str) -> list[dict]:
        return _lines(self.home / f".claude/projects/x/{session_id}.jsonl")

    def at_start(self, name: str, *commands: str) -> None:
        (self.home / "stub").mkdir(exist_ok=True)
        (self.home / f"stub/{name}.start").write_text("\n".join(commands))

    def say(self, name: str, command: str) -> None:
        try:
            self.call("send", name=name, text=command)
        except Exception as error:
            error.add_note(f"{self.call('show', name=name)}\n{self.log}")
            raise

    def ready(self, session_id: str, count: int = 1) -> list[dict]:
        """Wait until the stub has been launched `count` times."""
        return self.until(
            lambda: len(found := self.launches(session_id)) >= count and found,
            20,
            lambda: f"{self.launches(session_id)}\n{self.log}",
        )

    def traces(self, session_id: str) -> list[str]:
        """Return the files of ours that carry a session's id in their name."""
        places = [self.state, self.run_dir]
        return [
            str(path) for place in places for path in place.rglob("*") if session_id in path.name
        ]


def _lines(path: Path) -> list[dict]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []


def _kill_ours(pid: int, root: Path) -> None:
    with contextlib.suppress(OSError):
        if str(root).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


class Listener:
    """Hears what the supervisor tells, without ever asking it."""

    def __init__(self, box) -> None:
        self.client = Client(box.run_dir, 60.0)
        self.events: queue.Queue[dict] = queue.Queue()
        self.last: dict | None = None
        self.reasons: list[str] = []
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        for event in self.client.subscribe():
            if event.get("event") == "session":
                self.events.put(event["session"])

    def until(self, check, timeout: float = 15) -> dict:
        """Return the first view that `check` accepts and that comes within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                view = self.events.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"not so after {timeout} s; last seen: {self.last}")
            self.last = view
            self.reasons += [view["reason"]] if view["reason"] else []
            if check(view):
                return view


@pytest.fixture
def make_box():
    """Return a maker of boxes that have not been started."""
    with maker() as make:
        yield make


@contextlib.contextmanager
def maker():
    """Yield a maker of boxes that have not been started, and end them."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    made: list[LiveBox] = []

    def make(seed: dict | None = None) -> LiveBox:
        # Short, since a UNIX socket's path has at most 107 bytes.
        box = LiveBox(Path(tempfile.mkdtemp(prefix="abx", dir="/tmp")), seed or {})
        made.append(box)
        return box

    try:
        yield make
    finally:
        for box in made:
            box.close()


@pytest.fixture
def box(make_box):
    """Return a running box without sessions."""
    live = make_box()
    live.start()
    return live
