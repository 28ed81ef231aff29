"""What became of a user's sites, as the helper of root leaves it."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box.errors import AgentBoxError, InternalError
from agent_box.sites import declared, outlook

if TYPE_CHECKING:
    from agent_box.config import User

RESULTS = Path("/run/agent-box-sites")
"""A file for each user: `<user>.json`."""

WAIT, LONGEST_WAIT = 20.0, 120.0
"""Seconds for the edge to take up a change; more where the box says when it will."""

_PAUSE = 0.1


def read(user: User) -> dict[str, Any] | None:
    """Return the results; None when the user's list was never looked at."""
    try:
        found: dict[str, Any] = json.loads((RESULTS / f"{user.name}.json").read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InternalError(f"cannot read {RESULTS}/{user.name}.json: {error}") from error
    return found


def current(user: User) -> dict[str, Any]:
    """Return problem and verdicts, and as `pending` whether the latest list is still to come."""
    found = {"problem": None, "sites": [], "digest": "", **(read(user) or {})}
    try:
        data, _ = declared.read(user)
        pending = hashlib.sha256(data).hexdigest() != found["digest"] and bool(data)
    except AgentBoxError:
        pending = False  # the problem tells about it
    sites = outlook.judged(user, found["sites"])
    return {"problem": found["problem"], "sites": sites, "pending": pending}


def wait_for(user: User, data: bytes) -> dict[str, Any]:
    """Return the results for this version of the list."""
    digest = hashlib.sha256(data).hexdigest()
    began = time.monotonic()
    deadline = began + WAIT
    while time.monotonic() < deadline:
        found = read(user) or {}
        if found.get("digest") == digest:
            return found
        waits = found.get("waits", {})
        if waits.get("digest") == digest:
            wait = max(0.0, float(waits["until"]) - time.time()) + WAIT
            deadline = min(time.monotonic() + wait, began + LONGEST_WAIT)
        time.sleep(_PAUSE)
    raise InternalError(
        "the change is written, but the box has not taken it up yet; agent-box-site ls tells"
        " when it has, and root can see: journalctl -u agent-box-sites"
    )


def verdict_on(user: User, name: str, data: bytes) -> dict[str, Any]:
    """Return what became of one site in this version of the list."""
    found = wait_for(user, data)
    verdict = next((each for each in found["sites"] if each["name"] == name), None)
    if found["problem"] is not None or verdict is None:
        raise InternalError(found["problem"] or "the box did not take up the site")
    (known,) = outlook.judged(user, [verdict])
    return known
