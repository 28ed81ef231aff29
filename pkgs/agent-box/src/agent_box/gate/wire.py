"""What requests carry: credentials, and facts that the edge adds."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.datastructures import Headers

COOKIE = "__Host-agent_box"
"""The prefix makes browsers refuse it from other hosts and without TLS."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_MAX_FIELD = 1024


@dataclasses.dataclass(frozen=True)
class Basic:
    """A name and a password. `repr` shows neither."""

    user: str = dataclasses.field(repr=False)
    password: str = dataclasses.field(repr=False)


MALFORMED = Basic("", "")
"""Something that calls itself Basic and is not: a credential that is wrong."""


def cookie(headers: Headers) -> str | None:
    """Return the token of a login; `None` unless there is exactly one of the right form."""
    values = [
        value.strip()
        for line in headers.getlist("cookie")
        for name, _, value in (item.partition("=") for item in line.split(";"))
        if name.strip() == COOKIE
    ]
    return values[0] if len(values) == 1 and _TOKEN.fullmatch(values[0]) else None


def has_cookie(headers: Headers) -> bool:
    """Tell whether the client believes to have a login, right or not."""
    return any(COOKIE in line for line in headers.getlist("cookie"))


def basic(headers: Headers) -> Basic | None:
    """Return the Basic credential; `None` when there is none.

    Without a password it is none: browsers send that for a mere `user@` in an address.
    """
    lines = headers.getlist("authorization")
    if not lines:
        return None
    scheme, _, value = lines[0].strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    if len(lines) > 1:
        return MALFORMED
    try:
        text = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return MALFORMED
    user, colon, password = text.partition(":")
    if not colon or len(user) > _MAX_FIELD or len(password) > _MAX_FIELD:
        return MALFORMED
    return Basic(user, password) if password else None


def single(headers: Headers, name: str) -> str | None:
    """Return the value of a header that must occur once; `None` otherwise."""
    values = headers.getlist(name)
    return values[0] if len(values) == 1 else None


def wants_page(headers: Headers, method: str) -> bool:
    """Tell whether the client would show a page to somebody."""
    if method not in ("GET", "HEAD", "POST") or "text/html" not in headers.get("accept", ""):
        return False
    return headers.get("sec-fetch-mode") in (None, "navigate")


def is_browser(headers: Headers) -> bool:
    """Tell whether a Basic challenge would make a browser open its own dialog."""
    return "sec-fetch-mode" in headers or "text/html" in headers.get("accept", "")


def set_cookie(token: str, seconds: float) -> str:
    """Return the `Set-Cookie` value that keeps a login, or ends it when `token` is empty."""
    age = int(seconds) if token else 0
    return f"{COOKIE}={token}; Path=/; Max-Age={age}; Secure; HttpOnly; SameSite=Strict"
