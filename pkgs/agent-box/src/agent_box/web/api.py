"""`/U/api/`: what the pages ask and do, as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agent_box import envfile, naming, processes, session_env
from agent_box.errors import AgentBoxError, UsageError
from agent_box.web import answers, bulk, files, places, transcripts
from agent_box.web.answers import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.config import Box, User
    from agent_box.link import Link
    from agent_box.web.events import Feed
    from agent_box.web.facts import Facts
    from agent_box.web.order import Order

ALIVE = ("starting", "running", "waiting", "crashed")
SHOWN_LINES = 2000


class Body(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Base of request bodies: a field that nobody knows is a mistake worth telling."""


_Kind = TypeVar("_Kind", bound=Body)


class Add(Body, omit_defaults=True):
    """A new session."""

    name: str | None = None
    agent: str | None = None
    working_directory: str | None = None
    mkdir: bool = False
    prompt: str | None = None
    resume_prompt: str | None = None
    extra_args: list[str] | None = None
    skip_permissions: bool | None = None
    remote_control: bool | None = None
    remote_control_name: str | None = None
    wait: bool | None = None


class Nothing(Body):
    """No arguments."""


class RestartAll(Body):
    """Which sessions to restart."""

    include_stopped: bool = False


class Rename(Body):
    """A new name."""

    new_name: str


class Send(Body):
    """A text to type."""

    text: str
    enter: bool = True


class NewOrder(Body):
    """The order of the tabs."""

    names: list[str]


class SetEnv(Body):
    """Values to set: by key, or as a pasted text."""

    values: dict[str, str] | None = None
    text: str | None = None
    force: bool = False
    session: str | None = None
    """Name of the session that alone gets them."""


class Api:
    """Answers the calls of one user's pages."""

    def __init__(
        self, box: Box, user: User, link: Link, feed: Feed, order: Order, facts: Facts
    ) -> None:
        self._box = box
        self._user = user
        self._link = link
        self._feed = feed
        self._order = order
        self._facts = facts

    # Sessions --------------------------------------------------------------

    async def sessions(self, _: Request) -> Response:
        """List the sessions, in the order of the tabs."""
        listing = await self._link.call("ls")
        place = {name: index for index, name in enumerate(self._order.names())}
        views = listing["sessions"]
        views.sort(key=lambda view: place.get(view["name"], len(place)))
        return answers.data({"sessions": views, "problems": listing["problems"]})

    async def add(self, request: Request) -> Response:
        """Make a session; the working directory stays below the home."""
        wanted = await _body(request, Add)
        directory = await asyncio.to_thread(
            places.resolve, self._user.home, wanted.working_directory or ""
        )
        wanted.working_directory = str(directory)
        wanted.name = wanted.name or None
        if wanted.prompt is not None:
            text = wanted.prompt.replace("\r\n", "\n").replace("\r", "\n")
            wanted.prompt = text if text.strip() else None
        # The page shows the new tab at once and hears from the stream when it lives.
        wanted.wait = bool(wanted.wait)
        args = {"wait": False, **msgspec.to_builtins(wanted)}
        result = await self._link.call("add", **args)
        return answers.data(result, HTTPStatus.CREATED)

    async def show(self, request: Request) -> Response:
        """Tell everything about a session."""
        return answers.data(await self._link.call("show", name=_name(request)))

    async def remove(self, request: Request) -> Response:
        """End and forget a session."""
        await _body(request, Nothing)
        return answers.data(await self._link.call("rm", name=_name(request)))

    def act(self, verb: str) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint that starts, stops or restarts a session."""

        async def endpoint(request: Request) -> Response:
            await _body(request, Nothing)
            return answers.data(await self._link.call(verb, name=_name(request)))

        return endpoint

    async def restart_all(self, request: Request) -> Response:
        """Restart all sessions."""
        wanted = await _body(request, RestartAll)
        return answers.data(
            await self._link.call("restart", all=True, includeStopped=wanted.include_stopped)
        )

    async def rename(self, request: Request) -> Response:
        """Give a session another name, its place among the tabs kept."""
        wanted = await _body(request, Rename)
        name = _name(request)
        result = await self._link.call("rename", name=name, newName=wanted.new_name)
        with contextlib.suppress(AgentBoxError):
            self._order.rename(name, wanted.new_name)
            self._feed.publish_order()
        return answers.data(result)

    async def send(self, request: Request) -> Response:
        """Type a text into a session."""
        wanted = await _body(request, Send)
        return answers.data(
            await self._link.call("send", name=_name(request), text=wanted.text, enter=wanted.enter)
        )

    async def logs(self, request: Request) -> Response:
        """Return screen and scrollback of a session, or of an ended run of it."""
        args: dict[str, Any] = {"lines": _number(request, "lines") or SHOWN_LINES}
        if (run := _number(request, "run")) is not None:
            args["run"] = run
        return answers.data(await self._link.call("logs", name=_name(request), **args))

    async def transcript(self, request: Request) -> Response:
        """Download the conversation as the agent keeps it."""
        name = _name(request)
        path = await asyncio.to_thread(transcripts.find, self._box, self._user, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Refusal(
                HTTPStatus.NOT_FOUND, "no_transcript", f"{path.name}: {error.strerror}"
            ) from error
        return files.attachment(request, descriptor, os.fstat(descriptor), f"{name}-{path.name}")

    async def order(self, request: Request) -> Response:
        """Put the tabs into another order, in every browser."""
        wanted = await _body(request, NewOrder)
        self._order.set(wanted.names)
        self._feed.publish_order()
        return answers.data({})

    # The rest --------------------------------------------------------------

    async def agents(self, _: Request) -> Response:
        """Name the agents that a session can run."""
        return answers.data({"agents": self._box.agent_names(), "default": self._box.default_agent})

    async def directories(self, request: Request) -> Response:
        """List directories below the home."""
        path = request.query_params.get("path", "")
        return answers.data(await asyncio.to_thread(places.listing, self._user.home, path))

    async def env(self, _: Request) -> Response:
        """Name the secrets, never their values, and who runs with old ones."""
        keys = await asyncio.to_thread(envfile.keys, self._user.env_path)
        own: dict[str, list[str]] = {}
        stale = []
        with contextlib.suppress(AgentBoxError):  # the keys of all matter more
            own = await asyncio.to_thread(session_env.keys, self._user)
        with contextlib.suppress(AgentBoxError):
            listing = await self._link.call("ls")
            stale = processes.with_old_values(listing["sessions"], self._user)
        return answers.data({"keys": keys, "own": own, "stale": stale})

    async def set_env(self, request: Request) -> Response:
        """Set secrets: `{"values": {…}}` or `{"text": "KEY=value lines"}`, all or none."""
        wanted = await _body(request, SetEnv)
        values = dict(wanted.values or {})
        if wanted.text is not None:
            values |= bulk.parse(wanted.text)
        if not values:
            raise UsageError("there is no KEY=value in it")
        if not wanted.force and (reserved := sorted(filter(envfile.is_reserved, values))):
            raise Refusal(
                HTTPStatus.CONFLICT,
                "reserved",
                f"{', '.join(reserved)} can break every session at once; nothing was stored",
            )
        changed = await asyncio.to_thread(
            envfile.set_values, self._env_path(wanted.session), values, force=wanted.force
        )
        return await self._changed(changed, wanted.session)

    async def unset_env(self, request: Request) -> Response:
        """Remove a secret."""
        await _body(request, Nothing)
        key, session = request.path_params["key"], request.query_params.get("session")
        changed = await asyncio.to_thread(envfile.unset, self._env_path(session), [key])
        if not changed:
            raise Refusal(HTTPStatus.NOT_FOUND, "not_found", f"{key[:60]} is not set")
        return await self._changed(changed, session)

    def _env_path(self, session: str | None) -> Path:
        """Return the secrets of all sessions, or those of one."""
        return self._user.env_path if session is None else session_env.path_of(self._user, session)

    async def _changed(self, changed: list[str], session: str | None) -> Response:
        stale = []
        with contextlib.suppress(AgentBoxError):
            listing = await self._link.call("ls")
            stale = [
                view["name"]
                for view in listing["sessions"]
                if view["state"] in ALIVE and session in (None, view["name"])
            ]
        return answers.data({"changed": changed, "stale": stale if changed else []})

    async def facts(self, _: Request) -> Response:
        """Tell how the box is."""
        facts = await self._facts.collect()
        try:
            status = await self._link.call("status")
            problems, version = status["problems"], status["version"]
        except AgentBoxError as error:
            problems, version = [answers.sentence(str(error))], None
        return answers.data({**facts, "version": version, "problems": problems + facts["problems"]})


async def _body(request: Request, kind: type[_Kind]) -> _Kind:
    raw = await request.body()
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the request makes no sense: {error}") from error


def _name(request: Request) -> str:
    return naming.check_existing(request.path_params["name"])


def _number(request: Request, key: str) -> int | None:
    value = request.query_params.get(key)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        raise UsageError(f"{key} must be a number")
    return int(value)
