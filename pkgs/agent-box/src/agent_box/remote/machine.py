"""What the pane of a codex session with remote control goes through.

The app-server may be down, nobody may be signed in, the backend may have invalidated the sign-in,
or a pairing code can be had. codex's own check of a sign-in is local: only pairing finds out that
the backend does not take it any more. One new sign-in then happens by itself, and not a second.
Credentials are replaced when a new sign-in has worked, and never thrown away before.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Protocol

TICK = 5.0
"""Seconds between two looks at the app-server while nobody types."""

PAUSE = 2.0
"""Seconds between two attempts to pair."""

ATTEMPTS = 3

# Narrow on purpose: trouble of the network or of an enrolment under way is no refusal.
_REFUSALS = re.compile(
    r"token_invalidated|invalid_grant|HTTP 401|\b[Uu]nauthorized\b|[Ss]ign(?:ing)? in again"
)
_REASON = re.compile(r'"message"\s*:\s*("(?:[^"\\]|\\.)*")')
_PAIRING = re.compile(r"[Pp]airing code[^:\n]*:\s*(\S+)")
_AGAIN = "Press Enter to try again."


@dataclass(frozen=True)
class Shown:
    """What pane and card show."""

    state: str
    """One of starting, down, connecting, signin, signed-out, refused, trouble, paired."""
    text: str
    url: str | None = None
    code: str | None = None


class Port(Protocol):
    """What the machine needs of the world."""

    def show(self, shown: Shown) -> None:
        """Show it in the pane and on the card."""

    def up(self) -> bool:
        """Whether the app-server answers."""

    def signed_in(self) -> bool:
        """Whether codex has a credential, as far as it knows."""

    def sign_in(self) -> str | None:
        """Sign in and return None, or why that came to nothing."""

    def renew(self) -> None:
        """Have a new app-server started, which takes the new credential."""

    def pair(self) -> tuple[int, str]:
        """Ask for a pairing code: exit status and output."""

    def read(self, seconds: float) -> str | None:
        """Return a line that somebody typed, or None when the time is over."""

    def pause(self, seconds: float) -> None:
        """Let time go by."""


class Machine:
    """The states of one pane."""

    def __init__(self, port: Port, unit: str) -> None:
        self._port = port
        self._unit = unit
        self._retried = False
        """Whether a refused credential was answered with a new sign-in since the last pairing."""
        self._signed_in = False

    def run(self) -> None:
        """Go on for as long as the pane lives."""
        self._port.show(Shown("starting", "The codex app-server is being started."))
        self.await_server()
        self.onboard()
        while True:
            self.step()

    def step(self) -> None:
        """Wait for a key or a change, and act on it."""
        line = self._port.read(TICK)
        if not self._port.up():
            self.await_server()
            self.onboard()
        elif line is None:
            if not self._signed_in and self._port.signed_in():
                # Somebody signed in elsewhere.
                self._port.renew()
                self.await_server()
                self.onboard()
        elif line.strip().lower() in ("login", "relogin", "logout"):
            # Signing in with the wrong account gives no error that could be noticed.
            self._retried = True
            if self._sign_in():
                self.onboard()
        else:
            self.onboard()

    def await_server(self) -> None:
        """Wait until the app-server answers; tell when that takes long."""
        waited = 0.0
        while not self._port.up():
            if waited >= 4 * TICK:
                text = f"The codex app-server does not answer. See: systemctl status {self._unit}"
                self._port.show(Shown("down", text))
            self._port.pause(TICK / 10)
            waited += TICK / 10

    def onboard(self) -> None:
        """Come to a pairing code, by way of a sign-in where one is needed."""
        self._signed_in = self._port.signed_in()
        if not self._signed_in and not self._sign_in():
            return
        refused = self._pair()
        if refused is None:
            return
        if self._retried:
            self._port.show(
                Shown(
                    "refused",
                    f"{refused}\n\nA fresh sign-in was refused too, so it is the account: a wrong "
                    "one, or one without access to codex. Type login and Enter to sign in as "
                    "somebody else.",
                )
            )
            return
        self._retried = True
        self._port.show(Shown("connecting", f"{refused}\n\nSigning in anew."))
        if self._sign_in():
            self.onboard()

    def _sign_in(self) -> bool:
        problem = self._port.sign_in()
        if problem is not None:
            text = f"codex is not signed in: {problem}\n\nPress Enter to sign in."
            self._port.show(Shown("signed-out", text))
            return False
        self._signed_in = True
        self._port.renew()
        self.await_server()
        return True

    def _pair(self) -> str | None:
        """Show a pairing code or the trouble; return the backend's words if it refuses us."""
        output = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._port.pause(PAUSE)
            status, output = self._port.pair()
            if status == 0:
                self._retried = False
                found = _PAIRING.search(output)
                text = (
                    "This box can be driven from the codex apps. Enter the code there, under "
                    "remote control.\n\nCodes live for a short time; press Enter for a new one. "
                    "This is not a prompt: tasks are given in the app."
                )
                self._port.show(Shown("paired", text, code=found.group(1) if found else None))
                return None
            if refused(output):
                return reason(output)
        self._port.show(
            Shown("trouble", f"No pairing code could be had: {_last(output)}\n\n{_AGAIN}")
        )
        return None


def refused(output: str) -> bool:
    """Return whether the backend said that it does not take the credential."""
    return _REFUSALS.search(output) is not None


def reason(output: str) -> str:
    """Return the backend's own explanation, never the transcript of the exchange."""
    found = _REASON.search(output)
    if found:
        try:
            text = json.loads(found.group(1))
        except ValueError:
            text = None
        if isinstance(text, str) and text.strip():
            return " ".join(text.split())[:300]
    return "OpenAI does not take the sign-in of this box any more."


def _last(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("Error")]
    text = (errors or lines or ["codex said nothing"])[0 if errors else -1]
    return re.sub(r"https://\S+", "its server", text)[:300]
