"""What EC2 announces to a machine of its own, read from the instance metadata service (version 2).

Paths and shapes are those of the EC2 user guide: "Spot Instance interruption notices", "EC2
instance rebalance recommendations" and "Scheduled events for your instances".
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from agent_box.notify.watch import Notice

log = logging.getLogger(__name__)

ADDRESSES = ("169.254.169.254", "fd00:ec2::254")
"""The service over IPv4, and over IPv6 for machines that have nothing else."""

TIMEOUT = 3.0
"""Seconds for one answer; the service is on the same host."""

TOKEN_LIFE = 300
"""Seconds for which a token is asked; it is renewed before its end."""

MOST = 64 * 1024
"""Bytes of an answer that are read."""

ACTIONS = ("stop", "hibernate", "terminate")


class MetadataError(Exception):
    """The service did not answer as it should; says nothing about whether there is a notice."""


class Metadata:
    """A client of the metadata service."""

    def __init__(self, addresses: tuple[str, ...] = ADDRESSES, port: int = 80) -> None:
        self._addresses = addresses
        self._port = port
        self._token = ""
        self._renew_at = 0.0

    def get(self, path: str) -> str | None:
        """Return the text at `latest/meta-data/<path>`, None where there is none (404)."""
        status, text = self._request("GET", f"/latest/meta-data/{path}", self._authorized())
        if status == http.client.UNAUTHORIZED:
            self._renew_at = 0.0
            status, text = self._request("GET", f"/latest/meta-data/{path}", self._authorized())
        if status == http.client.NOT_FOUND:
            return None
        # An error page is no notice.
        if status != http.client.OK:
            raise MetadataError(f"{path}: status {status}")
        return text

    def _authorized(self) -> dict[str, str]:
        if time.monotonic() >= self._renew_at:
            life = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_LIFE)}
            status, token = self._request("PUT", "/latest/api/token", life)
            if status != http.client.OK or not token.isascii() or not token.isprintable():
                raise MetadataError(f"no token: status {status}")
            self._token = token
            self._renew_at = time.monotonic() + TOKEN_LIFE / 2
        return {"X-aws-ec2-metadata-token": self._token}

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        trouble: Exception | None = None
        for address in self._addresses:
            connection = http.client.HTTPConnection(address, self._port, timeout=TIMEOUT)
            try:
                connection.request(method, path, headers=headers)
                answer = connection.getresponse()
                text = answer.read(MOST).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException) as error:
                trouble = error
                continue
            finally:
                connection.close()
            self._addresses = (address,)  # the one that works
            return answer.status, text
        raise MetadataError(f"no answer: {trouble}")


def is_ec2(sys: Path = Path("/sys")) -> bool:
    """Tell by the firmware whether this machine is an EC2 instance."""
    for name in ("sys_vendor", "board_vendor", "bios_vendor"):
        with contextlib.suppress(OSError):
            if (sys / "class/dmi/id" / name).read_text().startswith("Amazon EC2"):
                return True
    with contextlib.suppress(OSError):
        return (sys / "hypervisor/uuid").read_text().lower().startswith("ec2")
    return False


def interruption(metadata: Metadata) -> Notice | None:
    """Return the notice that this Spot instance is taken away, about two minutes ahead."""
    text = metadata.get("spot/instance-action")
    found = _object(text)
    if found is None:
        return None
    action = found.get("action")
    if action not in ACTIONS:
        raise MetadataError(f"spot/instance-action has an unknown action: {str(action)[:40]!r}")
    return Notice("interruption", str(action), _instant(found.get("time")))


def rebalance(metadata: Metadata) -> Notice | None:
    """Return the word that this Spot instance is likelier than others to be taken away."""
    found = _object(metadata.get("events/recommendations/rebalance"))
    return None if found is None else Notice("rebalance", "", _instant(found.get("noticeTime")))


def maintenance(metadata: Metadata) -> list[Notice]:
    """Return the announced reboots, stops and retirements that have not happened yet."""
    text = metadata.get("events/maintenance/scheduled")
    if text is None:
        return []
    try:
        events = json.loads(text)
    except (ValueError, RecursionError):
        events = None
    if not isinstance(events, list):
        raise MetadataError("events/maintenance/scheduled is no list")
    return [
        Notice("maintenance", str(event.get("Code"))[:40], _instant(event.get("NotBefore")))
        for event in events
        if isinstance(event, dict) and event.get("State", "active") == "active"
    ]


def _object(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MetadataError("a notice is no object")
    return found


def _instant(text: object) -> float | None:
    """Return unix seconds of a time as the service writes it: ISO 8601, or that of a mail."""
    if not isinstance(text, str):
        return None
    with contextlib.suppress(ValueError, OverflowError):
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    with contextlib.suppress(ValueError, OverflowError):
        return parsedate_to_datetime(text).timestamp()
    return None
