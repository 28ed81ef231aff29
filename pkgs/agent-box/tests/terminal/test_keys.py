"""Keys that terminals of old cannot tell apart reach the program in a pane, by our tmux.conf."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from agent_box.terminal.main import FEATURES

CONF = Path(__file__).parents[4] / "modules/tmux.conf"
SHIFT_ENTER = {"as a number": b"\x1b[13;2u", "as xterm does": b"\x1b[27;2;13~"}
LISTENER = """\
import os, sys, tty
tty.setraw(0)
os.write(1, sys.argv[1].encode().decode("unicode_escape").encode() + b"=ready=")
data = b""
while not data.endswith(b"q"): data += os.read(0, 100)
open(sys.argv[2], "wb").write(data)
"""
ASKS = {"nothing": r"", "the first level": r"\x1b[>4;1m", "the second level": r"\x1b[>4;2m"}
TERMINALS = ("xterm-256color", "tmux-256color", "alacritty", "foot", "wezterm", "xterm-ghostty")

pytestmark = [
    pytest.mark.skipif(not CONF.exists(), reason="needs the checkout"),
    pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux"),
]


class Stand:
    """A tmux server with our configuration, and terminals that look at it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {**os.environ, "HOME": str(root), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        self.env.pop("TMUX", None)
        (root / "listener.py").write_text(LISTENER)
        self._opened: list[tuple[int, int]] = []

    def tmux(self, *args: str) -> str:
        command = ["tmux", "-S", str(self.root / "socket"), "-f", str(CONF), *args]
        return subprocess.run(
            command, env=self.env, check=True, capture_output=True, text=True
        ).stdout

    def know(self, terminal: str) -> None:
        """Describe a terminal that this machine may not know, by another one."""
        if subprocess.run(["infocmp", terminal], check=False, capture_output=True).returncode == 0:
            return
        if not shutil.which("tic"):
            pytest.skip("needs tic")
        other = subprocess.run(
            ["infocmp", "-x", "xterm-256color"], check=True, capture_output=True, text=True
        ).stdout
        lines = [line for line in other.splitlines() if not line.startswith("#")]
        source = "\n".join([f"{terminal}|{terminal},", *lines[1:], ""])
        folder = str(self.root / "terminfo")
        subprocess.run(["tic", "-x", "-o", folder, "-"], check=True, text=True, input=source)
        self.env["TERMINFO_DIRS"] = f"{folder}:"

    def listen(self, asks: str = "") -> Path:
        """Start a program that takes keys until a q; return where it leaves them."""
        found = self.root / "found"
        script = self.root / "listener.py"
        self.tmux("new-session", "-d", "-s", "t", "python3", str(script), asks, str(found))
        self.until(lambda: "=ready=" in self.tmux("capture-pane", "-p", "-t", "=t:"))
        return found

    def open(self, terminal: str = "xterm-256color", features: str | None = None) -> int:
        pid, descriptor = pty.fork()
        if pid == 0:
            more = ["-T", features] if features else []
            argv = ["tmux", "-u", *more, "-S", str(self.root / "socket"), "attach", "-t", "=t"]
            os.execvpe(argv[0], argv, {**self.env, "TERM": terminal})
        self._opened.append((pid, descriptor))
        return descriptor

    def read(self, descriptor: int, until: str) -> str:
        text = ""
        end = time.monotonic() + 15
        while not re.search(until, text) and time.monotonic() < end:
            if select.select([descriptor], [], [], 0.1)[0]:
                text += os.read(descriptor, 65536).decode("utf-8", "replace")
        return text

    @staticmethod
    def until(condition) -> None:
        end = time.monotonic() + 15
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.05)

    def close(self) -> None:
        subprocess.run(
            ["tmux", "-S", str(self.root / "socket"), "kill-server"], check=False, env=self.env,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for pid, descriptor in self._opened:
            os.close(descriptor)
            os.waitpid(pid, 0)


@pytest.fixture
def stand():
    # Sockets have short names.
    with tempfile.TemporaryDirectory(prefix="keys-") as folder:
        stand = Stand(Path(folder))
        yield stand
        stand.close()


@pytest.mark.parametrize("sent", SHIFT_ENTER.values(), ids=SHIFT_ENTER)
@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_shift_enter_is_not_enter(stand, asks, sent):
    """A program that asked for such keys gets this one; any other the line feed of Ctrl+J."""
    found = stand.listen(asks)
    # tmux before 3.5 cannot tell us what a program asked for.
    knows = bool(stand.tmux("display-message", "-p", "-t", "=t:", "#{pane_key_mode}").strip())
    terminal = stand.open(features=FEATURES)
    stand.read(terminal, "=ready=")
    os.write(terminal, sent)
    time.sleep(0.2)
    os.write(terminal, b"q")
    stand.until(found.exists)
    stand.until(lambda: found.read_bytes().endswith(b"q"))
    assert found.read_bytes() == (b"\x1b[13;2uq" if asks and knows else b"\nq")


def test_shift_tab_arrives(stand):
    """As terminals have always sent it."""
    found = stand.listen()
    terminal = stand.open(features=FEATURES)
    stand.read(terminal, "=ready=")
    os.write(terminal, b"\x1b[Z")
    time.sleep(0.2)
    os.write(terminal, b"q")
    stand.until(found.exists)
    stand.until(lambda: found.read_bytes() == b"\x1b[Zq")


@pytest.mark.parametrize("name", TERMINALS)
def test_every_terminal_is_asked_for_extended_keys(stand, name):
    """By the name that it came with over ssh, without an answer to who it is."""
    stand.know(name)
    stand.listen()
    assert "\x1b[>4;" in stand.read(stand.open(name), r"\x1b\[>4;")


def test_kitty_is_asked_in_its_own_way(stand):
    stand.know("xterm-kitty")
    stand.listen()
    terminal = stand.open("xterm-kitty")
    assert "\x1b[>1u" in stand.read(terminal, r"\x1b\[>1u")
    stand.tmux("detach-client", "-a")
    stand.tmux("detach-client", "-s", "=t")
    assert "\x1b[<u" in stand.read(terminal, r"\x1b\[<u")
