"""The files of subscriptions, `filter.KEY.json`: tolerant reading, careful writing.

The plugin of a Claude session writes the same file, without a lock and dropping what it does not
know. So our writers lock among themselves, look again right before the rename, and use names for
temporary files that nobody else does; what a person added to a file survives us.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_box.agents import jsonfile
from agent_box.errors import ConflictError, InternalError
from agent_box.locking import locked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEFAULT_TTL = 1.0
"""Hours that a subscription lasts when nothing else is said."""

MOST_HOURS = 10**9
"""More is cut to that: arithmetic has its limits."""

WARM = 600.0
"""Seconds: an event this soon after the last one restarts the clock of its subscription."""

NOTE_MAX = 300

COMMENT = (
    "Subscriptions of an agent session to webhooks. Change them with agent-box-webhook"
    " subscribe and unsubscribe."
)

STATES = ("absent", "invalid", "unconfigured", "ok")


@dataclass
class Entry:
    """One subscription. Times are unix seconds, `ttl` is hours with 0 for ever."""

    topic: str
    note: str | None = None
    ttl: float | None = None
    renew: bool = False
    ignore: list[str] = field(default_factory=list)
    include: Any = None
    exclude: Any = None
    subscribed: float | None = None
    active: float | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Fields that we do not know."""

    @property
    def declarative(self) -> bool:
        """Whether rules about the content decide."""
        return self.include is not None or self.exclude is not None

    def expired(self, default: float, now: float) -> bool:
        """Tell whether its time is over; without a start it has not begun."""
        ttl = default if self.ttl is None else self.ttl
        return bool(ttl) and self.subscribed is not None and now - self.subscribed > ttl * 3600


@dataclass
class Filter:
    """The content of a file and what it means."""

    state: str
    enabled: bool = True
    ttl: float = DEFAULT_TTL
    entries: list[Entry] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def live(self, now: float) -> list[Entry]:
        """Return the subscriptions whose time is not over, in the order of the file."""
        return [entry for entry in self.entries if not entry.expired(self.ttl, now)]


def read(path: Path) -> Filter:
    """Return what `path` holds; whatever cannot be read routes nothing and says why in `state`."""
    try:
        content = path.read_bytes()
    except OSError:
        return Filter("absent")
    return parse(content)


def parse(content: bytes) -> Filter:
    """Return what the bytes of a file mean."""
    try:
        raw = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return Filter("invalid")
    if not isinstance(raw, dict):
        return Filter("invalid")
    topics = raw.get("topics")
    if not isinstance(topics, list):
        legacy = raw.get("repos")
        topics = [_legacy(item) for item in legacy] if isinstance(legacy, list) else None
    known = ("//", "enabled", "ttlHours", "topics", "repos")
    more = {key: value for key, value in raw.items() if key not in known}
    ttl = _hours(raw.get("ttlHours"))
    result = Filter(
        "unconfigured" if topics is None else "ok",
        enabled=raw.get("enabled") is not False,
        ttl=DEFAULT_TTL if ttl is None else ttl,
        more=more,
    )
    for item in topics or []:
        entry = _entry(item)
        if entry is not None:
            result.entries.append(entry)
    return result


def _legacy(item: Any) -> Any:
    return f"github:{item}" if isinstance(item, str) else None


def _entry(item: Any) -> Entry | None:
    if isinstance(item, str):
        return Entry(item)
    if not isinstance(item, dict) or not isinstance(item.get("topic"), str):
        return None
    note = item.get("note")
    ignore = item.get("ignoreSenders")
    known = {
        *("topic", "note", "ttlHours", "renewOnEvent", "ignoreSenders", "include", "exclude"),
        *("when", "drop", "subscribedAt", "lastActivityAt"),
    }
    return Entry(
        topic=item["topic"],
        note=note[:NOTE_MAX] if isinstance(note, str) and note else None,
        ttl=_hours(item.get("ttlHours")),
        renew=item.get("renewOnEvent") is True,
        ignore=[name for name in ignore if isinstance(name, str) and name.strip()]
        if isinstance(ignore, list)
        else [],
        include=item["include"] if "include" in item else item.get("when"),
        exclude=item["exclude"] if "exclude" in item else item.get("drop"),
        subscribed=parse_time(item.get("subscribedAt")),
        active=parse_time(item.get("lastActivityAt")),
        more={key: value for key, value in item.items() if key not in known},
    )


def _hours(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return min(value, MOST_HOURS) if value >= 0 and value != math.inf else None


def parse_time(text: Any) -> float | None:
    """Return the unix time that an ISO 8601 text stands for, None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        moment = dt.datetime.fromisoformat(text).timestamp()
        format_time(moment)  # years 1 to 9999 in UTC, too
    except (ValueError, OverflowError):
        return None
    return moment


def format_time(moment: float) -> str:
    """Return a unix time the way that every reader of these files understands."""
    when = dt.datetime.fromtimestamp(moment, dt.UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


def serialize(content: Filter, now: float) -> bytes:
    """Return the bytes of a file."""
    raw: dict[str, Any] = {
        "//": COMMENT,
        "enabled": content.enabled,
        "ttlHours": _number(content.ttl),
        "topics": [_raw(entry, now) for entry in content.entries],
    }
    text = json.dumps(raw | content.more, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _raw(entry: Entry, now: float) -> dict[str, Any]:
    start = now if entry.subscribed is None else entry.subscribed
    raw: dict[str, Any] = {"topic": entry.topic, "subscribedAt": format_time(start)}
    optional = {
        "note": entry.note,
        "ttlHours": None if entry.ttl is None else _number(entry.ttl),
        "renewOnEvent": entry.renew or None,
        "ignoreSenders": entry.ignore or None,
        "include": entry.include,
        "exclude": entry.exclude,
        "lastActivityAt": None if entry.active is None else format_time(entry.active),
    }
    return raw | {key: value for key, value in optional.items() if value is not None} | entry.more


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def change(
    path: Path, edit: Callable[[Filter], bool], now: float, *, replace_invalid: bool = False
) -> Filter:
    """Apply `edit` to the file and write it if that returns True; return what then is in force.

    Raises ConflictError for a file that does not parse, unless `replace_invalid`: then the broken
    one is kept beside it under another name. InternalError when it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    result = Filter("absent")
    wanted: bytes | None = None

    def apply(content: bytes | None) -> bytes | None:
        nonlocal result, wanted
        if wanted is not None and content == wanted:
            return None  # asked again, to see that the change survived
        result = Filter("absent") if content is None else parse(content)
        if result.state == "invalid":
            if not replace_invalid:
                raise ConflictError(
                    f"{path} does not parse, so nothing was changed; correct it, or remove it"
                )
            result = Filter("absent")
        if not edit(result):
            return None
        result.state = "ok"
        wanted = serialize(result, now)
        return wanted

    with locked(path):
        if replace_invalid:
            _set_aside(path, now)
        try:
            jsonfile.edit(path, apply)
        except jsonfile.Unfit as error:
            raise InternalError(f"{error}; move it away") from error
        except OSError as error:
            raise InternalError(
                f"cannot write {path}: {error.strerror}; nothing was changed"
            ) from error
    return result


def _set_aside(path: Path, now: float) -> None:
    """Keep a copy of a file that does not parse: somebody's watches may be in it."""
    try:
        content = path.read_bytes()
    except OSError:
        return
    if parse(content).state == "invalid":
        path.rename(path.with_name(f"{path.name}.corrupt-{int(now)}"))
