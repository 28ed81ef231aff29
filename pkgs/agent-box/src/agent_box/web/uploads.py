"""Files from the browser: they arrive in `~/uploads` whole or not at all.

An upload that breaks off can go on where it ended, for a day. Until it is complete it is a hidden
file in the same directory, whose name tells everything about it: no other record can be lost or
contradict it. A complete file gets its name without replacing another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import time
import unicodedata
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from agent_box.threads import to_the_end
from agent_box.web import files
from agent_box.web.answers import Refusal
from agent_box.web.receiving import Turn, longer, receive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from agent_box.web.receiving import Check

MAX_NAME = 200
"""Bytes of the name of an upload."""

QUOTA = 20 << 30
"""Bytes that all uploads together may have, announced ones counted whole."""

SPARE = 512 << 20
"""Bytes that an upload leaves free on the disk."""

MOST_BEGUN = 200
"""Uploads that may be begun and not complete at a time."""

MOST_FILES = 20_000
"""Files that all uploads together may be: each request looks at all of them."""

ABANDONED = 86400.0
"""Seconds without a byte after which an upload cannot go on any more."""

_REMEMBERED = 256
"""Complete uploads whose end a client can still ask for: the answer may have been lost."""

_PARTIAL = re.compile(r"\.([0-9a-f]{24})\.(\d{1,14})\.(.+)\.part-upload", re.DOTALL)


@dataclass(frozen=True)
class Partial:
    """An upload that is not complete yet."""

    id: str
    size: int
    """Bytes that it will have."""
    name: str

    @property
    def file(self) -> str:
        """Name of the hidden file that holds what has arrived."""
        return f".{self.id}.{self.size}.{self.name}.part-upload"

    @classmethod
    def parse(cls, file: str) -> Partial | None:
        """Return the upload that a file of the directory belongs to, if any."""
        found = _PARTIAL.fullmatch(file)
        return cls(found[1], int(found[2]), found[3]) if found else None


@dataclass(frozen=True)
class Progress:
    """How far an upload has come."""

    offset: int
    size: int
    name: str | None = None
    """Name of the file in `~/uploads`, once it is complete."""


class Uploads:
    """Takes files into `~/uploads`."""

    def __init__(self, home: Path, quota: int = QUOTA, spare: int = SPARE) -> None:
        self._home = home
        self._directory = home / "uploads"
        self._quota = quota
        self._spare = spare
        self._turns: dict[str, Turn] = {}
        self._complete: dict[str, Progress] = {}

    def listing(self) -> dict[str, Any]:
        """Return the uploads, those that have stopped half-way, and how much more fits."""
        found: list[dict[str, Any]] = []
        partial: list[dict[str, Any]] = []
        used, room = 0, self._quota
        with contextlib.suppress(Refusal):
            found = files.entries(self._home, ["uploads"])
            with self._opened() as directory:
                self._sweep(directory)
                used = self._used()[0]
                room = self._room(directory, used)
                partial = [
                    {
                        "id": each.id,
                        "name": each.name,
                        "size": each.size,
                        "offset": offset,
                        "changed": changed,
                    }
                    for each, offset, changed in _partials(directory)
                ]
        return {
            "entries": found,
            "partial": partial,
            "used": used,
            "quota": self._quota,
            "room": room,
        }

    def create(self, name: str, size: int) -> Partial:
        """Begin an upload; Refusal when it does not fit or cannot be called so."""
        partial = Partial(os.urandom(12).hex(), size, clean_name(name))
        with self._opened(make=True) as directory:
            self._sweep(directory)
            if len(_partials(directory)) >= MOST_BEGUN:
                raise _too_many(
                    f"{MOST_BEGUN} uploads are begun and not complete; finish or discard some"
                )
            used, count = self._used()
            if count >= MOST_FILES:
                raise _too_many(f"there are {count} files in ~/uploads; remove some")
            left = self._room(directory, used)
            if size > left:
                raise _full(left)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(partial.file, flags, 0o600, dir_fd=directory))
        return partial

    async def progress(self, upload: str) -> Progress:
        """Tell how far an upload has come; a request that still brings bytes of it ends."""
        if upload in self._complete:
            return self._complete[upload]
        async with self._alone(upload):
            with self._opened() as directory:
                partial, offset = _find(directory, upload)
            return Progress(offset, partial.size)

    async def append(
        self,
        upload: str,
        offset: int,
        content: AsyncIterator[bytes],
        length: int | None = None,
        check: Check | None = None,
    ) -> Progress:
        """Add what `content` yields (`length` bytes if that is known) at `offset`.

        Whatever arrives is kept, also when the connection breaks; with a `check` all of it or
        nothing. Refusal (409) when the offset is not where the upload ended.
        """
        if upload in self._complete and self._complete[upload].size == offset:
            return self._complete[upload]
        async with self._alone(upload) as turn:
            with self._opened() as directory:
                partial, known = _find(directory, upload)
                if offset != known:
                    raise Refusal(
                        HTTPStatus.CONFLICT, "conflict", f"the upload has {known} bytes so far"
                    )
                if length is not None and offset + length > partial.size:
                    raise longer(partial.size)
                if partial.size - offset > (left := self._free(directory)):
                    raise _full(max(left, 0))
                flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                target = os.open(partial.file, flags, dir_fd=directory)
                try:
                    at = await receive(target, offset, partial.size, content, turn, check)
                finally:
                    os.close(target)
                if at < partial.size:
                    return Progress(at, partial.size)
                name = await to_the_end(_finish, directory, partial)
            while len(self._complete) >= _REMEMBERED:
                del self._complete[next(iter(self._complete))]
            self._complete[upload] = Progress(at, partial.size, name)
            return self._complete[upload]

    async def discard(self, upload: str) -> None:
        """Give up an upload and remove what has arrived of it."""
        async with self._alone(upload):
            with self._opened() as directory:
                os.unlink(_find(directory, upload)[0].file, dir_fd=directory)

    async def take(
        self, name: str, size: int, content: AsyncIterator[bytes], check: Check | None = None
    ) -> dict[str, Any]:
        """Store a file that comes in one request, whole or not at all."""
        partial = await to_the_end(self.create, name, size)
        done: Progress | None = None
        try:
            done = await self.append(partial.id, 0, content, size, check)
        finally:
            if done is None or done.name is None:
                with contextlib.suppress(OSError, Refusal), self._opened() as directory:
                    os.unlink(partial.file, dir_fd=directory)
        if done.name is None:
            raise Refusal(HTTPStatus.BAD_REQUEST, "usage", "the upload is not complete")
        return {"name": done.name, "path": f"~/uploads/{done.name}", "size": size}

    # Inside ----------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _alone(self, upload: str) -> AsyncIterator[Turn]:
        turn = self._turns.setdefault(upload, Turn())
        turn.waiting += 1
        if turn.pause is not None:
            turn.pause.reschedule(asyncio.get_running_loop().time())
        try:
            async with turn.lock:
                yield turn
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[upload]

    @contextlib.contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        try:
            if make:
                self._directory.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._directory, files.DIRECTORY)
        except FileNotFoundError:
            raise _gone() from None
        except OSError as error:
            raise Refusal(
                HTTPStatus.CONFLICT, "conflict", f"~/uploads cannot be used: {error.strerror}"
            ) from error
        try:
            yield descriptor
        except OSError as error:
            raise Refusal(
                HTTPStatus.INSUFFICIENT_STORAGE, "full", f"cannot store it: {error.strerror}"
            ) from error
        finally:
            os.close(descriptor)

    def _room(self, directory: int, used: int) -> int:
        return max(min(self._quota - used, self._free(directory)), 0)

    def _free(self, directory: int) -> int:
        usage = os.fstatvfs(directory)
        return usage.f_bavail * usage.f_frsize - self._spare

    def _used(self) -> tuple[int, int]:
        """Return the bytes of all uploads, and how many there are."""
        total = count = 0
        for root, _, names in os.walk(self._directory):
            for name in names:
                with contextlib.suppress(OSError):
                    size = os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118
                    partial = Partial.parse(name)
                    total += size if partial is None else max(size, partial.size)
                    count += 1
        return total, count

    def _sweep(self, directory: int) -> None:
        for partial, _, changed in _partials(directory):
            if time.time() - changed > ABANDONED and partial.id not in self._turns:
                with contextlib.suppress(OSError):
                    os.unlink(partial.file, dir_fd=directory)


def clean_name(name: str) -> str:
    """Return the name under which an upload called `name` is stored; Refusal when impossible."""
    name = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        encoded = b""
    if not encoded or len(encoded) > MAX_NAME or name.startswith(".") or not name.isprintable():
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "usage",
            f"a file cannot be called {name[:60]!r} here: use up to {MAX_NAME} bytes of printable"
            " characters, not starting with a dot",
        )
    return name


def _partials(directory: int) -> list[tuple[Partial, int, float]]:
    """Return the uploads that are not complete, the bytes of each, and when the last came."""
    found = []
    for name in os.listdir(directory):
        partial = Partial.parse(name)
        if partial is not None:
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue  # somebody put a pipe or the like there, which could hang us
                found.append((partial, status.st_size, status.st_mtime))
    return found


def _find(directory: int, upload: str) -> tuple[Partial, int]:
    for partial, offset, _ in _partials(directory):
        if partial.id == upload:
            return partial, offset
    raise _gone()


def _finish(directory: int, partial: Partial) -> str:
    """Give the complete file its name without replacing another; return the name."""
    name = partial.name
    stem, dot, kind = name.rpartition(".")
    if not stem:
        stem, dot, kind = name, "", ""
    for count in range(1, 1000):
        candidate = name if count == 1 else f"{stem}-{count}{dot}{kind}"
        try:
            os.link(partial.file, candidate, src_dir_fd=directory, dst_dir_fd=directory)
        except FileExistsError:
            continue
        os.unlink(partial.file, dir_fd=directory)
        os.fsync(directory)
        return candidate
    raise Refusal(HTTPStatus.CONFLICT, "conflict", f"too many files are called {name} already")


def _gone() -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "not_found", "there is no such upload")


def _too_many(message: str) -> Refusal:
    return Refusal(HTTPStatus.TOO_MANY_REQUESTS, "full", message)


def _full(left: int) -> Refusal:
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "full",
        f"the file does not fit: {left / (1 << 20):.0f} MiB are left for uploads;"
        " remove some from ~/uploads",
    )
