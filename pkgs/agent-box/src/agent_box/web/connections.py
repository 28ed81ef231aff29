"""`/U/api/connections`: who is signed in where, and guided sign-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.routing import Route

from agent_box.errors import UsageError
from agent_box.web import answers
from agent_box.web.api import Body

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.link import Link


class Act(Body):
    """What to do about one sign-in."""

    action: str
    provider: str | None = None
    choice: str | None = None
    text: str | None = None


class Connections:
    """Answers the Connections card of one user. The supervisor does the work."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def routes(self, base: str) -> list[Route]:
        """Return the routes of the card."""
        return [
            Route(f"{base}/api/connections", self.listing, methods=["GET"]),
            Route(f"{base}/api/connections/{{flow}}", self.act, methods=["POST"]),
        ]

    async def listing(self, request: Request) -> Response:
        """Tell how each CLI is connected; never waits for one."""
        fresh = request.query_params.get("fresh") == "1"
        return answers.data(await self._link.call("connections", fresh=fresh))

    async def act(self, request: Request) -> Response:
        """Start, choose, give a code, or cancel."""
        raw = await request.body()
        try:
            wanted = msgspec.json.decode(raw or b"{}", type=Act)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # The error of the decoder may quote what was sent: a code does not belong there.
            raise UsageError("the request makes no sense: send action and what it needs") from None
        fields = {
            "provider": wanted.provider,
            "choice": wanted.choice,
            "text": wanted.text,
        }
        given = {key: value for key, value in fields.items() if value is not None}
        flow = request.path_params["flow"]
        return answers.data(
            await self._link.call("signin", flow=flow, action=wanted.action, **given)
        )
