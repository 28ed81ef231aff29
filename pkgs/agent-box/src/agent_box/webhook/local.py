"""Talking to the receiver from the user's own programs, over the socket that the edge uses, too."""

from __future__ import annotations

import json
import os
import socket
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from agent_box.errors import InternalError, NotFoundError
from agent_box.webhook import verify

if TYPE_CHECKING:
    from agent_box.webhook.sources import Source

PATIENCE = 10.0


def post(path: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Send a request to the receiver at the socket `path`; InternalError when it is not there."""
    import http.client  # here, because most commands send nothing

    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
    try:
        connection.sock = _dial(path)
        connection.request("POST", target, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        user = os.path.basename(path).removesuffix(".sock")  # noqa: PTH119
        raise InternalError(
            f"could not reach the receiver at {path} ({error}); see:"
            f" systemctl status agent-box-webhook-{user}.socket"
        ) from error
    finally:
        connection.close()


def _dial(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(PATIENCE)
    try:
        link.connect(path)
    except OSError:
        link.close()
        raise
    return link


def ask(path: str, what: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask the receiver something."""
    status, text = post(path, f"/.local/{what}", json.dumps(args or {}).encode(), {})
    if status != HTTPStatus.OK:
        raise NotFoundError("the receiver knows of no such delivery; agent-box-webhook log lists")
    found: dict[str, Any] = json.loads(text)
    return found


def request(source: Source, body: bytes, event: str | None) -> dict[str, str]:
    """Return the headers of a delivery as that source sends it."""
    headers = {
        "content-type": "application/json",
        source.delivery_header: f"emit-{os.urandom(8).hex()}",
        **verify.sign(
            source.scheme, source.signature_header, source.secrets[0], body, int(time.time())
        ),
    }
    if event is not None:
        headers[source.event_header] = event
    return headers
