"""What a request may do, from its path, method and origin. Pure functions.

The gate and the edge must read a path alike, or one of them guards another door than the other
opens. So the gate takes only paths that can be read in one way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

MAX_URI = 8192
"""Characters of path and query."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

OWN_PATHS = frozenset({"login", "logout", "gate", "auth"})
"""First segments that are the gate's."""

_PRINTABLE = re.compile(r"/[\x21-\x7e]*")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadPathError(ValueError):
    """The path could be read in two ways, or is none."""


def segments(uri: str) -> list[str]:
    """Return the decoded segments of the path of `uri`, "" for a slash at its end.

    BadPathError for everything that some program on the way might clean up, decode twice or cut
    off: empty and dot segments, encoded slashes, control characters, broken escapes.
    """
    if len(uri) > MAX_URI or not _PRINTABLE.fullmatch(uri):
        raise BadPathError
    path = uri.partition("?")[0]
    if "\\" in path or "#" in uri or _ESCAPE.search(path):
        raise BadPathError
    parts: list[str] = []
    for raw in path[1:].split("/"):
        try:
            part = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            raise BadPathError from None
        if part in (".", "..") or any(char in "/\\" or not char.isprintable() for char in part):
            raise BadPathError
        parts.append(part)
    if "" in parts[:-1]:
        raise BadPathError
    return parts


def owner(uri: str, users: Iterable[str]) -> str | None:
    """Return the user whose things `uri` is about; `None` when it is about nobody's.

    BadPathError as `segments`, and for a user's name in another case: the edge matches paths
    without regard to case.
    """
    first = segments(uri)[0]
    folded = first.casefold()
    for user in users:
        if user == first:
            return user
        if user.casefold() == folded:
            raise BadPathError
    return None


def landing(wanted: str, user: str, users: Iterable[str]) -> str:
    """Return where to go after signing in: `wanted`, if that is a place of `user` on this box."""
    home = f"/{user}/"
    try:
        whose = owner(wanted, users)
        first = segments(wanted)[0]
    except BadPathError:
        return home
    if whose == user:
        return wanted
    return home if whose is not None or first in OWN_PATHS or not first else wanted


def objection(
    *,
    method: str,
    upgrade: bool,
    origins: Container[str],
    origin: list[str],
    site: str | None,
    mode: str | None,
    with_cookie: bool,
) -> str | None:
    """Return why a request that carries a right credential is refused all the same, or `None`.

    `origin` are the `Origin` headers; `site` and `mode` are `Sec-Fetch-Site` and
    `Sec-Fetch-Mode`. Browsers send the cookie from pages of other boxes under the same suffix
    too, which count as the same site to them.
    """
    if len(origin) > 1:
        return "the request names two origins"
    given = origin[0] if origin else None
    if upgrade:
        return None if given is not None and given in origins else "the page has another origin"
    if method in SAFE_METHODS:
        foreign = site in ("cross-site", "same-site") and mode not in ("navigate", None)
        return "the page has another origin" if foreign else None
    if given is not None and given not in origins:
        return "the page has another origin"
    if site == "same-origin":
        return None
    if site not in (None, "none"):
        return "the page has another origin"
    if given is not None or (site is None and not with_cookie):
        return None
    return "the request does not tell its origin"
