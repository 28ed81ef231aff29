"""A client of QEMU's machine protocol, as much of it as we need."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from agent_box_harness.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class QmpError(MachineError):
    """QEMU refused a command."""


class Qmp:
    """One connection. Commands are serialized; events are kept in `events`."""

    def __init__(
        self, path: Path, timeout: float = 10.0, alive: Callable[[], bool] = lambda: True
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._buffer = b""
        self._sock = connect_unix(path, timeout, alive)
        try:
            self._read(time.monotonic() + timeout)  # the greeting
            self.execute("qmp_capabilities", timeout=timeout)
        except BaseException:
            self._sock.close()
            raise

    def execute(
        self, command: str, arguments: dict[str, Any] | None = None, timeout: float = 30.0
    ) -> Any:
        """Run a command and return its result; raises QmpError or MachineError."""
        message: dict[str, Any] = {"execute": command}
        if arguments:
            message["arguments"] = arguments
        deadline = time.monotonic() + timeout
        with self._lock:
            try:
                self._sock.sendall(json.dumps(message).encode() + b"\n")
            except OSError as error:
                raise MachineError(f"QEMU does not take `{command}`: {error}") from error
            while True:
                reply = self._read(deadline)
                if "event" in reply:
                    self.events.append(reply)
                elif "error" in reply:
                    raise QmpError(f"QEMU refused `{command}`: {reply['error'].get('desc')}")
                elif "return" in reply:
                    return reply["return"]

    def monitor(self, line: str) -> str:
        """Run a command of the human monitor and return its output."""
        return str(self.execute("human-monitor-command", {"command-line": line}))

    def status(self) -> str:
        """Return the run state, such as `running`, `paused` or `internal-error`."""
        return str(self.execute("query-status")["status"])

    def close(self) -> None:
        """Drop the connection."""
        self._sock.close()

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            try:
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
                chunk = self._sock.recv(65536)
            except TimeoutError:
                raise MachineError("QEMU's control socket does not answer") from None
            except OSError as error:
                raise MachineError(f"QEMU's control socket broke: {error}") from error
            if not chunk:
                raise MachineError("QEMU closed its control socket")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply = json.loads(line)
        if not isinstance(reply, dict):
            raise MachineError(f"QEMU sent something that is no message: {line[:200]!r}")
        return reply


def connect_unix(path: Path, timeout: float, alive: Callable[[], bool]) -> socket.socket:
    """Connect to a UNIX socket that may not exist yet, while `alive` says there is hope."""
    deadline = time.monotonic() + timeout
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            if time.monotonic() > deadline or not alive():
                raise MachineError(f"cannot reach QEMU at {path}: {error}") from error
            time.sleep(0.01)
        else:
            return sock
