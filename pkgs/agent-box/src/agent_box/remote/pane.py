"""`agent-box-codex`: what a codex session with remote control runs in its pane."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from agent_box import config, envfile, locking
from agent_box.control_client import Client
from agent_box.errors import AgentBoxError
from agent_box.remote import place
from agent_box.remote.machine import Machine, Shown

if TYPE_CHECKING:
    from agent_box.config import Box, User

TITLE = "codex remote control"
"""First words of the pane; the state follows."""

COMMAND = 30.0
"""Seconds that codex may take for an answer."""

_LIVE = ("starting", "choosing", "waiting", "exchanging")


def main() -> int:
    """Run until the session ends."""
    os.umask(0o077)
    try:
        box = config.load()
        user = config.current_user(box)
    except AgentBoxError as error:
        print(f"agent-box-codex: {error}", file=sys.stderr)
        return error.exit_code
    pane = Pane(box, user)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        Machine(pane, f"agent-box-codex-{user.name}").run()
    finally:
        pane.close()
    return 0


class Pane:
    """The world of the machine: terminal, card, supervisor and codex."""

    def __init__(self, box: Box, user: User) -> None:
        self._command = box.agents["codex"].command
        self._user = user
        self._machine = box.host_label or os.uname().nodename
        self._env = _environment(user)
        self._socket = place.socket_path(self._env, user.home)
        self._directory = place.directory(user)
        self._session = os.environ.get("AGENT_BOX_SESSION", "")
        self._file = self._directory / f"{os.getpid()}.json"
        self._deaf = not sys.stdin.isatty()
        self._shown: Shown | None = None
        self._server: tuple[int, int] | None = None
        """The socket that was there at the last look."""
        self._signed_out: tuple[int, int] | None = None
        """How the credential's file was when codex said that nobody is signed in."""

    def close(self) -> None:
        """Give the reference back."""
        self._file.unlink(missing_ok=True)

    def show(self, shown: Shown) -> None:
        """Show it in the pane and on the card."""
        if shown == self._shown:
            return
        self._shown = shown
        lines = [f"{TITLE}: {shown.state}", f"machine: {self._machine}", ""]
        if shown.url:
            lines += [f"Open this page in a browser, on any device:\n\n  {shown.url}\n"]
        if shown.code:
            lines += [f"Code:  {shown.code}\n"]
        lines += [shown.text, ""]
        with contextlib.suppress(OSError):
            sys.stdout.write("\x1b[2J\x1b[3J\x1b[H" + "\n".join(lines))
            sys.stdout.flush()
        content: dict[str, Any] = {
            "pid": os.getpid(),
            "session": self._session,
            "state": shown.state,
            "text": shown.text,
            "url": shown.url,
            "code": shown.code,
        }
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        locking.atomic_write(self._file, json.dumps(content).encode(), durable=False)

    def up(self) -> bool:
        """Whether the app-server takes connections and is the one of before.

        A new one may have come between two looks: it made its socket anew.
        """
        with contextlib.suppress(OSError):
            info = self._socket.stat()
            before, self._server = self._server, (info.st_ino, info.st_ctime_ns)
            if before is not None and before != self._server:
                return False
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2.0)
            try:
                client.connect(str(self._socket))
            except OSError:
                return False
        return True

    def signed_in(self) -> bool:
        """Ask codex, which looks at its files only; not again while these stay as they are."""
        signature = self._signature()
        if signature == self._signed_out:
            return False
        found = self._codex("login", "status")[0] == 0
        self._signed_out = None if found else signature
        return found

    def _signature(self) -> tuple[int, int]:
        try:
            info = (place.codex_home(self._env, self._user.home) / "auth.json").stat()
        except OSError:
            return (0, 0)
        return (info.st_ino, info.st_mtime_ns)

    def pair(self) -> tuple[int, str]:
        """Ask for a pairing code."""
        return self._codex("remote-control", "pair")

    def renew(self) -> None:
        """Ask the unit for a new app-server and wait until the old one is gone."""
        request = self._directory / place.RESTART
        request.touch()
        deadline = time.monotonic() + 10
        while request.exists() and time.monotonic() < deadline:
            time.sleep(0.1)

    def sign_in(self) -> str | None:
        """Have the supervisor guide the sign-in, as the card does, and show how it goes."""
        try:
            with Client(self._user.runtime_dir) as client:
                client.call("signin", flow="codex", action="start")
                while True:
                    cards = client.call("connections")["connections"]
                    card = next(card for card in cards if card["id"] == "codex")
                    if card["state"] not in _LIVE:
                        break
                    if card["url"] or card["code"]:
                        text = "Sign in to codex. Nothing has to be typed here."
                        self.show(Shown("signin", text, card["url"], card["code"]))
                    else:
                        self.show(Shown("connecting", "codex asks OpenAI for a sign-in page."))
                    time.sleep(1)
        except AgentBoxError as error:
            return str(error)
        if card["state"] == "connected" and not card["error"]:
            return None
        return str(card["error"] or "the sign-in was given up")

    def read(self, seconds: float) -> str | None:
        """Return a line that somebody typed, or None when the time is over."""
        if self._deaf:
            time.sleep(seconds)
            return None
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return None
        line = sys.stdin.readline()
        if not line:
            self._deaf = True  # reading on would spin
            return None
        return line

    def pause(self, seconds: float) -> None:
        """Let time go by."""
        time.sleep(seconds)

    def _codex(self, *words: str) -> tuple[int, str]:
        try:
            done = subprocess.run(
                [self._command, *words], env=self._env, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", timeout=COMMAND, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, f"Error: codex did not answer within {COMMAND:g} s"
        except OSError as error:
            return 1, f"Error: {self._command} cannot be run ({error.strerror})"
        return done.returncode, done.stdout + done.stderr


def _environment(user: User) -> dict[str, str]:
    try:
        return {**os.environ, **envfile.read(user.env_path)}
    except (AgentBoxError, OSError, ValueError):
        return dict(os.environ)


if __name__ == "__main__":
    sys.exit(main())
