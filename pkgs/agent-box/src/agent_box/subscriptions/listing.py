"""Subscriptions as people and programs read them. Reading never writes."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING, Any

from agent_box.subscriptions import actions, files, topics
from agent_box.subscriptions.place import DISPATCH, filter_path

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.subscriptions.files import Entry, Filter

_DAYS_FROM = 48


def age(seconds: float) -> str:
    """Return an age the way events tell it: `<1h`, `Nh`, `Nd`."""
    hours = max(seconds, 0) / 3600
    if hours < 1:
        return "<1h"
    if hours < _DAYS_FROM:
        return f"{math.floor(hours + 0.5)}h"
    return f"{math.floor(hours / 24 + 0.5)}d"


def expires_in(entry: Entry, content: Filter, now: float) -> str:
    """Return when a subscription ends."""
    if entry.ttl == 0:
        return "never (pinned)"
    ttl = content.ttl if entry.ttl is None else entry.ttl
    if not ttl:
        return "never (ttlHours=0)"
    if entry.subscribed is None:
        return "never (no timestamp yet)"
    left = entry.subscribed + ttl * 3600 - now
    if left <= 0:
        return "expired"
    hours = math.ceil(left / 3600)
    return f"{hours}h" if hours < _DAYS_FROM else f"{math.ceil(left / 86400)}d"


def row(entry: Entry, content: Filter, now: float) -> dict[str, Any]:
    """Return one subscription."""
    reason = topics.problem(entry.topic)
    found: dict[str, Any] = {"topic": entry.topic}
    if reason:
        found |= {"invalid": True, "reason": reason}
    optional = {
        "note": entry.note,
        "ttlHours": entry.ttl,
        "renewOnEvent": entry.renew or None,
        "ignoreSenders": actions.ignored(entry) or None,
        "include": entry.include,
        "exclude": entry.exclude,
        "subscribed": None if entry.subscribed is None else f"{age(now - entry.subscribed)} ago",
        "lastActivity": None if entry.active is None else f"{age(now - entry.active)} ago",
    }
    found |= {key: value for key, value in optional.items() if value is not None}
    return found | {"expiresIn": expires_in(entry, content, now)}


def one(
    directory: Path, key: str, *, login: str | None, policy: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the subscriptions of `key` and the standing watches."""
    now = time.time()
    path = filter_path(directory, key)
    content = files.read(path)
    found: dict[str, Any] = {
        "enabled": content.enabled,
        "ttlHours": content.ttl,
        "filterFile": str(path),
        "topics": [row(entry, content, now) for entry in content.live(now)],
        "filterState": content.state,
    }
    if login:
        found["self"] = login
    warnings = {
        "absent": "this session receives nothing until it subscribes",
        "invalid": f"unparseable: {path} routes nothing; correct or remove it",
    }
    if content.state in warnings:
        found["warning"] = warnings[content.state]
    over = [entry.topic for entry in content.entries if entry.expired(content.ttl, now)]
    if over:
        found["expired"] = over
    watches = dispatch(directory, policy or {})
    if watches is not None:
        found["dispatch"] = watches
    return found


def dispatch(directory: Path, policy: dict[str, Any]) -> dict[str, Any] | None:
    """Return the standing watches; None where there is no list of them."""
    path = filter_path(directory, DISPATCH)
    content = files.read(path)
    if content.state in ("absent", "unconfigured"):
        return None
    now = time.time()
    governed = actions.govern(content, policy)
    rows = []
    for entry in governed.live(now):
        item = row(entry, governed, now)
        if entry.topic in policy:
            item["governed"] = True
        rows.append(item)
    found: dict[str, Any] = {"filterFile": str(path), "enabled": content.enabled, "topics": rows}
    if content.state == "invalid":
        found |= {
            "filterState": "invalid",
            "warning": f"unparseable: no standing watch works; correct or remove {path}",
        }
    elif (receiver(directory) or {}).get("spawn") is False:
        found["warning"] = "inert: the receiver of this box starts no sessions"
    return found


def receiver(directory: Path) -> dict[str, Any] | None:
    """Return what the receiver says about itself; None when it said nothing."""
    try:
        found = json.loads((directory / "receiver.json").read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def state_of(content: Filter, now: float) -> str:
    """Return the one word for a session: off, listening, absent, invalid or empty."""
    if not content.enabled:
        return "off"
    if content.state in ("absent", "invalid"):
        return content.state
    return "listening" if content.live(now) else "empty"


def peers(directory: Path) -> dict[str, list[int]]:
    """Return the living plugin processes by key; `` for shared ones, `-` for old ones."""
    found: dict[str, list[int]] = {}
    try:
        names = os.listdir(directory / "instances")  # noqa: PTH208
    except OSError:
        return found
    for name in names:
        parsed = peer_name(name)
        if parsed is not None and alive(parsed[1]):
            found.setdefault("-" if parsed[0] is None else parsed[0], []).append(parsed[1])
    return found


def peer_name(name: str) -> tuple[str | None, int] | None:
    """Return key and process of a plugin's socket; the key is None for those before 0.10."""
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix != "sock":
        return None
    key, dot, pid = stem.rpartition(".")
    if not pid.isascii() or not pid.isdigit():
        return None
    return (key if dot else None), int(pid)


def alive(pid: int) -> bool:
    """Tell whether a process exists."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0
