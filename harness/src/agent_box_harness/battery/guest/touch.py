"""Tries, as whoever runs it, to connect to sockets and to put something else in their place.

What it could move it moves back at once.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import job, tell
else:  # beside it, inside the guest
    from telling import job, tell


def connect(path: str) -> str:
    """Return how connecting went: the type of the socket, or the error's name."""
    said = ""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(2)
            try:
                client.connect(path)
            except OSError as error:
                if error.errno != errno.EPROTOTYPE:
                    said = errno.errorcode.get(error.errno or 0, str(error))
                continue
            return "connected"
    return said


def replace(path: str) -> str:
    """Say which part of a path can be moved away; empty: none."""
    parts = [Path(path), *Path(path).parents][:-1]
    for part in parts:
        aside = f"{part}.battery"
        try:
            part.rename(aside)
        except OSError:
            continue
        Path(aside).rename(part)
        return f"{part} could be renamed"
    for part in parts:
        planted = part.parent / ".battery"
        try:
            planted.symlink_to("/nowhere")
        except OSError:
            continue
        planted.unlink()
        return f"a link could be made in {part.parent}"
    return ""


def main() -> None:
    """Try each path of the job."""
    paths: dict[str, list[str]] = job()
    results: dict[str, Any] = {
        "connect": {path: connect(path) for path in paths.get("connect", [])},
        "replace": {path: replace(path) for path in paths.get("replace", [])},
    }
    tell(results)


if __name__ == "__main__":
    main()
