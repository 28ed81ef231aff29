"""Dialing a socket in a directory that somebody else controls, and knowing who answers.

Whoever owns a directory can put a link to another's socket there, or leave the socket of a process
that is not their own. So the socket is opened itself, no link is followed, and both its owner and
the process behind it must be the owner of the directory.
"""

from __future__ import annotations

import os
import socket
import stat
import struct

_CREDENTIALS = struct.Struct("3i")


class StrangerError(PermissionError):
    """What is there, or who answers there, is not the directory's owner."""


def process_of(connection: socket.socket) -> tuple[int, int]:
    """Return pid and uid of the process that listens at the other end, or connected from there."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return pid, uid


def uid_of(connection: socket.socket) -> int:
    """Return the user of that process."""
    return process_of(connection)[1]


def dial(connection: socket.socket, directory: str, name: str) -> None:
    """Connect to the socket `name` of the owner of `directory`; OSError, StrangerError among them.

    What leads to the directory is trusted, the directory is not.
    """
    path = os.path.join(directory, name)  # noqa: PTH118 - pathlib is slow to import
    owner = os.stat(directory).st_uid  # noqa: PTH116 - as above
    if owner == os.geteuid():
        connection.connect(path)
    else:
        owner = _dial_stranger(connection, directory, name)
    if uid_of(connection) != owner:
        raise StrangerError(None, f"a process of another user listens on {path}")


def _dial_stranger(connection: socket.socket, directory: str, name: str) -> int:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(directory, flags | os.O_DIRECTORY)
    try:
        found = os.open(name, flags, dir_fd=folder)
        try:
            owner = os.fstat(folder).st_uid
            status = os.fstat(found)
            if not stat.S_ISSOCK(status.st_mode) or status.st_uid != owner:
                raise StrangerError(None, f"{name} in {directory} is no socket of its owner")
            connection.connect(f"/proc/self/fd/{found}")
            return owner
        finally:
            os.close(found)
    finally:
        os.close(folder)
