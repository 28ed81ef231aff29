"""News for a session: on the screen of a shell, or as a paste for an agent, at the right moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_box.agents.base import Agent
from agent_box.errors import ConflictError, NotFoundError
from agent_box.supervisor import deliver
from agent_box.supervisor.model import TurnLock


@pytest.fixture
def shell():
    """A program in the foreground of a terminal of its own; its pid, tty and screen."""
    pid, screen = pty.fork()
    if pid == 0:
        os.execvp("sleep", ["sleep", "60"])
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}/comm").read_text() != "sleep\n" and time.monotonic() < end:
        time.sleep(0.01)
    tty = Path(f"/proc/{pid}/fd/0").readlink()
    yield pid, tty, screen
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(screen)


def test_a_long_text_arrives_whole(shell):
    """A terminal takes little at once, and reads when it likes."""
    pid, tty, screen = shell
    text = "".join(f"line {number}\n" for number in range(9000))
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):
            while b"line 8999" not in shown:
                time.sleep(0.001)
                shown.extend(os.read(screen, 4096))

    reader = threading.Thread(target=read)
    reader.start()
    deliver._show(tty, pid, text)
    reader.join(20)
    assert shown.replace(b"\r", b"").strip().decode() == text.strip()


def test_a_screen_that_was_stopped(shell, monkeypatch):
    monkeypatch.setattr(deliver, "STALLED", 0.2)
    pid, tty, _ = shell
    with pytest.raises(ConflictError, match="takes nothing"):
        for _ in range(200):
            deliver._show(tty, pid, "x" * 4000)


def test_a_program_in_the_foreground_keeps_its_screen(shell):
    _, tty, _ = shell
    # This process is in no foreground of that terminal.
    with pytest.raises(ConflictError):
        deliver._show(tty, os.getpid(), "text")
    with pytest.raises(ConflictError):
        deliver._show(Path("/nowhere"), os.getpid(), "text")


class Asking(Agent):
    """An agent that asks a question while its screen says so."""

    def attention(self, ctx: Any, screen: str) -> str | None:
        return "a question" if "esc to cancel" in screen else None


@pytest.fixture(autouse=True)
def agent(monkeypatch):
    monkeypatch.setattr(deliver.agents, "get", lambda _: Asking())


class Tmux:
    """A terminal whose program answers Enter after so many presses."""

    def __init__(self, screen: str = "> ", flag: str = "1", takes: int = 1) -> None:
        self.screen, self.flag, self.takes = screen, flag, takes
        self.pasted: list[str] = []
        self.enters = 0
        self.clients = ""

    async def capture(self, pane: str) -> str:
        return self.screen + ("taken" if self.enters >= self.takes else "")

    async def run(self, *args: str) -> str:
        if args[0] == "list-clients":
            return self.clients
        if args[0] == "send-keys":
            self.enters += 1
        return self.flag

    async def paste(self, pane: str, text: str, *, enter: bool) -> None:
        assert not enter
        self.pasted.append(text)


def give(tmux: Tmux, text: str = "a\nb", **more: Any) -> bool:
    supervisor = SimpleNamespace(tmux=tmux, lifecycle=SimpleNamespace(context=lambda _: None))
    session = SimpleNamespace(
        name="work", state="running", lock=TurnLock(), alive=True,
        pane=SimpleNamespace(pane="%1", session_key="$1", session="work"),
        entry=SimpleNamespace(agent="codex"),
    )  # fmt: skip
    for key, value in more.items():
        setattr(session, key, value)
    return asyncio.run(deliver.deliver(supervisor, session, text))  # type: ignore[arg-type]


def test_a_paste_and_one_enter():
    tmux = Tmux()
    assert give(tmux)
    assert (tmux.pasted, tmux.enters) == (["a\nb"], 1)


def test_enter_is_pressed_until_it_shows(monkeypatch):
    monkeypatch.setattr(deliver, "PAUSE", 0.001)
    tmux = Tmux(takes=2)
    assert give(tmux)
    assert (len(tmux.pasted), tmux.enters) == (1, 2)
    silent = Tmux(takes=99)
    assert not give(silent)
    assert (len(silent.pasted), silent.enters) == (1, deliver.ENTERS)


def test_without_brackets_it_is_one_line():
    tmux = Tmux(flag="0")
    give(tmux)
    assert tmux.pasted == ["a b"]


@pytest.mark.parametrize(
    "changes",
    [{"alive": False}, {"state": "starting"}, {"pane": None}],
)
def test_not_now(changes):
    tmux = Tmux()
    with pytest.raises(ConflictError):
        give(tmux, **changes)
    assert tmux.pasted == []


def test_who_is_writing_is_not_disturbed():
    tmux = Tmux()
    tmux.clients = f"{int(time.time())}\n"
    with pytest.raises(ConflictError, match="writing"):
        give(tmux)
    tmux.clients = f"{int(time.time()) - 60}\n"
    assert give(tmux)


def test_nothing_is_typed_into_a_dialog_or_an_empty_screen():
    for screen in ("", "x\nPress enter to confirm or esc to cancel\n"):
        tmux = Tmux(screen, takes=99)
        with pytest.raises(ConflictError):
            give(tmux)
        assert (tmux.pasted, tmux.enters) == ([], 0)


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_who_is_gone_is_told_nothing(state):
    with pytest.raises(NotFoundError):
        give(Tmux(), state=state)
