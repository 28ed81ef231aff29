"""From the bytes of a request to an event: parsing that nothing can break, and what is shown.

Text from outside is made harmless here, once, for everybody behind: rules of subscriptions, the
plugin of a session, prompts and screens all see the same event.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from agent_box.subscriptions.predicates import look
from agent_box.subscriptions.routing import Event
from agent_box.visible import visible

FIELD_MAX = 200
"""Characters of a name, key or text that are kept."""

MAX_DEPTH = 400
"""Deeper documents are refused: nobody's reader could take them."""

MAX_ELEMENTS = 1_000_000
"""More values than this are refused: as objects they would take gigabytes."""

OPEN, CLOSE = (
    "\N{MATHEMATICAL LEFT DOUBLE ANGLE BRACKET}",
    ("\N{MATHEMATICAL RIGHT DOUBLE ANGLE BRACKET}"),
)
"""The marks around text from outside; inside it they are replaced."""

_TABLE = {
    ord("\n"): " \N{RETURN SYMBOL} ",
    ord("\t"): " ",
    # Marks of ours
    ord(OPEN): "\N{MATHEMATICAL LEFT ANGLE BRACKET}",
    ord(CLOSE): "\N{MATHEMATICAL RIGHT ANGLE BRACKET}",
}


class BadPayloadError(ValueError):
    """The body is no JSON that anybody could use."""


class TooComplexError(ValueError):
    """The body holds more values than are worth the memory."""


@dataclass(frozen=True)
class Envelope:
    """An event as it goes over the wire to the plugin of a session."""

    source: str
    format: str
    event: str
    key: str
    sender: str
    delivery: str
    payload: Any

    def line(self) -> bytes:
        """Return the one line that a plugin process reads."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def as_event(self) -> Event:
        """Return what subscriptions look at."""
        return Event(self.source, self.event, self.key, self.sender, self.payload)

    @classmethod
    def parse(cls, line: bytes) -> Envelope:
        """Return the envelope that `line` made."""
        return cls(**json.loads(line))


def harmless(text: str) -> str:
    """Return what is `visible` of `text`, without marks of ours; ends of lines show as a sign."""
    return visible(text).translate(_TABLE)


def stringify(value: Any) -> str:
    """Return a value as the plugin writes it into a key or a name, at most FIELD_MAX long."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)[:FIELD_MAX]


def parse(body: bytes, content_type: str) -> Any:
    """Return the document in a body, made harmless.

    `content_type` tells a form, in whose field `payload` GitHub can send the document. Raises
    BadPayloadError for what is no JSON, TooComplexError for too much of it.
    """
    if content_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        body = _of_form(body)
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_ELEMENTS:
        raise TooComplexError
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadPayloadError from error
    return _cleaned(document)


def _of_form(body: bytes) -> bytes:
    try:
        text = body.decode("ascii")
        fields = parse_qs(text, strict_parsing=True, max_num_fields=100, errors="strict")
        (payload,) = fields["payload"]
    except (ValueError, KeyError) as error:
        raise BadPayloadError from error
    return payload.encode("utf-8", "surrogatepass")


def _cleaned(document: Any) -> Any:
    """Make a whole document harmless, level by level: recursion has its limits."""
    top = [document]
    layer: list[dict[str, Any] | list[Any]] = [top]
    for _ in range(MAX_DEPTH):
        following: list[dict[str, Any] | list[Any]] = []
        for part in layer:
            if isinstance(part, dict):
                for name, shown in [(name, harmless(name)) for name in part if not _plain(name)]:
                    if shown != name:
                        part[shown] = part.pop(name)
                items: Any = part.items()
            else:
                items = enumerate(part)
            for place, value in items:
                if isinstance(value, str):
                    part[place] = harmless(value)
                elif isinstance(value, float):
                    if not math.isfinite(value):
                        part[place] = None
                elif isinstance(value, (dict, list)):
                    following.append(value)
        if not following:
            return top[0]
        layer = following
    raise BadPayloadError


def _plain(name: str) -> bool:
    return name.isascii() and name.isprintable()


def envelope(
    source: str,
    document: Any,
    *,
    github: bool,
    key_path: str | None,
    sender_path: str | None,
    event: str | None,
    delivery: str | None,
) -> Envelope:
    """Return the event in a document; `event` and `delivery` are header values or None."""
    if event is None:
        for name in ("event", "type"):
            found = document.get(name) if isinstance(document, dict) else None
            if found is not None:
                break
        event = stringify(found)
    return Envelope(
        source=source,
        format="github" if github else "generic",
        event=harmless(event)[:FIELD_MAX],
        key=stringify(look(document, key_path)) if key_path else "",
        sender=stringify(look(document, sender_path)) if sender_path else "",
        delivery=harmless(delivery or "")[:FIELD_MAX],
        payload=document,
    )
