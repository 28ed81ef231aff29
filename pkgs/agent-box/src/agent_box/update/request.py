"""Asking for an update, as a user who may do so: by connecting to a socket that starts it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box.errors import ConflictError, InternalError, NotFoundError

if TYPE_CHECKING:
    from agent_box.config import Box

SOCKETS = Path("/run/agent-box-update")
"""A socket per user who may start an update; connecting starts it."""

PATIENCE = 10.0
"""Seconds for which systemd may be busy."""


def socket_of(user: str) -> Path:
    """Return the socket with which `user` starts an update."""
    return SOCKETS / f"{user}.sock"


def start(box: Box, user: str) -> None:
    """Ask for an update. What is asked while one runs is the same one."""
    if box.update is None:
        raise NotFoundError("this box is not updated from inside: ask whoever administers it")
    if user not in box.update.users:
        raise ConflictError(
            f"{user} may not update this box: whoever administers it can allow it with "
            f"services.agent-box.users.{user}.mayUpdate"
        )
    path = socket_of(user)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.settimeout(PATIENCE)
            client.connect(str(path))
        except OSError as error:
            raise InternalError(
                f"{path} cannot be used ({error.strerror or error}): look whether "
                f"agent-box-update-{user}.socket is active, and into `journalctl -u "
                "agent-box-update`"
            ) from None
