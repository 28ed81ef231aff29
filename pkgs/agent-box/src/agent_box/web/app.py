"""The application: routes, errors, the stream of events.

It answers with data alone. Pages and scripts are files that the edge serves, so that no process of
a user has a say in what runs on the origin of the box.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from asyncinotify import Inotify, Mask
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agent_box.errors import AgentBoxError
from agent_box.link import Link
from agent_box.registry import is_uuid
from agent_box.sites import results
from agent_box.subscriptions.place import state_dir
from agent_box.update import status
from agent_box.web import answers
from agent_box.web.api import Api
from agent_box.web.connections import Connections
from agent_box.web.events import MAX_STREAMS, Feed
from agent_box.web.facts import Facts
from agent_box.web.guard import Guard
from agent_box.web.hooks import Hooks
from agent_box.web.order import Order
from agent_box.web.publishing import Sites
from agent_box.web.transfer import Transfer
from agent_box.web.tus import Tus, speaking
from agent_box.web.updates import Updates
from agent_box.web.uploads import Uploads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from agent_box.config import Box, User

log = logging.getLogger(__name__)

LIVE = Path("/run/agent-box-gate/live")
"""A file for each login that lives, by user; `AGENT_BOX_LIVE` overrides it."""

_LOGIN = re.compile(r"[A-Za-z0-9_-]{16,128}")
_WRITTEN = Mask.MOVED_TO | Mask.CLOSE_WRITE | Mask.DELETE | Mask.MOVED_FROM


class Events:
    """The event stream of one user."""

    def __init__(self, user: User, feed: Feed) -> None:
        self._user = user
        self._feed = feed

    async def events(self, request: Request) -> Response:
        """Stream the state."""
        if self._feed.streams >= MAX_STREAMS:
            return answers.failure(
                HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too many pages are open; close some"
            )
        login = request.headers.get("x-agent-box-login", "")
        return StreamingResponse(
            self._feed.stream(request.headers.get("last-event-id"), _alive(self._user.name, login)),
            headers={
                **answers.ALWAYS,
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-store, no-transform",
                "x-accel-buffering": "no",
            },
        )


def _alive(user: str, login: str) -> Callable[[], bool]:
    """Return what tells whether `login` of `user` still lives; without the gate's word, it does."""
    directory = Path(os.environ.get("AGENT_BOX_LIVE") or LIVE) / user
    if not _LOGIN.fullmatch(login) or not directory.is_dir():
        return lambda: True
    return (directory / login).exists


def application(box: Box, user: User, uploads: Uploads | None = None) -> Guard:
    """Return the web service of `user`."""
    order = Order(user.state_dir)
    link = Link(user)
    feed = Feed(link, order)
    feed.watch(lambda: _watch(user, feed))
    events = Events(user, feed)
    api = Api(box, user, link, feed, order, Facts(box, user))
    uploads = uploads or Uploads(user.home)
    transfer = Transfer(user, uploads)
    tus = Tus(user.name, uploads)
    sites = Sites(box, user)
    hooks = Hooks(box, user, link)
    updates = Updates(box, user)
    base = f"/{user.name}"
    one = f"{base}/api/sessions/{{name}}"
    parts = f"{base}/api/partial-uploads"

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await feed.close()

    app = Starlette(
        routes=[
            Route(f"{base}/events", events.events, methods=["GET"]),
            Route(f"{base}/downloads/{{path:path}}", transfer.download, methods=["GET"]),
            Route(f"{base}/api/sessions", api.sessions, methods=["GET"]),
            Route(f"{base}/api/sessions", api.add, methods=["POST"]),
            Route(f"{base}/api/restart-all", api.restart_all, methods=["POST"]),
            Route(f"{base}/api/order", api.order, methods=["PUT"]),
            Route(one, api.show, methods=["GET"]),
            Route(one, api.remove, methods=["DELETE"]),
            Route(f"{one}/rename", api.rename, methods=["POST"]),
            Route(f"{one}/send", api.send, methods=["POST"]),
            Route(f"{one}/logs", api.logs, methods=["GET"]),
            Route(f"{one}/transcript", api.transcript, methods=["GET"]),
            *(
                Route(f"{one}/{verb}", api.act(verb), methods=["POST"])
                for verb in ("start", "stop", "restart")
            ),
            Route(f"{base}/api/agents", api.agents, methods=["GET"]),
            Route(f"{base}/api/directories", api.directories, methods=["GET"]),
            Route(f"{base}/api/env", api.env, methods=["GET"]),
            Route(f"{base}/api/env", api.set_env, methods=["POST"]),
            Route(f"{base}/api/env/{{key}}", api.unset_env, methods=["DELETE"]),
            Route(f"{base}/api/box", api.facts, methods=["GET"]),
            Route(f"{base}/api/webhooks", hooks.show, methods=["GET"]),
            Route(f"{base}/api/webhooks/unsubscribe", hooks.unsubscribe, methods=["POST"]),
            Route(f"{base}/api/update", updates.show, methods=["GET"]),
            Route(f"{base}/api/update", updates.start, methods=["POST"]),
            Route(f"{base}/api/downloads", transfer.downloads, methods=["GET"]),
            Route(f"{base}/api/downloads/{{path:path}}", transfer.downloads, methods=["GET"]),
            Route(
                f"{base}/api/downloads/{{path:path}}", transfer.remove_download, methods=["DELETE"]
            ),
            Route(f"{base}/api/uploads", transfer.uploads, methods=["GET"]),
            Route(f"{base}/api/uploads/{{path:path}}", transfer.upload, methods=["PUT"]),
            Route(f"{base}/api/uploads/{{path:path}}", transfer.remove_upload, methods=["DELETE"]),
            Route(f"{base}/api/sites", sites.show, methods=["GET"]),
            Route(f"{base}/api/sites", sites.add, methods=["POST"]),
            Route(f"{base}/api/sites/{{name}}", sites.change, methods=["PATCH"]),
            Route(f"{base}/api/sites/{{name}}", sites.remove, methods=["DELETE"]),
            Route(parts, speaking(tus.options), methods=["OPTIONS"]),
            Route(parts, speaking(tus.create), methods=["POST"]),
            Route(f"{parts}/{{id}}", speaking(tus.progress), methods=["HEAD"]),
            Route(f"{parts}/{{id}}", speaking(tus.append), methods=["PATCH"]),
            Route(f"{parts}/{{id}}", speaking(tus.discard), methods=["DELETE"]),
            *Connections(link).routes(base),
        ],
        exception_handlers={
            AgentBoxError: _refused,
            HTTPException: _http,
            OSError: _broken,
            Exception: _broken,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    origins = box.web.origins if box.web else []
    return Guard(app, user.name, frozenset(origins))


async def _watch(user: User, feed: Feed) -> None:
    """Tell of changes to secrets, files, subscriptions and updates, whoever makes them."""
    places = {user.config_dir: "env", user.session_env_dir: "env", status.STATE: "update"}
    places |= {user.home / name: "files" for name in ("downloads", "uploads")}
    places[results.RESULTS] = "sites"
    places[state_dir(user.home)] = "webhooks"
    try:
        with Inotify() as inotify:
            for path in places:
                if path.is_dir():
                    inotify.add_watch(path, _WRITTEN)
            async for event in inotify:
                name = event.name.name if event.name else ""
                kind = places.get(event.watch.path) if event.watch else None
                if kind == "files" and not name.startswith("."):
                    feed.publish("files", {})
                elif kind == "webhooks" and name.endswith(".json"):
                    feed.publish("webhooks", {})
                elif kind == "update" and name == status.FILE:
                    feed.publish("update", {})
                elif kind == "env" and (name == user.env_path.name or is_uuid(name)):
                    feed.publish("env", {})
                elif kind == "sites" and name == f"{user.name}.json":
                    feed.publish("sites", {})
    except OSError as error:
        log.warning("changes of secrets and files are not noticed: %s", error.strerror)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, AgentBoxError)  # noqa: S101 - what it is registered for
    if not isinstance(error, answers.Refusal) and error.code == "internal":
        log.error("%s %s: %s", request.method, request.url.path, error)
    return answers.refusal(error)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    code = "not_found" if error.status_code == HTTPStatus.NOT_FOUND else "usage"
    text = "There is no such page" if code == "not_found" else error.detail
    answer = answers.failure(error.status_code, code, text)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _broken(request: Request, error: Exception) -> Response:
    log.error("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, error)
    text = "Something failed on the box"
    if isinstance(error, OSError) and error.strerror:
        text = f"{text}: {error.strerror}"
    return answers.failure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", text)
