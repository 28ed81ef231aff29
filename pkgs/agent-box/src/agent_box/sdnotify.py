"""The service manager's notification protocol, as far as we use it."""

from __future__ import annotations

import os
import socket


def notify(message: str) -> bool:
    """Send `message` to the service manager; return False when there is none to tell."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.connect(address)
            sock.sendall(message.encode())
        except OSError:
            return False
    return True


def watchdog_interval() -> float | None:
    """Return the seconds between two signs of life, or None when nobody watches."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or os.environ.get("WATCHDOG_PID") not in (None, "", str(os.getpid())):
        return None
    return int(usec) / 1e6 / 2
