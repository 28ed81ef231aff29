"""The routes of files: `/U/downloads/` and the uploads of the API."""

from __future__ import annotations

import asyncio
import os
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from starlette.responses import RedirectResponse

from agent_box.web import answers, files
from agent_box.web.receiving import Check

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.config import User
    from agent_box.web.uploads import Uploads


class Transfer:
    """Serves one user's files."""

    def __init__(self, user: User, uploads: Uploads) -> None:
        self._user = user
        self._uploads = uploads

    async def download(self, request: Request) -> Response:
        """Answer with a file of `~/downloads`."""
        parts = _parts(request, 2)
        try:
            return await asyncio.to_thread(
                files.serve, request, self._user.home, ["downloads", *parts]
            )
        except IsADirectoryError:
            raise files.missing() from None
        except answers.Refusal as error:
            if error.status == HTTPStatus.NOT_FOUND and await self._is_directory(parts):
                # The edge takes it as the word that a slash is missing, whatever it leads to.
                return RedirectResponse(request.url.path + "/", HTTPStatus.TEMPORARY_REDIRECT)
            raise

    async def downloads(self, request: Request) -> Response:
        """List `~/downloads`, or a directory in it whose path ends with a slash."""
        inner = _parts(request, 3)
        if inner and inner.pop() != "":
            raise files.missing()
        try:
            found = await asyncio.to_thread(files.entries, self._user.home, ["downloads", *inner])
        except answers.Refusal as error:
            if inner or error.status != HTTPStatus.NOT_FOUND:
                raise
            found = []
        return answers.data({"entries": found})

    async def remove_download(self, request: Request) -> Response:
        """Remove a file of `~/downloads`."""
        await asyncio.to_thread(files.remove, self._user.home, ["downloads", *_parts(request, 3)])
        return answers.data({})

    async def uploads(self, _: Request) -> Response:
        """List the uploads and what room is left."""
        return answers.data(await asyncio.to_thread(self._uploads.listing))

    async def upload(self, request: Request) -> Response:
        """Take a file in one request."""
        parts = _parts(request, 3)
        if len(parts) != 1:
            raise answers.Refusal(HTTPStatus.BAD_REQUEST, "usage", "a file has one name")
        length = request.headers.get("content-length")
        if length is None:
            text = "the request must say how long the file is (Content-Length)"
            raise answers.Refusal(HTTPStatus.LENGTH_REQUIRED, "usage", text)
        stream = request.stream().__aiter__()
        check = Check.of_whole(request.headers.get("repr-digest"))
        stored = await self._uploads.take(parts[0], int(length), stream, check)
        return answers.data(stored, HTTPStatus.CREATED)

    async def remove_upload(self, request: Request) -> Response:
        """Remove an upload."""
        await asyncio.to_thread(files.remove, self._user.home, ["uploads", *_parts(request, 3)])
        return answers.data({})

    async def _is_directory(self, parts: list[str]) -> bool:
        def look() -> bool:
            with files.opened(self._user.home, ["downloads", *parts]):
                return True

        try:
            return await asyncio.to_thread(look)
        except answers.Refusal:
            return False


def _parts(request: Request, skip: int) -> list[str]:
    """Return the segments of the path behind the first `skip`, as the file system names them."""
    raw: bytes = request.scope["raw_path"]
    parts = raw.partition(b"?")[0].split(b"/")[1 + skip :]
    return [os.fsdecode(unquote_to_bytes(part)) for part in parts]
