"""Files that change whole or not at all, and the lock that keeps two updaters apart."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness.pins.errors import ConflictError, PinError

if TYPE_CHECKING:
    from collections.abc import Iterator

UNFINISHED = ".update-pins-"
"""How the names of half-written files begin, after the name of the file and a dot."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the updater's lock: on the folder itself, so that nothing is left behind.

    The kernel gives it back when the process ends, however it ends. Raises ConflictError when
    another updater works there.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(
                f"another updater is at work in {folder}: wait until it has finished"
            ) from None
        yield
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    """Return what a pin's file holds."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PinError(f"{path} cannot be read ({error.strerror}): restore it from Git") from None


def remove_unfinished(path: Path) -> None:
    """Remove what an updater that was killed left beside `path`. Call it under the lock."""
    for stale in path.parent.glob(f".{path.name}{UNFINISHED}*"):
        stale.unlink(missing_ok=True)


def replace(path: Path, before: bytes, after: bytes) -> None:
    """Make `path` hold `after`, or raise and leave it holding `before`.

    Written beside it, forced to disk, renamed over it, read back. Raises ConflictError when
    somebody changed the file since `before` was read.
    """
    if read(path) != before:
        raise ConflictError(f"{path} was changed meanwhile: look at it, then run this again")
    try:
        _put(path, after)
        found = path.read_bytes()
    except OSError as error:
        put_back(path, before)
        reason = error.strerror or str(error)
        raise PinError(f"{path} cannot be written ({reason}): make room, check its owner") from None
    if found != after:
        put_back(path, before)
        raise PinError(f"{path} did not hold what was written: check the disk")


def _put(path: Path, content: bytes) -> None:
    folder = path.parent
    mode = stat.S_IMODE(path.stat().st_mode)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}{UNFINISHED}")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(folder)


def put_back(path: Path, before: bytes) -> None:
    """Make `path` hold `before` again, whatever it holds now."""
    try:
        if path.read_bytes() != before:
            _put(path, before)
    except OSError as error:
        raise PinError(
            f"{path} may hold something else now ({error.strerror}): run `git restore {path}`"
        ) from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
