"""How sessions look on a terminal: aligned whatever the characters, no surprises from inside."""

from __future__ import annotations

import os
import sys
import time

from agent_box.visible import visible, visible_line

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_NAME_WIDTH = 24
_AGENT_WIDTH = 8
_STATE_WIDTH = 10
_COLOURS = {
    "starting": "36",
    "running": "32",
    "waiting": "33",
    "crashed": "31",
    "failed": "1;31",
    "stopped": "2",
    "unmanaged": "2",
}
_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def table(views: list[dict[str, Any]], *, colour: bool, now: float | None = None) -> list[str]:
    """Return the listing of `views`, header first. `now` is Unix time in seconds."""
    now = time.time() if now is None else now
    rows = [
        (line(view["name"]), line(view["agent"] or "-"), view["state"], note(view, now))
        for view in views
    ]
    name_width = max([_NAME_WIDTH, *(width(row[0]) for row in rows)])
    agent_width = max([_AGENT_WIDTH, *(width(row[1]) for row in rows)])
    lines = []
    for name, agent, state, remark in [("NAME", "AGENT", "STATE", "NOTE"), *rows]:
        shown = pad(line(state), _STATE_WIDTH) if remark else line(state)
        if colour and state in _COLOURS:
            shown = f"\x1b[{_COLOURS[state]}m{shown}\x1b[0m"
        cells = f"{pad(name, name_width)} {pad(agent, agent_width)} {shown}"
        lines.append(f"{cells} {remark}" if remark else cells)
    return lines


def note(view: dict[str, Any], now: float) -> str:
    """Return in words what the state of a session alone does not say."""
    parts = []
    reason = view.get("reason")
    last_exit = view.get("lastExit") or {}
    if not reason and view["state"] == "crashed":
        reason = last_exit.get("cause")
    if reason:
        parts.append(line(str(reason)))
    if (idle := view.get("idleSince")) is not None:
        parts.append(f"idle for {duration(max(0.0, now - idle))}")
    retry = view.get("nextRetry")
    if retry is not None and view["state"] in ("crashed", "starting"):
        left = retry - now
        parts.append(f"next try in {duration(left)}" if left >= 1 else "next try now")
    if view.get("promptPending"):
        parts.append("first task not delivered yet")
    return "; ".join(parts)


def details(view: dict[str, Any], *, now: float | None = None) -> list[str]:
    """Return all that `show` knows about a session, as aligned lines."""
    now = time.time() if now is None else now
    entry = view.get("entry") or {}
    limits = view.get("limits") or {}
    pairs: list[tuple[str, object]] = [
        ("name", view["name"]),
        ("agent", view["agent"]),
        ("state", view["state"]),
        ("note", note(view, now)),
        ("since", _moment(view.get("since"), now)),
        ("directory", view.get("workingDirectory")),
        ("id", view.get("id")),
        ("pid", view.get("pid")),
        ("attached", view.get("attached") or None),
        ("restarts", view.get("restarts")),
        ("memory limit", size(limits.get("memoryMax"))),
        ("task limit", limits.get("tasksMax")),
    ]
    labels = {
        "extraArgs": "arguments",
        "initialPrompt": "first task",
        "resumePrompt": "resume with",
        "skipPermissions": "skip permissions",
        "remoteControl": "remote control",
        "remoteControlName": "remote name",
    }
    pairs += [(label, entry.get(key)) for key, label in labels.items()]
    lines = [f"{label + ':':<17} {_value(value)}" for label, value in pairs if not _empty(value)]
    exits = view.get("exits") or []
    if exits:
        lines.append("exits:")
        lines += [f"  {_moment(item.get('at'), now)}  {line(item['cause'])}" for item in exits]
    return lines


def duration(seconds: float) -> str:
    """Return a span of time in words, to the unit that matters."""
    if seconds < 1:
        return "less than 1 s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} days"


def size(count: int | None) -> str | None:
    """Return `count` bytes in the largest binary unit that keeps it above 1."""
    if count is None:
        return None
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def line(text: str) -> str:
    """Return `text` fit for one line of a terminal: control characters become visible."""
    return visible_line(text, lambda char: f"\\x{ord(char):02x}")


def block(text: str) -> str:
    """Return `text` with its lines and tabs, without anything that steers a terminal."""
    return visible(text)


def width(text: str) -> int:
    """Return how many columns `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    columns = 0
    for char in text:
        if not unicodedata.combining(char):
            columns += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return columns


def pad(text: str, columns: int) -> str:
    """Return `text` filled up with blanks to `columns` columns."""
    return text + " " * (columns - width(text))


def use_colour() -> bool:
    """Tell whether stdout wants colour: a terminal, and NO_COLOR not set."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def enumerate_names(names: Iterable[str]) -> str:
    """Return `names` as a list in a sentence."""
    return ", ".join(line(name) for name in names)


def _moment(at: float | None, now: float) -> str | None:
    if not at:  # zero: nobody watched
        return None
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"{stamp} ({duration(max(now - at, 0))} ago)"


def _empty(value: object) -> bool:
    return value is None or value in ("", [])


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        import shlex

        return line(shlex.join(str(item) for item in value))
    text = str(value)
    limit = 400
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters; all of it with --json)"
    return line(text)
