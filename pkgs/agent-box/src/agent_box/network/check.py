"""Tries, from inside the network of a user, what must be refused there."""

from __future__ import annotations

import ctypes
import os
import socket
from typing import TYPE_CHECKING

from agent_box.errors import InternalError
from agent_box.network import kernel

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.network.addresses import Place

_CLONE_NEWNET = 0x40000000
_TIMEOUT = 2.0


def verify(place: Place, gateway: str) -> None:
    """Raise `InternalError` unless the namespace is the user's own and the machine is closed to it.

    The rules are tried and not only read: a listener at the machine's own address must not
    answer, while the interface as such works.
    """
    path = kernel.NAMESPACES / place.namespace
    remedy = "Look at: systemctl status agent-box-network; nft list table inet agent-box-network"
    if not kernel.is_namespace(path):
        raise InternalError(f"{path} is no network of its own for {place.user}. {remedy}")
    kernel.run(["nft", "list", "chain", "inet", "agent-box-network", "from-user"])
    with socket.create_server((gateway, 0)) as listener:
        port = listener.getsockname()[1]
        if _connects(path, gateway, port):
            raise InternalError(
                f"{place.user} reaches ports of this machine, which its network must not. {remedy}"
            )


def _connects(namespace: Path, address: str, port: int) -> bool:
    """Try a connection from inside a namespace, in a process of its own."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            with namespace.open("rb") as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
                    os._exit(status)
            with socket.create_connection((address, port), timeout=_TIMEOUT):
                status = 0
        except OSError:
            status = 1
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, 1):
        raise InternalError(f"{namespace} cannot be entered to try it")
    return status == 0
