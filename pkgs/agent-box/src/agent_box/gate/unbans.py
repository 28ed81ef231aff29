"""Who is banned, and wishes to lift a ban, left by the gate for a helper that may do it.

The gate has no rights over the firewall. It writes `wishes/<address in hex>` below a directory of
root's; a path unit sees that and runs `agent-box-gate unban --requested` as root, which takes a
wish away when it has done what it could.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ipaddress
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box.gate import addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_box.gate.addresses import Address

BANS = Path("/run/agent-box-bans/list")
"""A line `<address or network> <unix time> <seconds>` for each ban, by the action of fail2ban."""

WISHES = BANS.parent / "wishes"

PATIENCE = 10.0
"""Seconds for the helper to carry out a wish: it has to start first."""

ALLOWED, SPAN = 10, 3600.0
"""Wishes that one user has in so many seconds: forgiving without end is guessing without end."""

_POLL = 0.05
_MAX_WAITING = 64
_MAX_SHOWN = 200


class Allowance:
    """How often each user may forgive."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: dict[str, collections.deque[float]] = {}

    def take(self, user: str) -> float:
        """Take one of the wishes of `user`; return 0, or the seconds until there is one again."""
        now = self._clock()
        taken = self._taken.setdefault(user, collections.deque())
        while taken and now - taken[0] >= SPAN:
            taken.popleft()
        if len(taken) >= ALLOWED:
            return SPAN - (now - taken[0])
        taken.append(now)
        return 0.0


class Unbans:
    """The wishes, and what came of them."""

    def __init__(self, directory: Path, bans: Path = BANS) -> None:
        self.directory = directory
        self._bans = bans

    def banned(self, address: Address) -> bool:
        """Tell whether `address` or its network is banned at present."""
        network = addresses.network(address)
        return any(
            addresses.network(addresses.parse(ban["unban"])) == network for ban in self.current()
        )

    def current(self) -> list[dict[str, Any]]:
        """Return the bans in force."""
        return current(self._bans)

    async def lift(self, address: Address) -> bool:
        """Have the ban of `address` lifted; tell whether there is none any more.

        OSError when nobody can be asked to.
        """
        if not self._bans.exists():  # nothing bans on this box
            return True
        path = self.request(address)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while path.exists():  # noqa: ASYNC110 - the helper is another process
                    await asyncio.sleep(_POLL)
        return not self.banned(address)

    def request(self, address: Address) -> Path:
        """Leave the wish to lift the ban of `address`; OSError when that is not possible."""
        if len(os.listdir(self.directory)) >= _MAX_WAITING:  # noqa: PTH208 - only counted
            raise OSError(None, "too many wait already")
        path = self.directory / address.packed.hex()
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        return path

    def take(self) -> Iterator[Address]:
        """Return the addresses asked for, one by one; each is gone when the next is asked for.

        The names alone speak; nothing is read from a directory that not only root writes to.
        """
        try:
            names = sorted(os.listdir(self.directory))  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return
        for name in names:
            try:
                with contextlib.suppress(ValueError):
                    yield ipaddress.ip_address(bytes.fromhex(name))
            finally:
                _remove(self.directory / name)


def _remove(path: Path) -> None:
    """Remove whatever it is: what stays would have the helper started again and again."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(path, ignore_errors=True)


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
