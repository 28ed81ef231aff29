"""`live/<login id>`: a file for each login, there as long as the login lives.

A terminal watches the file of the login that opened it and closes when it goes. Nobody but root
can list the directory and the ids cannot be guessed, so the files tell strangers nothing.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Live:
    """The files of the logins that live."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        directory.chmod(0o711)

    def add(self, login_id: str) -> None:
        """Tell that the login lives. OSError when the file cannot be made."""
        path = self.directory / login_id
        # Readable, because a watch needs that; empty, because there is nothing to say.
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
        try:
            os.fchmod(descriptor, 0o444)
        finally:
            os.close(descriptor)

    def remove(self, ids: Iterable[str]) -> None:
        """Tell that the logins have ended: their terminals close."""
        for login_id in ids:
            with contextlib.suppress(FileNotFoundError):
                (self.directory / login_id).unlink()

    def match(self, ids: Iterable[str]) -> None:
        """Make the files those of exactly the logins `ids`, after a restart."""
        wanted = set(ids)
        there = {entry.name for entry in os.scandir(self.directory)}
        self.remove(there - wanted)
        for login_id in wanted - there:
            self.add(login_id)
