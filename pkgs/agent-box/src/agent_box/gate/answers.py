"""HTTP answers of the gate, all with the same headers."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from agent_box.gate import pages

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALWAYS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    # Not "no-referrer": browsers then send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "content-security-policy": pages.POLICY,
}

BASIC_CHALLENGE = 'Basic realm="agent-box", charset="UTF-8"'
BROWSER_CHALLENGE = 'Cookie realm="agent-box"'
"""A 401 needs a challenge; this one opens no dialog of the browser's."""


def text(status: int, content: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """Answer in plain text."""
    return _answer(status, content.encode(), "text/plain; charset=utf-8", headers)


def page(status: int, content: str, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a page."""
    return _answer(status, content.encode(), "text/html; charset=utf-8", headers)


def data(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON."""
    encoded = json.dumps(content, ensure_ascii=False).encode()
    return _answer(status, encoded, "application/json", headers)


def failure(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer a call of the JSON API with an error that people can read."""
    return data(status, {"error": {"code": code, "message": message}}, headers)


def redirect(location: str, headers: Mapping[str, str] | None = None) -> Response:
    """Send a browser elsewhere after a form."""
    return _answer(
        HTTPStatus.SEE_OTHER, b"", "text/plain", {"location": location, **(headers or {})}
    )


def asset(content: bytes, media_type: str) -> Response:
    """Answer with a static file, which never changes under its address."""
    forever = {"cache-control": "public, max-age=31536000, immutable"}
    return _answer(HTTPStatus.OK, content, media_type, forever)


def _answer(
    status: int, content: bytes, media_type: str, headers: Mapping[str, str] | None
) -> Response:
    return Response(content, status, {**_ALWAYS, "content-type": media_type, **(headers or {})})
