"""The routes of files: `/U/downloads/` and the uploads of the API."""

from __future__ import annotations

import asyncio
import os
import time
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from starlette.responses import RedirectResponse

from agent_box.web import answers, assets, files
from agent_box.web.assets import Markup

if TYPE_CHECKING:
    from typing import Any

    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.config import User
    from agent_box.web.uploads import Uploads

_VIEWABLE = frozenset(
    (
        *("png", "jpg", "jpeg", "gif", "webp", "txt", "md", "log", "json", "jsonl", "csv", "py"),
        *("js", "ts", "sh", "nix", "toml", "yaml", "yml", "diff", "patch", "rs", "go", "c", "h"),
    )
)


class Transfer:
    """Serves one user's files."""

    def __init__(self, user: User, host: str, uploads: Uploads) -> None:
        self._user = user
        self._host = host
        self._uploads = uploads

    async def downloads(self, request: Request) -> Response:
        """Answer with an index of `~/downloads`, or with a file of it."""
        parts = _parts(request, 2)
        if parts[-1] != "":
            try:
                return await asyncio.to_thread(
                    files.serve, request, self._user.home, ["downloads", *parts]
                )
            except IsADirectoryError:
                raise files.missing() from None
            except answers.Refusal as error:
                if error.status == HTTPStatus.NOT_FOUND and await self._is_directory(parts):
                    return RedirectResponse(request.url.path + "/", HTTPStatus.TEMPORARY_REDIRECT)
                raise
        inner = parts[:-1]
        try:
            found = await asyncio.to_thread(files.entries, self._user.home, ["downloads", *inner])
        except answers.Refusal as error:
            if inner or error.status != HTTPStatus.NOT_FOUND:
                raise
            found = []
        page = self._index(inner, found)
        headers = {"content-security-policy": answers.POLICY}
        return answers.answer(HTTPStatus.OK, page, "text/html; charset=utf-8", headers)

    async def downloads_list(self, _: Request) -> Response:
        """List the top of `~/downloads` as JSON."""
        try:
            found = await asyncio.to_thread(files.entries, self._user.home, ["downloads"])
        except answers.Refusal:
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
        stored = await self._uploads.take(parts[0], int(length), stream)
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

    def _index(self, inner: list[str], found: list[dict[str, Any]]) -> bytes:
        rows = Markup("".join(_row(item) for item in found))
        shown = "/".join(os.fsencode(part).decode("utf-8", "replace") for part in inner)
        user = self._user.name
        up = Markup('<p><a href="../">Up one directory</a></p>') if inner else Markup("")
        empty = Markup(
            '<p class="empty">Nothing here yet. What an agent puts into <code>~/downloads</code>'
            " appears on this page.</p>"
        )
        body = assets.fill(
            "downloads.html",
            user=user,
            place=f"~/downloads/{shown}" if shown else "~/downloads",
            up=up,
            table=assets.fill("table.html", rows=rows) if found else empty,
            icon=Markup(f"/{user}/assets/{assets.version()}/icon.svg"),
        )
        return assets.page(user, self._host, "Downloads", "downloads.js", body)


def _row(item: dict[str, Any]) -> Markup:
    slash = "/" if item["directory"] else ""
    at = item["modified"]
    view = ""
    if not item["directory"] and item["name"].rpartition(".")[2].lower() in _VIEWABLE:
        view = f'<a href="{item["path"]}?view" aria-label="View %s">View</a>'
    name = assets.escape(item["name"] + slash)
    return assets.fill(
        "row.html",
        path=Markup(f"./{item['path']}{slash}"),
        name=name,
        size=human(item["size"]) if item["size"] is not None else "",
        stamp=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at)),
        view=Markup(view.replace("%s", name)),
    )


def human(size: int) -> str:
    """Return `size` bytes in the unit that reads best."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _parts(request: Request, skip: int) -> list[str]:
    """Return the segments of the path behind the first `skip`, as the file system names them."""
    raw: bytes = request.scope["raw_path"]
    parts = raw.partition(b"?")[0].split(b"/")[1 + skip :]
    return [os.fsdecode(unquote_to_bytes(part)) for part in parts]
