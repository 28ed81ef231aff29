"""The root shell of a machine: the NixOS test backdoor protocol over a byte stream.

The guest runs `bash` with its standard input and output on a console in raw
mode, after printing a banner. A request is one line; the answer is the standard
output in one line of base64, then the exit status on a line of its own.
Standard error goes to the serial console.

Beyond what the NixOS driver does, a request may carry a standard input: its
bytes follow the line, and the shell moves exactly that many into a file first,
so that a command that stops reading cannot leave the rest to be taken for the
next request.
"""

from __future__ import annotations

import base64
import secrets
import shlex
import time
from typing import TYPE_CHECKING

from agent_box_harness.errors import MachineError

if TYPE_CHECKING:
    import socket

BANNER = b"Spawning backdoor root shell..."
"""The last thing that the guest prints before its shell takes requests."""
MAX_COMMAND = 120_000
"""Bytes; Linux takes no argument over 128 KiB. Longer scripts go through standard input."""
TIMED_OUT = 124
"""Exit status of a command that ran out of time, from timeout(1)."""

_SYNC_SECONDS = 60.0
"""Patience with the first answer of a shell: an emulated guest that boots on a busy machine."""
_STRICT = "set -euo pipefail; "
_INPUT = "/run/agent-box-harness-$$.stdin"


class _OutOfTimeError(MachineError):
    """Nothing arrived in time."""


def request(command: str, timeout: float | None, stdin: bytes | None) -> bytes:
    """Return the bytes that make the shell run `command`."""
    if len(command.encode()) > MAX_COMMAND:
        raise ValueError(f"a command of {len(command)} characters; pass the bulk as stdin")
    limit = "" if timeout is None else f"timeout -k 5 {timeout:.3f} "
    run = f"{limit}bash -c {shlex.quote(_STRICT + command)}"
    answer = "| (base64 -w 0; echo); echo ${PIPESTATUS[0]}"
    if stdin is None:
        return f"{run} </dev/null {answer}\n".encode()
    line = f"head -c {len(stdin)} >{_INPUT}; {run} <{_INPUT} {answer}; rm -f {_INPUT}\n"
    return line.encode() + stdin


def parse_answer(answer: bytes) -> tuple[int, bytes]:
    """Return (exit status, standard output) from the two lines of an answer."""
    output, _, status = answer.strip(b"\n").rpartition(b"\n")
    try:
        return int(status), base64.b64decode(output, validate=True)
    except ValueError:
        raise MachineError(f"the guest's shell answered out of turn: {answer[-300:]!r}") from None


class ShellChannel:
    """One connection to a root shell. Not for concurrent use; the owner keeps it to one user."""

    def __init__(self, sock: socket.socket, name: str = "shell", *, booting: bool = True) -> None:
        self.sock = sock
        self.name = name
        self.booting = booting
        """Whether the guest has yet to announce this shell."""
        self.ready = False
        self._buffer = b""

    def prepare(self, seconds: float) -> bool:
        """Become ready within that time: by the banner, or by finding our place."""
        if self.booting:
            if not self._banner_within(seconds):
                return False
            self.booting = False
            self._buffer = b""
        self.synchronize(max(seconds, _SYNC_SECONDS))
        self.ready = True
        return True

    def _banner_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while BANNER not in self._buffer:
            try:
                self._receive(deadline, "a root shell")
            except _OutOfTimeError:
                return False
        return True

    def synchronize(self, timeout: float) -> None:
        """Find the beginning of an answer on a shell that already runs."""
        mark = f"mark-{secrets.token_hex(8)}".encode()
        self.send(b"\necho " + mark + b"\n")
        deadline = time.monotonic() + timeout
        while mark + b"\n" not in self._buffer:
            self._receive(deadline, "the running root shell")
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Send without expecting an answer."""
        try:
            self.sock.settimeout(None)
            self.sock.sendall(data)
        except OSError as error:
            raise MachineError(f"the guest's {self.name} is gone: {error}") from error

    def run(
        self, command: str, timeout: float | None, stdin: bytes | None, grace: float
    ) -> tuple[int, bytes]:
        """Run a command and return (exit status, standard output).

        `timeout` is enforced in the guest; `grace` seconds later we stop waiting
        and raise MachineError, after which the channel must not be used again.
        """
        self.send(request(command, timeout, stdin))
        deadline = None if timeout is None else time.monotonic() + timeout + grace
        while self._buffer.count(b"\n") < 2:
            self._receive(deadline, f"the end of `{command[:200]}`")
        answer, self._buffer = self._buffer, b""
        return parse_answer(answer)

    def close(self) -> None:
        """Drop the connection; the shell in the guest stays."""
        self.sock.close()

    def _receive(self, deadline: float | None, what: str) -> None:
        try:
            if deadline is None:
                self.sock.settimeout(None)
            else:
                self.sock.settimeout(max(0.0, deadline - time.monotonic()))
            chunk = self.sock.recv(65536)
        except (TimeoutError, BlockingIOError):
            seen = self._buffer[-300:]
            raise _OutOfTimeError(
                f"timed out waiting for {what}; received so far: {seen!r}"
            ) from None
        except OSError as error:
            raise MachineError(f"the guest's {self.name} is gone: {error}") from error
        if not chunk:
            raise MachineError(f"the guest's {self.name} closed while waiting for {what}")
        self._buffer += chunk
