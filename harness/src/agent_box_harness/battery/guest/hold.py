"""Takes hold of connections, sends nothing or half of something, and lets go when it is ended."""

from __future__ import annotations

import base64
import resource
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import go_on_in_background, job
else:  # beside it, inside the guest
    from telling import go_on_in_background, job

_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value: str) -> bytes:
    """Return a string as HPACK writes it, without Huffman."""
    data = value.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, size = len(data) - 127, b"\x7f"
    while rest >= 128:
        size += bytes([rest % 128 + 128])
        rest //= 128
    return size + bytes([rest]) + data


def block(headers: list[list[str]]) -> bytes:
    """Return headers as HPACK writes them, each by its name."""
    return b"".join(b"\x00" + text(name.lower()) + text(value) for name, value in headers)


def newer(domain: str, streams: int, asks: list[list[list[str]]]) -> socket.socket:
    """Open an HTTP/2 connection with many requests whose bodies do not come."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", 443), timeout=10)
    connection = context.wrap_socket(plain, server_hostname=domain)
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
    for index in range(streams):
        data += frame(1, 4, 2 * index + 1, block(asks[index % len(asks)]))
    connection.sendall(data)
    return connection


def take(told: dict[str, Any]) -> socket.socket:
    """Open one connection as the job says."""
    raw = base64.b64decode(told.get("raw", ""))
    if told["kind"] == "http2":
        return newer(told["domain"], told["streams"], told["asks"])
    connection: socket.socket
    if told["kind"] == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(3)
        connection.connect(told["path"])
    else:
        connection = socket.create_connection(("127.0.0.1", told.get("port", 443)), timeout=10)
        if told["kind"] == "tls":
            connection = _CONTEXT.wrap_socket(connection, server_hostname=told["domain"])
    if raw:
        connection.sendall(raw)
    return connection


def main() -> None:
    """Take hold, and go on in the background."""
    told = job()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held, refused = [], 0
    for each in told:
        for _ in range(each["number"]):
            try:
                held.append(take(each))
            except OSError:
                refused += 1
    time.sleep(1)  # what was sent arrives, and goes where it goes
    go_on_in_background({"held": len(held), "refused": refused})
    time.sleep(300)


if __name__ == "__main__":
    main()
