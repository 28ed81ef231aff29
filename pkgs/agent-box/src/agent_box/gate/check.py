"""`GET /auth`: the edge's question about every request."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from agent_box.gate import addresses, answers, device, pages, rules, wire
from agent_box.gate.authority import Client
from agent_box.gate.errors import BusyError, ThrottledError

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.gate.authority import Entry, Gate

log = logging.getLogger(__name__)


def client(headers: Headers) -> Client:
    """Return who sends a request, as the edge reports it."""
    address = addresses.parse(headers.get("x-forwarded-for", ""))
    return Client(address, device.label(headers.get("user-agent", "")))


def objection(gate: Gate, headers: Headers, method: str, entry: Entry) -> str | None:
    """Return why a request is refused though its credential is right, or `None`."""
    return rules.objection(
        method=method,
        upgrade="x-agent-box-upgrade" in headers,
        origins=gate.web.origins,
        origin=headers.getlist("origin"),
        site=headers.get("sec-fetch-site"),
        mode=headers.get("sec-fetch-mode"),
        with_cookie=entry.with_cookie,
    )


def not_now(
    gate: Gate, headers: Headers, error: ThrottledError | BusyError, *, back: str = "/login"
) -> Response:
    """Answer somebody whose credential was not even looked at."""
    throttled = isinstance(error, ThrottledError)
    status = HTTPStatus.TOO_MANY_REQUESTS if throttled else HTTPStatus.SERVICE_UNAVAILABLE
    more = {"retry-after": str(max(1, round(error.seconds)))}
    message = f"{str(error)[0].upper()}{str(error)[1:]}."
    if "text/html" in headers.get("accept", ""):
        content = pages.refused(gate.web.domain, "Not now", message, back)
        return answers.page(status, content, more)
    return answers.failure(status, error.code, message, more)


class Check:
    """Answers whether a request may pass."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def auth(self, request: Request) -> Response:
        """Answer 200 with the user and the login, or 401, 403, 404, 429, 503 for the client."""
        headers = request.headers
        method = wire.single(headers, "x-forwarded-method")
        uri = wire.single(headers, "x-forwarded-uri")
        if method is None or uri is None:
            log.error("the edge asks without X-Forwarded-Method and X-Forwarded-Uri")
            return answers.text(HTTPStatus.BAD_REQUEST)
        try:
            entry = await self._gate.authenticate(headers, client(headers))
        except (ThrottledError, BusyError) as error:
            return not_now(self._gate, headers, error)
        if entry is None:
            return self._unknown(headers, method, uri)
        return self._known(headers, method, uri, entry)

    def _known(self, headers: Headers, method: str, uri: str, entry: Entry) -> Response:
        user = entry.login.user
        try:
            whose = rules.owner(uri, self._gate.users)
        except rules.BadPathError:
            return self._refuse(headers, method, HTTPStatus.NOT_FOUND, "There is no such page.")
        # The edge may tell whose door it is about to open, in case it read the path differently.
        told = headers.getlist("x-agent-box-owner")
        if whose not in (None, user) or any(owner not in ("", user) for owner in told):
            if wire.wants_page(headers, method):
                content = pages.other(self._gate.web.domain, user)
                return answers.page(HTTPStatus.FORBIDDEN, content)
            return answers.text(HTTPStatus.FORBIDDEN, "this belongs to somebody else\n")
        reason = objection(self._gate, headers, method, entry)
        if reason is not None:
            return self._refuse(headers, method, HTTPStatus.FORBIDDEN, f"Refused: {reason}.")
        return answers.text(
            HTTPStatus.OK,
            headers={"x-agent-box-user": user, "x-agent-box-login": entry.login.id},
        )

    def _refuse(self, headers: Headers, method: str, status: HTTPStatus, message: str) -> Response:
        if wire.wants_page(headers, method):
            content = pages.refused(self._gate.web.domain, status.phrase.capitalize(), message)
            return answers.page(status, content)
        return answers.text(status, f"{message}\n")

    def _unknown(self, headers: Headers, method: str, uri: str) -> Response:
        if "x-agent-box-upgrade" in headers or not wire.wants_page(headers, method):
            challenge = (
                answers.BROWSER_CHALLENGE if wire.is_browser(headers) else answers.BASIC_CHALLENGE
            )
            return answers.text(HTTPStatus.UNAUTHORIZED, headers={"www-authenticate": challenge})
        more = {"www-authenticate": answers.BROWSER_CHALLENGE}
        host = self._gate.web.domain
        following, guess = "", ""
        if method != "POST":
            try:
                guess = rules.segments(uri)[0]
            except rules.BadPathError:
                pass
            else:
                following = uri
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if following and foreign and not wire.has_cookie(headers):
            return answers.page(HTTPStatus.UNAUTHORIZED, pages.returning(host, following), more)
        # The name in the address, whether there is such a user or not.
        user = guess or self._gate.only_user
        if not self._gate.has_passwords():
            content = pages.set_up(host, user=user, following=following)
        else:
            ended = wire.has_cookie(headers)
            content = pages.login(
                host,
                user=user,
                following=following,
                note="Your login has ended. Sign in to go on." if ended else "",
                offer_setup=bool(self._gate.store.setups),
            )
        return answers.page(HTTPStatus.UNAUTHORIZED, content, more)
