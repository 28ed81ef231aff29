"""A working credential outlives an attempt to sign in again that comes to nothing.

CLIs differ in when they drop the old one; codex does it before it shows its first line. One that
does gets a directory of its own for the attempt, and what it stored there replaces the old file in
one step. For the others a copy is kept meanwhile and put back if the file is gone or useless.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from agent_box import locking

if TYPE_CHECKING:
    from pathlib import Path


class Kept:
    """The copy of a credential during one attempt."""

    def __init__(self, credential: Path, copy: Path) -> None:
        self._credential = credential
        self._copy = copy

    def keep(self) -> None:
        """Make the copy. One that an attempt left behind which was cut off comes back first."""
        self.restore_missing()
        self._copy.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            content = self._credential.read_bytes()
            self._copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            locking.atomic_write(self._copy, content)

    def restore_missing(self) -> None:
        """Put the copy back if the credential itself is gone."""
        if self._copy.exists() and not self._credential.exists():
            self.restore()

    def restore(self) -> None:
        """Put the copy back."""
        with contextlib.suppress(FileNotFoundError):
            content = self._copy.read_bytes()
            self._credential.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            locking.atomic_write(self._credential, content)

    def drop(self) -> None:
        """Forget the copy: the credential is what it should be."""
        self._copy.unlink(missing_ok=True)


def stage(directory: Path, settings: Path) -> None:
    """Make an empty directory for an attempt, with the user's settings in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
    if settings.exists():
        (directory / settings.name).symlink_to(settings)


def take_over(staged: Path, credential: Path) -> bool:
    """Replace the credential by the one that the attempt stored; False if it stored none."""
    try:
        content = staged.read_bytes()
    except OSError:
        return False
    if not content.strip():
        return False
    credential.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    locking.atomic_write(credential, content)
    return True


def clear(directory: Path) -> None:
    """Remove what an attempt left."""
    if os.path.lexists(directory):
        shutil.rmtree(directory, ignore_errors=True)
