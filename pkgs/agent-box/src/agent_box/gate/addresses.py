"""Addresses of clients, as the edge reports them."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

UNKNOWN: Address = ipaddress.IPv6Address("::")
"""Stands for an address that the edge did not tell."""

_PREFIX = 64
"""Bits of an IPv6 address that one customer of a provider has in common."""


def parse(text: str) -> Address:
    """Return the address in an `X-Forwarded-For` header: the last one, which the edge wrote.

    Never raises: what is no address is `UNKNOWN`.
    """
    last = text.rpartition(",")[2].strip()
    try:
        # A zone ("%eth0") is of no meaning elsewhere, and is free text.
        address = ipaddress.ip_address(last.partition("%")[0])
    except ValueError:
        return UNKNOWN
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def network(address: Address) -> bytes:
    """Return what stands for the one who is behind `address`: the IPv4 address, the IPv6 /64."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed
    return address.packed[: _PREFIX // 8]


def bannable(address: Address) -> Address | ipaddress.IPv6Network:
    """Return whom to ban for what `address` does: itself, or its IPv6 /64."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return ipaddress.IPv6Network((address, _PREFIX), strict=False)
