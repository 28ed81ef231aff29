"""Locks between processes and whole-file writes that survive a power cut.

The lock lives in a file of its own beside the data. A rename gives the data file a new inode, so
that two writers could each hold a lock on a different one and both go ahead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box.errors import ConflictError, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05
_TEMPORARY = ".agent-box-tmp"


def lock_path(path: Path) -> Path:
    """Return the lock file that guards `path` (itself when it already is one)."""
    return path if path.name.endswith(".lock") else path.with_name(f"{path.name}.lock")


@contextlib.contextmanager
def locked(path: Path, timeout: float = 10.0) -> Iterator[None]:
    """Hold the exclusive lock that guards `path`, waiting up to `timeout` seconds for it.

    `path` may be the data file or its lock file. The lock is not re-entrant: taking it twice in
    one process waits for itself. The descriptor is closed on exec, so no child inherits the lock.

    Raises ConflictError when somebody else keeps the lock (nothing ever goes ahead without it)
    and InternalError when the lock file cannot be used.
    """
    lock = lock_path(path)
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise InternalError(
            f"cannot open the lock {lock}: {error.strerror}; make sure that you own"
            f" {lock.parent} and that the disk is neither full nor read-only"
        ) from error
    try:
        _acquire(descriptor, lock, timeout)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, lock: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConflictError(
                    f"another process has kept {lock} locked for {timeout:g} s, so nothing was"
                    f" changed; try again, or find it with: fuser -v {lock}"
                ) from None
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        except OSError as error:
            raise InternalError(f"cannot lock {lock}: {error.strerror}") from error
        else:
            return


def atomic_write(path: Path, data: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace the content of `path` by `data`: readers see the old or the new, whole.

    On return the new content is on the disk, unless `durable` is off: then a power cut may undo
    the write. A symbolic link stays one, its target is replaced.
    On failure the old file is untouched and nothing is left behind; OSError tells why.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}{_TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            os.fchmod(descriptor, mode)
            _write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_directory(target.parent)


def secure(path: Path, below: Path) -> None:
    """Bring a file that another program wrote to the disk, with the directories up to `below`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for directory in path.parents:
        _sync_directory(directory)
        if directory == below or not directory.is_relative_to(below):
            break


def clear_leftovers(path: Path) -> None:
    """Remove what an `atomic_write` of `path` left when the power went; call it under the lock."""
    target = Path(os.path.realpath(path))
    prefix = f".{target.name}."
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(_TEMPORARY):
                Path(entry.path).unlink(missing_ok=True)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a directory; the rename itself has happened.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
