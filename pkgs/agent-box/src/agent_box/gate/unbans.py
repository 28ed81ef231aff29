"""Who is banned, and requests to lift a ban, left by the gate for a helper that may do it.

The gate has no rights over the firewall. It writes `unban/<address in hex>`; a path unit sees the
directory change and runs `agent-box-gate unban --requested` as root.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box.gate.addresses import Address

BANS = Path("/run/agent-box-bans/list")
"""A line `<address or network> <unix time> <seconds>` for each ban, by the action of fail2ban."""

_MAX_WAITING = 64
_MAX_SHOWN = 200


class Unbans:
    """The directory of requests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def request(self, address: Address) -> None:
        """Ask to lift the ban of `address`; OSError when that cannot be written."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(os.listdir(self.directory)) < _MAX_WAITING:  # noqa: PTH208 - only counted
            (self.directory / address.packed.hex()).touch(mode=0o600)

    def take(self) -> list[Address]:
        """Return the addresses asked for, and forget the requests."""
        found: list[Address] = []
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(self.directory.iterdir()):
                # The name alone speaks; nothing is read from a directory that is not root's.
                path.unlink(missing_ok=True)
                with contextlib.suppress(ValueError):
                    found.append(ipaddress.ip_address(bytes.fromhex(path.name)))
        return found


def current(path: Path = BANS) -> list[dict[str, Any]]:
    """Return the bans in force, the latest first; none where nothing bans."""
    found: dict[str, dict[str, Any]] = {}
    try:
        lines = path.read_text("ascii", "replace").splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError):
            address, since, seconds = line.split()
            network = ipaddress.ip_network(address)
            start, length = float(since), float(seconds)
            found[address] = {
                "address": address,
                "unban": str(network.network_address),
                "since": start,
                # A negative time bans for good.
                "until": start + length if length >= 0 else None,
            }
    return list(found.values())[::-1][:_MAX_SHOWN]
