"""Files of the user for the browser, above all `~/downloads`.

Agents write what they like into it, so nothing of it ever runs on the box's origin and no
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
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from agent_box.visible import visible_line
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
_SHOWN = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
# The last two are those of a socket and a device, opened.
_ABSENT = (
    *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.ENXIO, errno.ENODEV),
)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
            inner = os.open(part, DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    except OSError as error:
        if error.errno in _ABSENT:
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
        # Neither pipes, sockets nor devices are so much as opened.
        known = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(known.st_mode):
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
    # What a browser shows of it must not read backwards.
    encoded = os.fsencode(visible_line(name) if _encodable(name) else name)
    plain = re.sub(rb"[^A-Za-z0-9._ -]", b"_", encoded).decode()
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(encoded, safe='')}"


def _encodable(name: str) -> bool:
    """Tell whether the bytes of a name are text."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _visible(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def missing() -> Refusal:
    """Return the answer for what does not exist, or may as well not."""
    return Refusal(HTTPStatus.NOT_FOUND, "not_found", "there is no such file")
