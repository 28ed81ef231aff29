"""Who listens on a TCP port of this network, by the kernel's own list."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    return [
        Listener(_address(address), port, uid)
        for address, port, _, state, uid in _rows(net)
        if state == _LISTEN
    ]


def _rows(net: Path) -> Iterator[tuple[str, int, str, str, int]]:
    """Yield address and port here, both there, state and owner of every TCP socket."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (net / name).read_text("ascii").splitlines()[1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for line in lines:
            fields = line.split()
            address, port = fields[1].split(":")
            yield address, int(port, 16), fields[2], fields[3], int(fields[7])


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


def is_with(connection: socket.socket, uid: int, net: Path = NET) -> bool:
    """Tell whether a connection to this machine is one with a program of this user.

    Who has not accepted it yet has it from the socket that listens.
    """
    here, there = connection.getsockname()[:2], connection.getpeername()[:2]
    listening = reached(there[1], listeners(net)).get(there[0])
    if listening is None or listening.uid != uid:
        return False
    for address, port, other, state, owner in _rows(net):
        if state == _LISTEN or (port, int(other.rpartition(":")[2], 16)) != (there[1], here[1]):
            continue
        same = _address(address).removeprefix("::ffff:") == there[0]
        if same and owner not in (0, uid):
            return False
    return True


def is_here(network: Path) -> bool:
    """Tell whether this process runs in a network namespace, given by its file."""
    return _same(network, Path("/proc/self/ns/net"))


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.stat(), other.stat())
    except OSError:
        return False


def net_of(network: Path) -> Path | None:
    """Return where the sockets of a network namespace are listed.

    `None` when this user has no process in it, as far as it can be seen from here.
    """
    with contextlib.suppress(OSError):
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _same(network, process / "ns/net"):
                return process / "net"
    return None
