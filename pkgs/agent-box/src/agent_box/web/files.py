"""Files to and from the box: `~/downloads` for the browser, `~/uploads` from it.

Agents write what they like into the one, so nothing of it ever runs on the box's origin and no
symbolic link is followed. Directories are opened one by one from the home, which leaves no moment
between looking and opening.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import stat
import time
import unicodedata
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from agent_box.web import answers
from agent_box.web.answers import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from io import FileIO
    from pathlib import Path

    from starlette.requests import Request

CHUNK = 256 * 1024
MAX_ENTRIES = 2000
MAX_DEPTH = 32
MAX_NAME = 200
"""Bytes of the name of an upload."""

QUOTA = 20 << 30
"""Bytes that all uploads together may have."""

SPARE = 512 << 20
"""Bytes that an upload leaves free on the disk."""

STALL = 60.0
"""Seconds without a byte after which an upload is given up."""

ABANDONED = 3600.0
"""Seconds after which the rest of an interrupted upload is removed."""

_PARTIAL = ".part-upload"
_SHOWN = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def opened(home: Path, parts: list[str]) -> Iterator[int]:
    """Open the directory `parts` below the home, no symbolic link followed below it.

    Refusal (404) when there is none, or one of the parts is hidden.
    """
    if len(parts) > MAX_DEPTH or any(not _visible(part) for part in parts):
        raise missing()
    descriptor = -1
    try:
        descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in parts:
            inner = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            raise missing() from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise Refusal(HTTPStatus.FORBIDDEN, "denied", "this cannot be read") from error
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def entries(home: Path, parts: list[str]) -> list[dict[str, Any]]:
    """List files and directories, newest first; what is neither, or hidden, is left out."""
    found: list[dict[str, Any]] = []
    with opened(home, parts) as descriptor:
        for name in os.listdir(descriptor):  # noqa: PTH208 - of a descriptor
            if not _visible(name):
                continue
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                directory = stat.S_ISDIR(status.st_mode)
                if directory or stat.S_ISREG(status.st_mode):
                    found.append(
                        {
                            "name": os.fsencode(name).decode("utf-8", "replace"),
                            "path": quote(os.fsencode(name)),
                            "directory": directory,
                            "size": None if directory else status.st_size,
                            "modified": status.st_mtime,
                        }
                    )
    found.sort(key=lambda item: (-item["modified"], item["name"]))
    return found[:MAX_ENTRIES]


def remove(home: Path, parts: list[str]) -> None:
    """Remove one file; Refusal (404) when there is none."""
    if not parts or not _visible(parts[-1]):
        raise missing()
    with opened(home, parts[:-1]) as descriptor:
        if not stat.S_ISREG(os.stat(parts[-1], dir_fd=descriptor, follow_symlinks=False).st_mode):
            raise missing()
        os.unlink(parts[-1], dir_fd=descriptor)


def serve(request: Request, home: Path, parts: list[str]) -> Response:
    """Answer with a file as an attachment, or with `?view` as a picture or plain text.

    Understands one byte range, so that a broken download goes on where it ended.
    """
    with opened(home, parts[:-1]) as directory:
        if not _visible(parts[-1]):
            raise missing()
        descriptor = os.open(parts[-1], _READ, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return attachment(request, descriptor, status, parts[-1])
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise missing()


def attachment(request: Request, descriptor: int, status: os.stat_result, name: str) -> Response:
    """Answer with the open file `descriptor`, which the answer closes."""
    size = status.st_size
    tag = f'"{status.st_mtime_ns:x}-{size:x}"'
    shown = "view" in request.query_params
    kind = _SHOWN.get(name.rpartition(".")[2].lower(), "text/plain; charset=utf-8")
    headers = {
        **answers.ALWAYS,
        "content-security-policy": answers.SANDBOX,
        "cross-origin-resource-policy": "same-origin",
        "content-disposition": _disposition("inline" if shown else "attachment", name),
        "content-type": kind if shown else "application/octet-stream",
        "cache-control": "private, no-cache",
        "accept-ranges": "bytes",
        "etag": tag,
        "last-modified": formatdate(status.st_mtime, usegmt=True),
    }
    if request.headers.get("if-none-match") == tag:
        os.close(descriptor)
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    start, end, code = 0, size, HTTPStatus.OK
    wanted = _RANGE.fullmatch(request.headers.get("range", ""))
    if wanted and any(wanted.groups()) and request.headers.get("if-range", tag) == tag:
        start, end = _span(wanted, size)
        if start >= end:
            os.close(descriptor)
            headers["content-range"] = f"bytes */{size}"
            return Response(status_code=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers=headers)
        code = HTTPStatus.PARTIAL_CONTENT
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    headers["content-length"] = str(end - start)
    if request.method == "HEAD":
        os.close(descriptor)
        return Response(status_code=code, headers=headers)
    # An object, so that it is closed even when the client goes before the first byte.
    file = os.fdopen(descriptor, "rb", buffering=0)
    return StreamingResponse(_send(file, start, end), code, headers=headers)


async def _send(file: FileIO, start: int, end: int) -> AsyncIterator[bytes]:
    descriptor = file.fileno()
    try:
        while start < end:
            part = await asyncio.to_thread(os.pread, descriptor, min(CHUNK, end - start), start)
            if not part:
                # It was cut short while we read: a broken connection says so, a short body not.
                raise ConnectionResetError
            start += len(part)
            yield part
    finally:
        file.close()


def _span(wanted: re.Match[str], size: int) -> tuple[int, int]:
    first, last = (group[:20] for group in wanted.groups())
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size) if last else size


def _disposition(kind: str, name: str) -> str:
    encoded = os.fsencode(name)
    plain = re.sub(rb"[^A-Za-z0-9._ -]", b"_", encoded).decode()
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(encoded, safe='')}"


def _visible(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def missing() -> Refusal:
    """Return the answer for what does not exist, or may as well not."""
    return Refusal(HTTPStatus.NOT_FOUND, "not_found", "there is no such file")


# Uploads -------------------------------------------------------------------


class Uploads:
    """Takes files into `~/uploads`, whole or not at all."""

    def __init__(self, home: Path, quota: int = QUOTA, spare: int = SPARE) -> None:
        self._home = home
        self._directory = home / "uploads"
        self._quota = quota
        self._spare = spare
        self._under_way = 0
        """Bytes that uploads in progress have written, beyond what the directory tells."""

    def listing(self) -> dict[str, Any]:
        """Return the uploads, and how much more fits."""
        try:
            found = entries(self._home, ["uploads"])
        except Refusal:
            found = []
        return {"entries": found, "used": self._used(), "quota": self._quota}

    async def take(self, request: Request, name: str) -> dict[str, Any]:
        """Store the body of `request` under `name`, or under a similar one if that is taken."""
        name = clean_name(name)
        announced = int(request.headers.get("content-length", "0"))
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._directory, _DIRECTORY)
        except OSError as error:
            raise Refusal(
                HTTPStatus.CONFLICT, "conflict", f"~/uploads cannot be used: {error.strerror}"
            ) from error
        partial = f".{os.urandom(6).hex()}{_PARTIAL}"
        try:
            left = await asyncio.to_thread(self._room, descriptor)
            if announced > left:
                raise self._full(left)
            size = await self._receive(request, descriptor, partial, left)
            if announced and size != announced:
                raise Refusal(HTTPStatus.BAD_REQUEST, "usage", "the upload is not complete")
            final = _place(descriptor, partial, name)
            return {"name": final, "path": f"~/uploads/{final}", "size": size}
        except OSError as error:
            raise Refusal(
                HTTPStatus.INSUFFICIENT_STORAGE, "full", f"cannot store {name}: {error.strerror}"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=descriptor)
            os.close(descriptor)

    async def _receive(self, request: Request, directory: int, partial: str, left: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(partial, flags, 0o600, dir_fd=directory)
        size, pending = 0, bytearray()
        try:
            stream = request.stream().__aiter__()
            while True:
                try:
                    async with asyncio.timeout(STALL):
                        chunk = await anext(stream)
                except StopAsyncIteration:
                    break
                except (TimeoutError, ClientDisconnect):
                    raise Refusal(
                        HTTPStatus.REQUEST_TIMEOUT, "stalled", "the upload stopped half-way"
                    ) from None
                size += len(chunk)
                self._under_way += len(chunk)
                if size > left or self._under_way > left:
                    raise self._full(left)
                pending += chunk
                if len(pending) >= CHUNK:
                    await asyncio.to_thread(_write, target, bytes(pending))
                    pending.clear()
            await asyncio.to_thread(_write, target, bytes(pending))
            await asyncio.to_thread(os.fsync, target)
        finally:
            self._under_way -= size
            os.close(target)
        return size

    def _room(self, directory: int) -> int:
        self._sweep(directory)
        usage = os.fstatvfs(directory)
        free = usage.f_bavail * usage.f_frsize - self._spare
        return max(min(self._quota - self._used(), free), 0)

    def _used(self) -> int:
        total = 0
        for root, _, names in os.walk(self._directory):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118
        return total

    def _sweep(self, directory: int) -> None:
        for name in os.listdir(directory):
            if name.startswith(".") and name.endswith(_PARTIAL):
                with contextlib.suppress(OSError):
                    changed = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
                    if time.time() - changed > ABANDONED:
                        os.unlink(name, dir_fd=directory)

    def _full(self, left: int) -> Refusal:
        return Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "full",
            f"the file does not fit: {left / (1 << 20):.0f} MiB are left for uploads;"
            " remove some from ~/uploads",
        )


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


def _place(directory: int, partial: str, name: str) -> str:
    """Give the complete file its name without replacing another; return the name."""
    stem, dot, kind = name.rpartition(".")
    if not stem:
        stem, dot, kind = name, "", ""
    for count in range(1, 1000):
        candidate = name if count == 1 else f"{stem}-{count}{dot}{kind}"
        try:
            os.link(partial, candidate, src_dir_fd=directory, dst_dir_fd=directory)
        except FileExistsError:
            continue
        os.fsync(directory)
        return candidate
    raise Refusal(HTTPStatus.CONFLICT, "conflict", f"too many files are called {name} already")


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
