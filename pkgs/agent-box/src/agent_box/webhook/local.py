"""Talking to the receiver from the user's own programs, over the socket that the edge uses, too."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any

from agent_box.errors import InternalError, NotFoundError
from agent_box.webhook import verify

if TYPE_CHECKING:
    from agent_box.webhook.sources import Source

PATIENCE = 10.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def post(path: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Send a request to the receiver at the socket `path`; InternalError when it is not there."""
    connection = _Connection(path)
    try:
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


def ask(path: str, what: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask the receiver something."""
    status, text = post(path, f"/.local/{what}", json.dumps(args or {}).encode(), {})
    if status != http.client.OK:
        raise NotFoundError("the receiver knows of no such delivery; agent-box-webhook log lists")
    found: dict[str, Any] = json.loads(text)
    return found


def request(source: Source, body: bytes, event: str | None) -> dict[str, str]:
    """Return the headers of a delivery as that source sends it."""
    headers = {
        "content-type": "application/json",
        source.delivery_header: f"emit-{secrets.token_hex(8)}",
        **verify.sign(
            source.scheme, source.signature_header, source.secrets[0], body, int(time.time())
        ),
    }
    if event is not None:
        headers[source.event_header] = event
    return headers
