"""HTTP answers of the web service: one shape of errors, one set of headers."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from agent_box.control_client import SupervisorDown, SupervisorGone, SupervisorSilent
from agent_box.errors import AgentBoxError, ConflictError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; media-src 'self'"
"""The policy of the user's own files: whatever they contain, nothing of it runs."""

ALWAYS = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin"}

_STATUS: tuple[tuple[type[AgentBoxError], HTTPStatus, str], ...] = (
    (SupervisorDown, HTTPStatus.SERVICE_UNAVAILABLE, "supervisor_down"),
    (SupervisorGone, HTTPStatus.BAD_GATEWAY, "supervisor_gone"),
    (SupervisorSilent, HTTPStatus.GATEWAY_TIMEOUT, "supervisor_silent"),
    (UsageError, HTTPStatus.BAD_REQUEST, "usage"),
    (NotFoundError, HTTPStatus.NOT_FOUND, "not_found"),
    (ConflictError, HTTPStatus.CONFLICT, "conflict"),
)


class Refusal(AgentBoxError):  # noqa: N818 - an answer like any other
    """A request refused with a status and a code of its own."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def data(content: Any, status: int = HTTPStatus.OK) -> Response:
    """Answer with JSON."""
    return answer(status, msgspec.json.encode(content), "application/json")


def failure(status: int, code: str, message: str) -> Response:
    """Answer with an error that people can read."""
    return data({"error": {"code": code, "message": sentence(message)}}, status)


def refusal(error: AgentBoxError) -> Response:
    """Answer with the status that belongs to `error`."""
    if isinstance(error, Refusal):
        return failure(error.status, error.code, str(error))
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return failure(status, code, str(error))
    return failure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", str(error))


def answer(
    status: int, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with `content`, which nobody may keep unless `headers` say otherwise."""
    return Response(
        content,
        status,
        headers={**ALWAYS, "cache-control": "no-store", **(headers or {})},
        media_type=media_type,
    )


def sentence(text: str) -> str:
    """Return `text` with a capital and an end, as pages show it."""
    text = text.strip()
    if not text:
        return "Something went wrong."
    return text[:1].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")
