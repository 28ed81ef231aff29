"""`/U/api/partial-uploads`: uploads that go on after a broken connection, by the tus protocol.

The core of version 1.0.0 with its extensions `creation`, `termination` and `checksum`
(https://tus.io), so that any client of it can send files to the box. `Content-Location` of the
last answer names the file that it has become.
"""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response

from agent_box.errors import AgentBoxError
from agent_box.threads import to_the_end
from agent_box.web import answers
from agent_box.web.answers import Refusal
from agent_box.web.receiving import ALGORITHMS, Check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from agent_box.web.uploads import Progress, Uploads

VERSION = "1.0.0"
HEADER = "tus-resumable"
CONTENT = "application/offset+octet-stream"

_LONGEST = 14
"""Digits of a number of bytes."""


class Tus:
    """Answers the requests of the protocol for one user."""

    def __init__(self, user: str, uploads: Uploads) -> None:
        self._base = f"/{user}/api"
        self._uploads = uploads

    async def options(self, _: Request) -> Response:
        """Tell what the box understands."""
        more = {"tus-version": VERSION, "tus-extension": "creation,termination,checksum"}
        more["tus-checksum-algorithm"] = ",".join(ALGORITHMS)
        return _answer(HTTPStatus.NO_CONTENT, more)

    async def create(self, request: Request) -> Response:
        """Begin an upload."""
        size = _bytes(request, "upload-length")
        name = _metadata(request.headers.get("upload-metadata", "")).get("filename")
        if name is None:
            raise _usage("Upload-Metadata must tell the filename")
        partial = await to_the_end(self._uploads.create, name, size)
        more = {"location": f"{self._base}/partial-uploads/{partial.id}"}
        if size == 0:
            done = await self._uploads.append(partial.id, 0, request.stream().__aiter__())
            more |= self._told(done)
        return _answer(HTTPStatus.CREATED, more)

    async def progress(self, request: Request) -> Response:
        """Tell how far an upload has come."""
        found = await self._uploads.progress(request.path_params["id"])
        return _answer(HTTPStatus.OK, {"upload-length": str(found.size), **self._told(found)})

    async def append(self, request: Request) -> Response:
        """Take a part of an upload."""
        length = request.headers.get("content-length")
        done = await self._uploads.append(
            request.path_params["id"],
            _bytes(request, "upload-offset"),
            request.stream().__aiter__(),
            None if length is None else int(length),
            Check.of_part(request.headers.get("upload-checksum")),
        )
        return _answer(HTTPStatus.NO_CONTENT, self._told(done))

    async def discard(self, request: Request) -> Response:
        """Give up an upload."""
        await self._uploads.discard(request.path_params["id"])
        return _answer(HTTPStatus.NO_CONTENT, {})

    def _told(self, found: Progress) -> dict[str, str]:
        told = {"upload-offset": str(found.offset)}
        if found.name is not None:
            told["content-location"] = f"{self._base}/uploads/{quote(found.name)}"
        return told


def speaking(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return `endpoint` for clients of this version alone, its refusals in the protocol's terms."""

    async def wrapped(request: Request) -> Response:
        if request.method != "OPTIONS" and request.headers.get(HEADER) != VERSION:
            return _answer(HTTPStatus.PRECONDITION_FAILED, {"tus-version": VERSION})
        try:
            return await endpoint(request)
        except AgentBoxError as error:
            answer = answers.refusal(error)
            answer.headers[HEADER] = VERSION
            return answer

    return wrapped


def _answer(status: HTTPStatus, more: dict[str, str]) -> Response:
    headers = {**answers.ALWAYS, HEADER: VERSION, "cache-control": "no-store", **more}
    return Response(status_code=status, headers=headers)


def _bytes(request: Request, header: str) -> int:
    value = request.headers.get(header, "")
    if not (value.isascii() and value.isdigit() and len(value) <= _LONGEST):
        raise _usage(f"{header} must be a number of bytes")
    return int(value)


def _metadata(header: str) -> dict[str, str]:
    found = {}
    for pair in header.split(","):
        key, _, value = pair.strip().partition(" ")
        try:
            found[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise _usage("Upload-Metadata is not base64 of UTF-8") from None
    return found


def _usage(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "usage", message)
