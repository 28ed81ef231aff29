"""What ttyd starts: the very session, only while the login lives, and nothing left behind."""

from __future__ import annotations

import json
import os
import pty
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
LOGIN = "0123456789abcdef0123456789abcdef"
PROGRAM = "import sys\nsys.path.insert(0, {!r})\nfrom agent_box.terminal.main import main\nmain()\n"


class Stand:
    """A tmux server, the files of logins, and terminals; a supervisor if the test plays one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live = root / "live"
        self.run_dir = root / "run"
        user = pwd.getpwuid(os.getuid()).pw_name
        self.logins = self.live / user
        for path in (self.live, self.logins, self.run_dir, root / "home"):
            path.mkdir(mode=0o700)
        (self.logins / LOGIN).touch()
        (root / "program").write_text(PROGRAM.format(str(SRC)))
        document = {
            "version": 1,
            "defaultAgent": "claude",
            "programs": {"tmux": shutil.which("tmux"), "launch": "/bin/false"},
            "agents": {},
            "users": {
                user: {
                    "home": str(root / "home"),
                    "shell": "/bin/sh",
                    "runtimeDirectory": str(self.run_dir),
                }
            },
        }
        (root / "box.json").write_text(json.dumps(document))
        self.env = {
            "AGENT_BOX_CONFIG": str(root / "box.json"),
            "AGENT_BOX_LIVE": str(self.live),
            "TMUX_TMPDIR": str(self.run_dir),
            "HOME": str(root / "home"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        self.opened: list[tuple[int, int]] = []
        self.started: list[str] = []

    def tmux(self, *args: str) -> str:
        command = ["tmux", "-L", "agent-box", *args]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=True
        ).stdout

    def answer(self, request: dict, views: tuple[dict, ...]) -> dict:
        """Answer as a supervisor does; what it was asked to start is noted."""
        if request["op"] == "wait":
            error = {"code": "conflict", "message": "it is still starting"}
            return {"ok": False, "error": error}
        if request["op"] == "start":
            self.started.append(request["args"]["name"])
            self.tmux("-f", "/dev/null", "new-session", "-d", "-s", self.started[-1], "sh")
            for each in views:
                each["state"] = "running"
        return {"ok": True, "result": {"sessions": list(views), "problems": []}}

    def supervise(self, *views: dict) -> None:
        """Play a supervisor."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.run_dir / "control.sock"))
        listener.listen()

        def serve() -> None:
            while True:
                client, _ = listener.accept()
                with client, client.makefile("rwb") as lines:
                    while line := lines.readline():
                        answer = self.answer(json.loads(line), views)
                        lines.write(json.dumps(answer).encode() + b"\n")
                        lines.flush()

        threading.Thread(target=serve, daemon=True).start()

    def open(self, *args: str) -> Terminal:
        pid, descriptor = pty.fork()
        if pid == 0:
            # As a service has it; whoever runs tests under nohup ignores it.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            program = [sys.executable, str(self.root / "program"), *args]
            os.execve(program[0], program, self.env)
        self.opened.append((pid, descriptor))
        return Terminal(pid, descriptor)

    def clients(self) -> list[int]:
        found = subprocess.run(
            ["pgrep", "-f", f"agent-box -N attach .*|watch.py .* {self.live}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        mine = []
        for pid in found.stdout.split():
            try:
                environment = Path(f"/proc/{pid}/environ").read_text()
            except OSError:
                continue
            if str(self.live) in environment:
                mine.append(int(pid))
        return mine

    def close(self) -> None:
        subprocess.run(
            ["tmux", "-L", "agent-box", "kill-server"], env=self.env, check=False,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for pid, descriptor in self.opened:
            os.close(descriptor)
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ChildProcessError, ProcessLookupError):
                pass
        shutil.rmtree(self.root)


class Terminal:
    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid, self.descriptor, self.text = pid, descriptor, ""

    def read(self, until: str | None = None, seconds: float = 15) -> str:
        """Read until a text was shown, or to the end."""
        deadline = time.monotonic() + seconds
        while until is None or until not in self.text:
            if not select.select([self.descriptor], [], [], 0.1)[0]:
                assert time.monotonic() < deadline, self.text
                continue
            try:
                data = os.read(self.descriptor, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data.decode("utf-8", "replace")
        return self.text

    def status(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def stand():
    made = Stand(Path(tempfile.mkdtemp(prefix="abt")))
    yield made
    made.close()


def view(name: str, state: str, reason: str | None = None) -> dict:
    return {"name": name, "state": state, "reason": reason}


def until(check, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


VIEWS = (
    view("main", "running"),
    view("two", "stopped"),
    view("three", "starting", "waits for memory"),
    view("four", "failed", "exit 3"),
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "without saying which session"),
        (("main",), "without saying which session"),
        (("main", LOGIN, "more"), "without saying which session"),
        (("main", LOGIN, "start", "more"), "without saying which session"),
        (("main", "../../etc/passwd00"), "without saying which session"),
        (("main", "f" * 32), "Your login has ended"),
        (("=main", LOGIN), "no session of that name"),
        (("ma:in", LOGIN), "no session of that name"),
        (("-N", LOGIN), "no session of that name"),
        (("_own", LOGIN), "no session of that name"),
    ],
)
def test_refuses_for_good(stand, arguments, said):
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "sh")
    stand.supervise(*VIEWS)
    terminal = stand.open(*arguments)
    assert said in terminal.read()
    assert terminal.status() == 0
    assert stand.tmux("list-clients") == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mai", "There is no session mai. There are: four, main, three, two."),
        ("three", "three is starting (waits for memory)"),
    ],
)
def test_says_why_there_is_nothing_to_show_and_looks_again(stand, name, said):
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "sh")
    stand.supervise(*VIEWS)
    terminal = stand.open(name, LOGIN)
    assert said in terminal.read("look again.")
    terminal.text = ""
    os.write(terminal.descriptor, b"\x03\r")
    assert said in terminal.read("look again.")
    (stand.logins / LOGIN).unlink()
    assert "Your login has ended" in terminal.read()
    assert terminal.status() == 0
    assert stand.tmux("list-clients") == ""


@pytest.mark.parametrize(
    ("name", "said"), [("two", "two is stopped."), ("four", "four has failed (exit 3)")]
)
def test_enter_starts_what_can_be_started(stand, name, said):
    stand.supervise(*[dict(each) for each in VIEWS])
    terminal = stand.open(name, LOGIN)
    assert said in terminal.read("Press Enter to start it.")
    assert stand.started == []
    os.write(terminal.descriptor, b"\r")
    terminal.read(f"[{name}]")
    assert stand.started == [name]


def test_shows_a_session_that_has_come_meanwhile(stand):
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "other", "sh")
    terminal = stand.open("main", LOGIN)
    terminal.read("look again.")
    stand.tmux("new-session", "-d", "-s", "main", "sh")
    os.write(terminal.descriptor, b"\r")
    terminal.read("[main]")
    os.write(terminal.descriptor, b"echo =$((6*7))=\r")
    terminal.read("=42=")


def test_shows_the_very_session_and_no_other(stand):
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main-two", "sh")
    stand.supervise(view("main", "running"), view("main-two", "running"))
    assert "main has no terminal" in stand.open("main", LOGIN).read("look again.")
    terminal = stand.open("main-two", LOGIN)
    os.write(terminal.descriptor, b"echo =$((6*7))=\r")
    terminal.read("=42=")
    assert stand.tmux("list-clients", "-F", "#{session_name}") == "main-two\n"


def test_works_while_the_supervisor_is_down_and_starts_no_server(stand):
    assert "main has no terminal" in stand.open("main", LOGIN).read("look again.")
    assert not list(stand.run_dir.glob("tmux-*/agent-box"))
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "sh")
    stand.open("main", LOGIN).read("[main]")


def test_ends_with_its_login_and_not_with_another(stand):
    (stand.logins / ("a" * 32)).touch()
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "sh")
    terminal, other = stand.open("main", LOGIN), stand.open("main", "a" * 32)
    terminal.read("[main]")
    other.read("[main]")
    began = time.monotonic()
    (stand.logins / LOGIN).unlink()
    assert "Your login has ended" in terminal.read()
    assert terminal.status() == 0
    assert time.monotonic() - began < 5
    os.write(other.descriptor, b"echo =$((6*7))=\r")
    other.read("=42=")
    assert len(stand.tmux("list-clients").splitlines()) == 1


def test_ends_when_the_session_does(stand):
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "sh")
    terminal = stand.open("main", LOGIN)
    terminal.read("[main]")
    stand.tmux("detach-client", "-s", "main")
    terminal.read()
    assert terminal.status() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_leaves_nothing_behind(stand, number):
    stand.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "sh")
    terminal = stand.open("main", LOGIN)
    terminal.read("[main]")
    until(lambda: len(stand.clients()) == 2)
    os.kill(terminal.pid, number)
    until(lambda: stand.tmux("list-clients") == "")
    terminal.status()
    until(lambda: stand.clients() == [])
