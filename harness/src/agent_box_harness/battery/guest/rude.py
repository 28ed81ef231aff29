"""Sends the edge requests that are no good, many at once, and tells what each was answered.

A case says what is sent to the byte, and what then: whether the connection is closed or reset, at
once or after waiting for an answer.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import job, tell
else:  # beside it, inside the guest
    from telling import job, tell

AT_ONCE = 48
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE


def carry_out(case: dict[str, Any]) -> int:
    """Send one request; return the status, 0 for a connection that ended, -1 for silence."""
    raw = base64.b64decode(case["raw"])
    plain = socket.create_connection(("127.0.0.1", 443), timeout=10)
    with plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection: socket.socket = plain
        if case["tls"]:
            connection = _CONTEXT.wrap_socket(plain, server_hostname=case["domain"])
        with contextlib.suppress(OSError):  # what is refused at once is not read to its end
            connection.sendall(raw)
        if not case["wait"]:
            if case["reset"]:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
            return 0
        connection.settimeout(case["wait"])
        with connection:
            return status(connection)


def status(connection: socket.socket) -> int:
    """Return the status of the answer that comes."""
    head = b""
    try:
        while b"\r\n" not in head:
            chunk = connection.recv(4096)
            if not chunk:
                return 0
            head += chunk
        return int(head.split()[1])
    except TimeoutError:
        return -1
    except (OSError, ValueError, IndexError):
        return 0


def attempt(case: dict[str, Any]) -> int:
    """Send one request, whatever becomes of the connection."""
    try:
        return carry_out(case)
    except OSError:
        return 0


def main() -> None:
    """Carry out all cases."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tell(list(pool.map(attempt, job())))


if __name__ == "__main__":
    main()
