"""`/U/api/webhooks`: who listens to what, and ways to end that when a watch turns into a flood."""

from __future__ import annotations

import asyncio
import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from agent_box.errors import NotFoundError, UsageError
from agent_box.subscriptions import actions, files, listing, spawning
from agent_box.subscriptions.place import DISPATCH, filter_path, key_of, state_dir
from agent_box.web import answers
from agent_box.web.answers import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.config import Box, User, Webhook
    from agent_box.link import Link


class _Which(msgspec.Struct, forbid_unknown_fields=True):
    """Whose subscription: a session's, or a standing watch without one."""

    session: str | None = None
    topic: str | None = None


class Hooks:
    """Answers the settings about subscriptions of one user."""

    def __init__(self, box: Box, user: User, link: Link) -> None:
        self._box = box
        self._user = user
        self._link = link
        self._directory = state_dir(user.home)

    async def show(self, _: Request) -> Response:
        """Tell who listens to what."""
        webhook = self._box.webhook
        mine = webhook.users.get(self._user.name) if webhook else None
        if webhook is None or mine is None:
            return answers.data({"enabled": False})
        views = (await self._link.call("ls"))["sessions"]
        found = await asyncio.to_thread(self._collect, webhook, views)
        return answers.data({"enabled": True, "url": mine.url, **found})

    def _collect(self, webhook: Webhook, views: list[dict[str, Any]]) -> dict[str, Any]:
        now = time.time()
        watches = listing.dispatch(self._directory, webhook.watch_policy) or {"topics": []}
        for row in watches["topics"]:
            row["preview"] = spawning.preview(
                self._box, self._user, row["topic"], row.get("note", "")
            )
        living = [
            view
            for view in views
            if view["name"].startswith(spawning.PREFIX)
            and view["state"] not in ("stopped", "failed")
        ]
        return {
            "sources": sorted(self._sources()),
            "sessions": [self._session(view, now) for view in views if view["id"]],
            "watches": watches,
            "hooks": {"live": len(living), "max": spawning.ceiling(self._box, self._user)},
        }

    def _session(self, view: dict[str, Any], now: float) -> dict[str, Any]:
        path = filter_path(self._directory, key_of(view["id"]))
        content = files.read(path)
        state = listing.state_of(content, now)
        if state == "absent" and path.exists():
            state = "unknown"
        rows = [listing.row(entry, content, now) for entry in content.live(now)]
        for row in rows:
            # What every subscription leaves out is no news.
            if row.get("exclude") == actions.NOISE:
                del row["exclude"]
        return {
            "name": view["name"],
            "state": state,
            "topics": rows,
            "file": state not in ("absent", "unknown"),
        }

    def _sources(self) -> list[str]:
        try:
            known = json.loads((self._directory / "sources.json").read_bytes())["sources"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return list(known) if isinstance(known, dict) else []

    async def unsubscribe(self, request: Request) -> Response:
        """End one subscription, or all of a session with its file."""
        which = await _body(request)
        if which.session is None and which.topic is None:
            raise UsageError("session or topic is missing")
        key = DISPATCH if which.session is None else await self._key(which.session)
        if which.topic is None:
            removed = await asyncio.to_thread(actions.clear, self._directory, key)
            return answers.data({"removed": int(removed)})
        outcome = await asyncio.to_thread(actions.unsubscribe, self._directory, key, which.topic)
        if not outcome.removed:
            raise Refusal(HTTPStatus.NOT_FOUND, "not_found", "this subscription is gone already")
        return answers.data({"removed": outcome.removed})

    async def _key(self, name: str) -> str:
        """Return the key of a session that is listed: no other name leads to a file."""
        for view in (await self._link.call("ls"))["sessions"]:
            if view["name"] == name and view["id"]:
                return key_of(view["id"])
        raise NotFoundError(f"no session '{name[:80]}'")


async def _body(request: Request) -> _Which:
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=_Which)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the request makes no sense: {error}") from error
