"""Handing the user's list over to the helper of root, which looks into no home by itself."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box.errors import UsageError
from agent_box.sites import model

if TYPE_CHECKING:
    from agent_box.config import User

FOLDER = Path("/run/agent-box-site-lists")
"""A socket for each user, `<user>.sock`, that nobody else may connect to."""

LIST, PROBLEM = b"list\n", b"problem\n"
"""What a message begins with: the bytes of the file, or why it cannot be read."""

_TIMEOUT = 5.0


def send(user: User, message: bytes) -> bool:
    """Hand a message over; tell whether anybody takes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(_TIMEOUT)
        try:
            connection.connect(str(FOLDER / f"{user.name}.sock"))
            connection.sendall(message)
        except OSError:
            return False
    return True


def message_of(user: User) -> bytes:
    """Return what there is to say of the user's list as it is."""
    try:
        return LIST + bounded(user.sites_path)
    except FileNotFoundError:
        return LIST
    except UsageError as error:
        return PROBLEM + str(error).encode()
    except OSError as error:
        return PROBLEM + f"cannot read the file ({error.strerror})".encode()


def bounded(path: Path) -> bytes:
    """Return the content of a regular file, at most a byte more than is allowed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError("it is no regular file")
        return file.read(model.MOST_BYTES + 1)
