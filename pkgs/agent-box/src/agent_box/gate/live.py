"""`live/<user>/<login id>`: a file for each login, there as long as the login lives.

A terminal watches the file of the login that opened it and closes when it goes. A login counts for
the user below whose name its file is and for nobody else. Nobody but root can list the directories
and the ids cannot be guessed, so the files tell strangers nothing.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_MODE = 0o711


class Live:
    """The files of the logins that live."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        _enterable(directory)

    def add(self, user: str, login_id: str) -> None:
        """Tell that the login of `user` lives. OSError when the file cannot be made."""
        _enterable(self.directory / user)
        path = self.directory / user / login_id
        # Readable, because a watch needs that; empty, because there is nothing to say.
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
        try:
            os.fchmod(descriptor, 0o444)
        finally:
            os.close(descriptor)

    def remove(self, ids: Iterable[str]) -> None:
        """Tell that the logins have ended: their terminals close."""
        # An id is of one user only, so that whose it is need not be known here.
        gone = set(ids)
        if gone:
            self._remove(pair for pair in self._found() if pair[1] in gone)

    def match(self, logins: Iterable[tuple[str, str]]) -> None:
        """Make the files those of exactly these logins, each user and id, after a restart."""
        wanted = set(logins)
        there = set(self._found())
        for user, login_id in wanted - there:
            self.add(user, login_id)
        # Last, so that what a version without directories of users left has its successor.
        self._remove(there - wanted)

    def _found(self) -> Iterator[tuple[str, str]]:
        """Return user and id of every file; a file of no user has the user ""."""
        for entry in os.scandir(self.directory):
            if entry.is_dir(follow_symlinks=False):
                yield from ((entry.name, name) for name in os.listdir(entry.path))  # noqa: PTH208
            else:
                yield "", entry.name

    def _remove(self, pairs: Iterable[tuple[str, str]]) -> None:
        for user, login_id in list(pairs):
            with contextlib.suppress(FileNotFoundError):
                (self.directory / user / login_id).unlink()


def _enterable(directory: Path) -> None:
    """Have a directory that users can enter and not list."""
    directory.mkdir(mode=_MODE, parents=True, exist_ok=True)
    directory.chmod(_MODE)
