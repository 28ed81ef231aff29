"""`/U/api/sites`: what the user publishes, whether that works, and changes to it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from agent_box.errors import UsageError
from agent_box.sites import declared, model, names, outlook, results
from agent_box.web import answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.config import Box, User


class _New(msgspec.Struct, forbid_unknown_fields=True):
    """A new site: a port or a folder."""

    name: str
    port: int | None = None
    dir: str | None = None
    public: bool = False
    host: str | None = None


class _Access(msgspec.Struct, forbid_unknown_fields=True):
    """Who may look."""

    public: bool


class Sites:
    """Answers the settings about sites of one user."""

    def __init__(self, box: Box, user: User) -> None:
        self._domain = (box.web.sites_domain or box.web.domain) if box.web else None
        self._user = user

    async def show(self, _: Request) -> Response:
        """List sites, where they are, and what is amiss."""
        found = await asyncio.to_thread(results.current, self._user)
        return answers.data({**found, "domain": self._domain, "tail": names.tail(self._user.name)})

    async def add(self, request: Request) -> Response:
        """Publish a port or a folder; a site that the box refuses is not kept."""
        wanted = await _body(request, _New)
        entry = {"public": wanted.public, "port": wanted.port, "host": wanted.host or None}
        if wanted.dir is not None:
            text = wanted.dir.removeprefix("~/sites/")
            entry["dir"] = model.below_sites(text, str(self._user.home))
        entry = {key: value for key, value in entry.items() if value is not None}
        model.check(wanted.name, entry)
        reason = await asyncio.to_thread(self._amiss, wanted.port, entry.get("dir"))
        if reason is not None:
            raise answers.Refusal(HTTPStatus.CONFLICT, "refused", reason)
        verdict = await asyncio.to_thread(self._try, wanted.name, entry)
        if verdict["state"] == "refused":
            raise answers.Refusal(HTTPStatus.CONFLICT, "refused", verdict["reason"])
        return answers.data(verdict, HTTPStatus.CREATED)

    def _try(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        """Publish a site, and take it back where the box refuses it, in one go: a thread goes on
        when the request is cancelled.
        """
        verdict = results.verdict_on(self._user, name, declared.add(self._user, name, entry))
        if verdict["state"] == "refused":
            declared.remove(self._user, name)
        return verdict

    def _amiss(self, port: int | None, folder: object) -> str | None:
        """Say why there is no use in publishing this."""
        if port is not None and outlook.foreign(self._user, port):
            return f"another user's program listens on port {port}"
        return outlook.amiss(self._user, None, folder) if isinstance(folder, str) else None

    async def change(self, request: Request) -> Response:
        """Open a site to everybody, or put it behind the login."""
        wanted = await _body(request, _Access)
        name = request.path_params["name"]
        changes = {"public": wanted.public}
        return answers.data(
            await self._carry_out(name, lambda: declared.change(self._user, name, changes))
        )

    async def remove(self, request: Request) -> Response:
        """Publish a site no more; the folder or program stays."""
        await _body(request, msgspec.Struct)
        name = request.path_params["name"]
        await asyncio.to_thread(
            lambda: results.wait_for(self._user, declared.remove(self._user, name))
        )
        return answers.data({})

    async def _carry_out(self, name: str, edit: Callable[[], bytes]) -> dict[str, Any]:
        return await asyncio.to_thread(lambda: results.verdict_on(self._user, name, edit()))


async def _body(request: Request, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the request makes no sense: {error}") from error
