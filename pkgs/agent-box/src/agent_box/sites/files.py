"""`agent-box-site-files`: the folders below a user's `~/sites`, served as that user.

The edge says which folder a request is for. Links that lead out of it are not followed, and names
that begin with a dot are not there, so that a repository's insides stay inside.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from agent_box import config, httpd
from agent_box.errors import AgentBoxError, UsageError
from agent_box.sites import model

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

IDLE = 60.0
"""Seconds without a request after which the service ends."""

HEADER = "x-agent-box-folder"


def application(home: Path) -> ASGIApp:
    """Return the service of the user whose home it is."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            files = StaticFiles(directory=_folder(home, Headers(scope=scope)), html=True)
            hidden = any(
                part.startswith(".") and part != ".well-known" for part in scope["path"].split("/")
            )
            await (PlainTextResponse("Not Found\n", 404) if hidden else files)(scope, receive, send)
        except HTTPException as error:
            text = PlainTextResponse(f"{error.detail}\n", error.status_code)
            await text(scope, receive, send)

    return Starlette(routes=[Mount("/", app=answer)])


def _folder(home: Path, headers: Headers) -> Path:
    root = Path(os.path.realpath(home / "sites"))
    try:
        relative = model.below_sites(headers.get(HEADER, ""), str(home))
        folder = Path(os.path.realpath(root / relative))
    except UsageError:
        raise HTTPException(404) from None
    if not folder.is_relative_to(root) or not folder.is_dir():
        raise HTTPException(404)
    return folder


def main() -> None:
    """Serve until nobody asks any more."""
    httpd.setup_logging()
    try:
        httpd.run(application(config.current_user(config.load()).home), IDLE)
    except AgentBoxError as error:
        print(f"agent-box-site-files: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
