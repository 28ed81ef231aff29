"""`/gate/*`: the JSON API of the Account card. Every call proves its login itself."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from agent_box.errors import AgentBoxError, InternalError
from agent_box.gate import addresses, answers, policy, unbans, wire
from agent_box.gate.authority import Entry
from agent_box.gate.check import client, not_now, objection
from agent_box.gate.errors import BusyError, PolicyError, ThrottledError, WrongPasswordError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.gate.authority import Gate
    from agent_box.gate.store import Login
    from agent_box.gate.unbans import Unbans

_STATUS: dict[type[AgentBoxError], HTTPStatus] = {
    PolicyError: HTTPStatus.UNPROCESSABLE_ENTITY,
    WrongPasswordError: HTTPStatus.FORBIDDEN,
    InternalError: HTTPStatus.INSUFFICIENT_STORAGE,
}


class Account:
    """What users do about their own login."""

    def __init__(self, gate: Gate, wishes: Unbans) -> None:
        self._gate = gate
        self._unbans = wishes
        self._allowance = unbans.Allowance()

    async def show(self, request: Request) -> Response:
        """Answer who is signed in, and what a password must be."""
        entry = await self._enter(request)
        if not isinstance(entry, Entry):
            return entry
        user = entry.login.user
        password = self._gate.store.passwords.get(user)
        return answers.data(
            HTTPStatus.OK,
            {
                "user": user,
                "login": entry.login.id,
                "password": {
                    "changed": password.changed if password else None,
                    "minLength": policy.MIN_LENGTH,
                    "maxLength": policy.MAX_LENGTH,
                },
                "logins": self._list(entry),
            },
        )

    async def logins(self, request: Request) -> Response:
        """Answer with the user's logins, last used first."""
        entry = await self._enter(request)
        if not isinstance(entry, Entry):
            return entry
        return answers.data(HTTPStatus.OK, {"logins": self._list(entry)})

    async def end(self, request: Request) -> Response:
        """End one login of the user's."""
        entry = await self._enter(request)
        if not isinstance(entry, Entry):
            return entry
        login = self._gate.store.login(request.path_params["login_id"])
        if login is None or login.user != entry.login.user:
            return answers.failure(
                HTTPStatus.NOT_FOUND, "not_found", "That login has ended already."
            )
        return self._end(entry, [login.id])

    async def end_others(self, request: Request) -> Response:
        """End every login of the user's but the one that asks."""
        entry = await self._enter(request)
        if not isinstance(entry, Entry):
            return entry
        mine = self._gate.store.logins(entry.login.user)
        return self._end(entry, [login.id for login in mine if login.id != entry.login.id])

    async def password(self, request: Request) -> Response:
        """Change the password: `{"current": …, "new": …}`. Ends every login of the user."""
        entry = await self._enter(request)
        if not isinstance(entry, Entry):
            return entry
        body = await _body(request)
        current, new = body.get("current"), body.get("new")
        if not isinstance(current, str) or not isinstance(new, str):
            return answers.failure(
                HTTPStatus.BAD_REQUEST, "usage", 'Send {"current": …, "new": …} as JSON.'
            )
        try:
            fresh = await self._gate.change_password(entry, current, new, client(request.headers))
        except (ThrottledError, BusyError) as error:
            return not_now(self._gate, request.headers, error)
        except tuple(_STATUS) as error:
            return _failure(error)
        headers = {}
        if fresh.token is not None:
            headers["set-cookie"] = wire.set_cookie(fresh.token, self._gate.store.absolute)
        return answers.data(
            HTTPStatus.OK, {"login": fresh.login.id, "logins": self._list(fresh)}, headers
        )

    async def bans(self, request: Request) -> Response:
        """Answer which addresses are banned for failures of the user's own, to find one's own in.

        Others are nobody else's business.
        """
        entry = await self._enter(request)
        if not isinstance(entry, Entry):
            return entry
        user = entry.login.user
        found = [
            ban
            for ban in self._unbans.current()
            if self._gate.may_forgive(user, addresses.parse(ban["unban"]))
        ]
        return answers.data(HTTPStatus.OK, {"bans": found})

    async def unban(self, request: Request) -> Response:
        """Forgive an address the user's own failures: `{"address": …}`; a ban is lifted as well.

        Answers with what came of it: `failures` is the number of those forgiven, `banned` tells
        whether the address is banned still.
        """
        entry = await self._enter(request)
        if not isinstance(entry, Entry):
            return entry
        body = await _body(request)
        address = addresses.parse(str(body.get("address", "")))
        if address == addresses.UNKNOWN:
            return answers.failure(
                HTTPStatus.BAD_REQUEST, "usage", "That is not an IPv4 or IPv6 address."
            )
        user = entry.login.user
        if (wait := self._allowance.take(user)) > 0:
            return answers.failure(
                HTTPStatus.TOO_MANY_REQUESTS,
                "throttled",
                f"You may unban {unbans.ALLOWED} times an hour. Try again in {wait / 60:.0f} min.",
                {"retry-after": str(round(wait) + 1)},
            )
        lifted = not self._unbans.banned(address)
        if self._gate.may_forgive(user, address):
            try:
                lifted = await self._unbans.lift(address)
            except OSError as error:
                message = f"Cannot ask for it: {error.strerror}."
                return answers.failure(HTTPStatus.INSUFFICIENT_STORAGE, "internal", message)
            if not lifted:
                message = f"{address} is banned still: fail2ban does not answer. Try again later."
                return answers.failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", message)
        elif not lifted:
            message = (
                f"{address} is not banned for wrong passwords of yours alone, or that is too long"
                f" ago. Root can lift the ban: agent-box-gate unban {address}."
            )
            return answers.failure(HTTPStatus.CONFLICT, "conflict", message)
        known = self._gate.forgive(user, address)
        return answers.data(
            HTTPStatus.OK, {"address": str(address), "failures": known, "banned": not lifted}
        )

    async def _enter(self, request: Request) -> Entry | Response:
        """Return the login behind a request, or the answer that refuses it."""
        headers = request.headers
        try:
            entry = await self._gate.authenticate(headers, client(headers))
        except (ThrottledError, BusyError) as error:
            return not_now(self._gate, headers, error)
        if entry is None:
            browser = wire.is_browser(headers) or wire.has_cookie(headers)
            challenge = answers.BROWSER_CHALLENGE if browser else answers.BASIC_CHALLENGE
            return answers.failure(
                HTTPStatus.UNAUTHORIZED,
                "signed_out",
                "Your login has ended. Sign in again.",
                {"www-authenticate": challenge},
            )
        reason = objection(self._gate, headers, request.method, entry)
        if reason is not None:
            return answers.failure(HTTPStatus.FORBIDDEN, "origin", f"Refused: {reason}.")
        return entry

    def _end(self, entry: Entry, ids: list[str]) -> Response:
        headers = {}
        if entry.login.id in ids and entry.with_cookie:
            headers["set-cookie"] = wire.set_cookie("", 0)
        try:
            ended = self._gate.end(ids)
        except InternalError as error:
            return _failure(error, headers)
        return answers.data(HTTPStatus.OK, {"ended": ended}, headers)

    def _list(self, entry: Entry) -> list[dict[str, Any]]:
        return [self._view(login, entry) for login in self._gate.store.logins(entry.login.user)]

    def _view(self, login: Login, entry: Entry) -> dict[str, Any]:
        return {
            "id": login.id,
            "device": login.device,
            "address": login.address,
            "created": login.created,
            "lastUse": login.last_use,
            "ends": self._gate.store.ends(login),
            "kind": "password" if login.token is None else "browser",
            "current": login.id == entry.login.id,
        }


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; an empty one when there is none."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _failure(error: AgentBoxError, headers: dict[str, str] | None = None) -> Response:
    text = str(error)
    return answers.failure(
        _STATUS[type(error)], error.code, f"{text[:1].upper()}{text[1:]}.", headers
    )
