"""Who may ask, and from which page: checked for every request before anything else.

The edge and the gate have checked both. This service trusts the edge alone, which says in
`X-Agent-Box-User` who is signed in, and believes it only about its own user.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from agent_box.web import answers, tus

if TYPE_CHECKING:
    from collections.abc import Container

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

_FOREIGN = (
    "The request does not come from a page of this box. Programs send the header"
    " Sec-Fetch-Site: same-origin"
)

SAFE = frozenset({"GET", "HEAD"})


class Guard:
    """Lets pass what the service's own user asks from the box's own pages."""

    def __init__(self, app: Starlette, user: str, origins: Container[str]) -> None:
        self.app = app
        self._user = user
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        if scope["type"] == "http":
            refused = self._objection(Headers(scope=scope), scope["method"], scope["path"])
            if refused is not None:
                await answers.failure(*refused)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _objection(
        self, headers: Headers, method: str, path: str
    ) -> tuple[HTTPStatus, str, str] | None:
        if headers.getlist("x-agent-box-user") != [self._user]:
            return HTTPStatus.FORBIDDEN, "not_yours", "This belongs to somebody else."
        if method in SAFE:
            return None
        if not self._own_page(headers):
            return HTTPStatus.FORBIDDEN, "origin", _FOREIGN
        if path.startswith(f"/{self._user}/api/partial-uploads") and method != "PATCH":
            # A protocol with a header of its own, which does the same as the types below.
            wanted = "" if tus.HEADER in headers else "application/json"
        elif path.startswith(f"/{self._user}/api/partial-uploads/"):
            wanted = tus.CONTENT
        elif path.startswith(f"/{self._user}/api/uploads/") and method == "PUT":
            wanted = "application/octet-stream"
        else:
            wanted = "application/json"
        # Types that no form of another site can send without asking first.
        given = headers.get("content-type", "").partition(";")[0].strip().lower()
        if wanted and given != wanted:
            return (
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "usage",
                f"Send it as Content-Type: {wanted}",
            )
        return None

    def _own_page(self, headers: Headers) -> bool:
        origin = headers.getlist("origin")
        if any(given not in self._origins for given in origin) or len(origin) > 1:
            return False
        site = headers.get("sec-fetch-site")
        return site == "same-origin" or (site in (None, "none") and bool(origin))
