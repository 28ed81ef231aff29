"""`known/<first part of a cookie>`: how the edge tells who is signed in from strangers.

It looks for the file, and asks about the one kind at a socket of their own, so that they wait for
no stranger. A name says nothing about whether a request may pass: that is judged at either socket.
Nobody else can list the directory, and such a part cannot be guessed: it is 96 random bits, and 162
are left.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

log = logging.getLogger(__name__)

PART = 16
"""Characters of a cookie that its file is named by (modules/web/caddyfile/site.nix)."""


class Known:
    """The files of cookies that were right; each says which login it is of."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        directory.chmod(0o711)
        self._names: dict[str, str] = {}
        """By login."""
        for path in directory.iterdir():
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self._names[path.read_text("ascii")] = path.name

    def add(self, token: str, login_id: str) -> None:
        """Tell the edge the cookie of a login. Without that it is only slower."""
        if login_id in self._names:
            return
        path = self.directory / token[:PART]
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o444)
            try:
                os.fchmod(descriptor, 0o444)  # the edge opens what it looks for
                os.write(descriptor, login_id.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("cannot tell the edge who is signed in: %s", error.strerror)
        self._names[login_id] = path.name

    def match(self, ids: Iterable[str]) -> None:
        """Forget all but the logins `ids`."""
        for login_id in self._names.keys() - set(ids):
            name = self._names.pop(login_id)
            with contextlib.suppress(OSError):
                (self.directory / name).unlink()
