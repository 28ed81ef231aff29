"""Signing in and out with forms."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from agent_box.errors import InternalError
from agent_box.gate import answers, pages, rules, wire
from agent_box.gate.check import client, not_now
from agent_box.gate.errors import (
    BusyError,
    DifferentError,
    PolicyError,
    ThrottledError,
    WrongPasswordError,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.gate.authority import Entry, Gate

_MAX_FIELDS = 16


class SignIn:
    """The pages `/login` and `/logout`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._host = gate.web.domain

    async def asset(self, request: Request) -> Response:
        """Answer with a static file."""
        found = pages.assets().get(request.url.path)
        return answers.text(HTTPStatus.NOT_FOUND) if found is None else answers.asset(*found)

    async def form(self, request: Request) -> Response:
        """Show the form, or go on for somebody who is signed in."""
        query = request.query_params
        following = query.get("next", "")
        token = wire.cookie(request.headers)
        login = self._gate.store.by_token(token) if token else None
        if login is not None and login.user in self._gate.users and "setup" not in query:
            return answers.redirect(rules.landing(following, login.user, self._gate.users))
        if "setup" in query or not self._gate.has_passwords():
            content = pages.set_up(
                self._host,
                user=self._gate.only_user,
                following=following,
                offer_login=self._gate.has_passwords(),
            )
        else:
            content = pages.login(
                self._host,
                user=self._gate.only_user,
                following=following,
                note="You are signed out." if "out" in query else "",
                offer_setup=bool(self._gate.store.setups),
            )
        return answers.page(HTTPStatus.OK, content)

    async def submit(self, request: Request) -> Response:
        """Sign in with a password or a set-up code."""
        if self._is_foreign(request):
            message = "The form was sent from a page that is not the box's own."
            return answers.page(
                HTTPStatus.FORBIDDEN, pages.refused(self._host, "Refused", message, "/login")
            )
        fields = await _fields(request)
        if fields is None:
            return answers.text(HTTPStatus.BAD_REQUEST, "not a form\n")
        try:
            if fields.get("setup"):
                return await self._set_up(request, fields)
            return await self._sign_in(request, fields)
        except (ThrottledError, BusyError) as error:
            return not_now(self._gate, request.headers, error)
        except (InternalError, OSError) as error:
            message = f"The box cannot keep your login: {_sentence(error)}"
            content = pages.refused(self._host, "Not now", message, "/login")
            return answers.page(HTTPStatus.SERVICE_UNAVAILABLE, content)

    async def leave(self, request: Request) -> Response:
        """End the login that the request shows."""
        if self._is_foreign(request):
            return answers.text(HTTPStatus.FORBIDDEN)
        token = wire.cookie(request.headers)
        login = self._gate.store.by_token(token) if token else None
        gone = {"set-cookie": wire.set_cookie("", 0)}
        if login is not None:
            try:
                self._gate.end([login.id])
            except InternalError as error:
                content = pages.refused(self._host, "Signed out", _sentence(error), "/login")
                return answers.page(HTTPStatus.INSUFFICIENT_STORAGE, content, gone)
        return answers.redirect("/login?out=1", gone)

    async def _sign_in(self, request: Request, fields: dict[str, str]) -> Response:
        user, following = fields.get("user", "").strip(), fields.get("next", "")
        try:
            entry = await self._gate.sign_in(
                user, fields.get("password", ""), client(request.headers)
            )
        except WrongPasswordError as error:
            content = pages.login(
                self._host,
                user=user,
                following=following,
                error=_sentence(error),
                wrong=True,
                offer_setup=bool(self._gate.store.setups),
            )
            return answers.page(
                HTTPStatus.UNAUTHORIZED,
                content,
                {"www-authenticate": answers.BROWSER_CHALLENGE},
            )
        return self._enter(request, entry, following)

    async def _set_up(self, request: Request, fields: dict[str, str]) -> Response:
        user, following = fields.get("user", "").strip(), fields.get("next", "")
        new = fields.get("new", "")
        wrong, status = "new", HTTPStatus.UNPROCESSABLE_ENTITY
        try:
            entry = await self._gate.set_up(
                user,
                fields.get("code", ""),
                new,
                client(request.headers),
                again=fields.get("again"),
            )
        except (PolicyError, WrongPasswordError) as error:
            headers = {}
            if isinstance(error, DifferentError):
                wrong = "again"
            if isinstance(error, WrongPasswordError):
                wrong, status = "code", HTTPStatus.UNAUTHORIZED
                headers = {"www-authenticate": answers.BROWSER_CHALLENGE}
            content = pages.set_up(
                self._host,
                user=user,
                following=following,
                error=_sentence(error),
                wrong=wrong,
                offer_login=self._gate.has_passwords(),
            )
            return answers.page(status, content, headers)
        return self._enter(request, entry, following)

    def _enter(self, request: Request, entry: Entry, following: str) -> Response:
        """Hand out the cookie; the login that the browser had before is not left behind."""
        before = wire.cookie(request.headers)
        old = self._gate.store.by_token(before) if before else None
        if old is not None:
            self._gate.end([old.id])
        where = rules.landing(following, entry.login.user, self._gate.users)
        cookie = wire.set_cookie(entry.token or "", self._gate.store.absolute)
        return answers.redirect(where, {"set-cookie": cookie})

    def _is_foreign(self, request: Request) -> bool:
        """Tell whether another site's page sends the form, to sign somebody in or out."""
        reason = rules.objection(
            method="POST",
            upgrade=False,
            origins=self._gate.web.origins,
            origin=request.headers.getlist("origin"),
            site=request.headers.get("sec-fetch-site"),
            mode=request.headers.get("sec-fetch-mode"),
            with_cookie=wire.has_cookie(request.headers),
        )
        return reason is not None


async def _fields(request: Request) -> dict[str, str] | None:
    """Return the fields of a form; `None` when the body is none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = await request.body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MAX_FIELDS,
            errors="strict",
        )
    except ValueError:
        return None
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else None


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
