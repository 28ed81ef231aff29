"""Sockets that systemd opened for this process."""

from __future__ import annotations

import os
import socket

FIRST_FD = 3
"""The first descriptor that systemd passes."""


def activated() -> dict[str, socket.socket]:
    """Return the sockets that systemd passed, by `FileDescriptorName=`, and forget the request.

    Two sockets of one name, or without one, are told apart by a counter: `name`, `name.1`.
    """
    meant = os.environ.pop("LISTEN_PID", "")
    count = os.environ.pop("LISTEN_FDS", "")
    names = os.environ.pop("LISTEN_FDNAMES", "")
    if meant != str(os.getpid()) or not count.isdigit():
        return {}
    found: dict[str, socket.socket] = {}
    given = names.split(":") if names else []
    for index in range(int(count)):
        os.set_inheritable(FIRST_FD + index, False)
        name = given[index] if index < len(given) and given[index] else "socket"
        key, number = name, 0
        while key in found:
            number += 1
            key = f"{name}.{number}"
        found[key] = socket.socket(fileno=FIRST_FD + index)
    return found
