"""Who listens on a TCP port of this machine, by the kernel's own list."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"
NET = Path("/proc/self/net")
"""Where the kernel lists sockets. The directory of a process, since /proc/net may be hidden."""


@dataclass(frozen=True)
class Listener:
    """A socket that waits for connections."""

    address: str
    port: int
    uid: int


def listeners(net: Path = NET) -> list[Listener]:
    """Return every listening TCP socket."""
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (net / name).read_text("ascii").splitlines()[1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN:
                address, port = fields[1].split(":")
                found.append(Listener(_address(address), int(port, 16), int(fields[7])))
    return found


def _address(text: str) -> str:
    raw = b"".join(
        struct.pack("=I", int(text[start : start + 8], 16)) for start in range(0, len(text), 8)
    )
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def reached(port: int, listening: list[Listener]) -> dict[str, Listener]:
    """Return who would get a connection to 127.0.0.1 and to ::1, as far as anybody would.

    The kernel prefers the most exact address.
    """
    found: dict[str, Listener] = {}
    by_address = {each.address: each for each in listening if each.port == port}
    for target, addresses in {
        "127.0.0.1": ("127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::"),  # noqa: S104
        "::1": ("::1", "::"),
    }.items():
        for address in addresses:
            if address in by_address:
                found[target] = by_address[address]
                break
    return found
