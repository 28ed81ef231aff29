"""Client of the supervisor's control socket: one JSON object a line, requests answered in order.

Synchronous on purpose: the command line and small helpers use it, and it costs no event loop.
"""

from __future__ import annotations

import json
import os
import socket
import time

from agent_box import peer
from agent_box.errors import InternalError, from_code

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any, Self

SOCKET_NAME = "control.sock"
"""The socket's name inside the user's runtime directory."""

MAX_LINE = 32 * 1024 * 1024
"""Longest line in bytes that either side may send."""

DEFAULT_TIMEOUT = 30.0
"""Seconds that an operation may take unless the caller says otherwise."""

QUICK_TIMEOUT = 2.2
"""Seconds for operations that only look: people wait for these."""

_QUICK = frozenset({"ls", "show", "status"})


class SupervisorDown(InternalError):  # noqa: N818 - a state, which callers handle, not an accident
    """No supervisor listens; the registry can be edited directly instead."""


class SupervisorSilent(InternalError):  # noqa: N818 - as above
    """A supervisor listens and does not answer in time; whether it acted is not known."""


class SupervisorGone(InternalError):  # noqa: N818 - as above
    """The supervisor hung up before it answered; whether it acted is not known."""


class Client:
    """A connection to the supervisor of one user, opened when first needed.

    `runtime_dir` is the user's `/run/agent-box-<user>`. `timeout` is in seconds and bounds each
    call as a whole; without one, calls that only look get `QUICK_TIMEOUT`, others
    `DEFAULT_TIMEOUT`. `longest` is how many bytes an answer may have. Use it in one thread at a
    time. Only the owner of the directory is ever talked to, whatever lies in it.
    """

    def __init__(
        self,
        runtime_dir: str | os.PathLike[str],
        timeout: float | None = None,
        *,
        longest: int = MAX_LINE,
    ) -> None:
        self._directory = os.fspath(runtime_dir)
        self._longest = longest
        self.path = os.path.join(runtime_dir, SOCKET_NAME)  # noqa: PTH118 - pathlib is slow to import
        self._timeout = timeout
        self._user = os.path.basename(runtime_dir).removeprefix("agent-box-")  # noqa: PTH119
        self._socket: socket.socket | None = None
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; a later call connects anew."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._buffer.clear()

    def call(self, op: str, /, *, call_timeout: float | None = None, **args: Any) -> dict[str, Any]:
        """Run the operation `op` and return its result.

        Raises what the supervisor answers (UsageError, NotFoundError, ConflictError,
        InternalError), SupervisorDown when nobody listens, SupervisorSilent when no answer comes
        within `call_timeout` seconds (by default the client's own), and SupervisorGone when the
        connection breaks.
        """
        timeout = call_timeout or self._timeout
        if timeout is None:
            timeout = QUICK_TIMEOUT if op in _QUICK else DEFAULT_TIMEOUT
        deadline = time.monotonic() + timeout
        request = json.dumps({"op": op, "args": args}, separators=(",", ":")).encode() + b"\n"
        if len(request) > MAX_LINE:
            raise from_code(
                "usage",
                f"the request has {len(request)} bytes, the limit is {MAX_LINE}; shorten it",
            )
        try:
            self._send(request, deadline)
            return self._result(self._receive(deadline))
        except TimeoutError:
            self.close()  # the late answer must not be taken for that of the next call
            raise self._silent(timeout) from None
        except (ConnectionError, EOFError) as error:
            self.close()
            raise SupervisorGone(
                f"the supervisor of {self._user} went away during the request; it comes back by"
                f" itself: look with agent-box-session ls, or {self._diagnose()}"
            ) from error
        except OSError as error:
            self.close()
            raise InternalError(f"cannot talk to {self.path}: {error.strerror}") from error

    def subscribe(self) -> Iterator[dict[str, Any]]:
        """Yield the present state, `{"sessions": […]}`, then every event, until the peer hangs up.

        Takes over the connection; `close` (or leaving the `with` block) ends it. Raises as `call`.
        """
        yield self.call("subscribe")
        try:
            while True:
                yield json.loads(self._receive(None))
        except (EOFError, ConnectionError):
            return
        finally:
            self.close()

    def _connect(self, deadline: float) -> socket.socket:
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                peer.dial(connection, self._directory, SOCKET_NAME)
            except BlockingIOError:
                # Its queue of connections is full: it accepts none at the moment.
                connection.close()
                if time.monotonic() >= deadline:
                    raise TimeoutError from None
                time.sleep(0.02)
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
                connection.close()
                raise SupervisorDown(
                    f"the supervisor of {self._user} is not running; {self._diagnose()}"
                ) from error
            except peer.StrangerError as error:
                connection.close()
                raise InternalError(
                    f"the supervisor of {self._user} is not asked: {error.strerror}"
                ) from None
            except PermissionError as error:
                connection.close()
                raise InternalError(
                    f"not allowed to connect to {self.path}; only {self._user} is"
                ) from error
            except OSError:
                connection.close()
                raise
            else:
                self._buffer.clear()
                return connection

    def _send(self, request: bytes, deadline: float) -> None:
        if self._socket is None:
            self._socket = self._connect(deadline)
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        self._socket.sendall(request)

    def _receive(self, deadline: float | None) -> bytes:
        """Return the next line; EOFError when the peer hung up."""
        if self._socket is None:
            raise EOFError
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > self._longest:
                raise EOFError
            if deadline is None:
                self._socket.settimeout(None)
            else:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._socket.settimeout(left)
            chunk = self._socket.recv(256 * 1024)
            if not chunk:
                raise EOFError
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _result(self, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
            if answer["ok"]:
                result: dict[str, Any] = answer["result"]
                return result
            code, message = answer["error"]["code"], answer["error"]["message"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            self.close()
            raise InternalError(
                "the supervisor's answer makes no sense; if the box was just upgraded, run:"
                f" systemctl restart agent-box-supervisor-{self._user}"
            ) from error
        raise from_code(str(code), str(message))

    def _silent(self, timeout: float) -> SupervisorSilent:
        return SupervisorSilent(
            f"the supervisor of {self._user} does not answer (waited {timeout:g} s);"
            f" {self._diagnose()}"
        )

    def _diagnose(self) -> str:
        return f"see: systemctl status agent-box-supervisor-{self._user}"
