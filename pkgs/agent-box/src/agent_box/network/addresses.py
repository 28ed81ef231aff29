"""Which addresses and which interface belong to a user. Both follow from the uid."""

from __future__ import annotations

import ipaddress
import pwd
from dataclasses import dataclass

from agent_box.errors import NotFoundError, UsageError

GATEWAY6 = "fe80::1"
"""The machine's end of every pair of interfaces, over IPv6."""

_FIRST = 2
"""The first address of the range is the network's, the second the machine's own."""


@dataclass(frozen=True)
class Place:
    """Where a user is found in the network of the machine."""

    user: str
    uid: int
    address: str
    """IPv4 address inside, without a length."""
    address6: str
    group: int = 0
    """Group of the interface, by which the packet filter knows exceptions."""

    @property
    def namespace(self) -> str:
        """Name of the network namespace, as `ip netns` knows it."""
        return f"agent-box-{self.user}"

    @property
    def interface(self) -> str:
        """The machine's end of the pair; the kernel takes 15 characters."""
        return f"ab-{self.uid}"


def host_address(addresses: str) -> str:
    """Return the machine's own address in the range, the same for all users."""
    return str(ipaddress.IPv4Network(addresses)[1])


def place_of(user: str, addresses: str, addresses6: str, group: int = 0) -> Place:
    """Return the place of `user` in these ranges (CIDR).

    Raises `NotFoundError` where there is no such account, and `UsageError` where its uid is too
    large for the range.
    """
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise NotFoundError(f"there is no account {user} on this machine") from None
    v4, v6 = ipaddress.IPv4Network(addresses), ipaddress.IPv6Network(addresses6)
    if uid + _FIRST >= v4.num_addresses - 1:
        raise UsageError(
            f"the uid of {user}, {uid}, has no address in {addresses}: "
            "give the account a smaller uid, or set network.private = false for it"
        )
    return Place(user, uid, str(v4[uid + _FIRST]), str(v6[uid + _FIRST]), group)
