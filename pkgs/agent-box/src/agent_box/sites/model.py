"""What a site is, and which entries of a user's file are one."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

import msgspec

from agent_box.errors import UsageError

MOST_BYTES = 256 * 1024
"""A larger file is not read."""

MOST_SITES = 20
"""Sites that one user can have; every one needs a certificate of its own."""

LOWEST_PORT, HIGHEST_PORT = 1024, 65535

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""A site's name, and the first part of its host name."""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a user's file. Exactly one of `port` and `dir` is set."""

    port: int | None = None
    """TCP port of 127.0.0.1 or ::1 that a program of the user listens on."""
    dir: str | None = None
    """Folder below `~/sites`, absolute or relative to `~/sites`."""
    public: bool = False
    """Whether everybody may look; otherwise it takes the user's password."""
    host: str | None = None
    """First part of the host name, in place of `<name>-<user>`."""


class DuplicateError(ValueError):
    """A JSON object has a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateError("a name occurs twice")
    return found


def parse(data: bytes) -> dict[str, object]:
    """Return the raw entries by name; UsageError says why the file as a whole is no list of sites.

    A file that is empty or absent is a list without sites.
    """
    if len(data) > MOST_BYTES:
        raise UsageError(f"the file is larger than {MOST_BYTES // 1024} KiB")
    if not data.strip():
        return {}
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError:
        raise UsageError("the file is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"the file is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("version") != 1:
        raise UsageError('the file does not begin with {"version": 1, "sites": {…}}')
    sites = document.get("sites", {})
    if not isinstance(sites, dict) or set(document) - {"version", "sites"}:
        raise UsageError('the file holds more than "version" and an object "sites"')
    return sites


def check_name(name: str) -> None:
    """Raise UsageError unless `name` can be a site's."""
    if not LABEL.fullmatch(name):
        raise UsageError(
            f"{name[:60]!r} is no name of a site: use 1 to 40 of a-z, 0-9 and -, without - at"
            " either end"
        )


def check(name: str, raw: object) -> Site:
    """Return the entry as a site, or raise UsageError that says what is wrong with it."""
    check_name(name)
    try:
        site = msgspec.convert(raw, Site)
    except msgspec.ValidationError as error:
        raise UsageError(f"the entry is malformed: {str(error)[:200]}") from None
    if (site.port is None) == (site.dir is None):
        raise UsageError('the entry needs either "port" or "dir"')
    if site.port is not None and not LOWEST_PORT <= site.port <= HIGHEST_PORT:
        raise UsageError(f"port {site.port} is not within {LOWEST_PORT}-{HIGHEST_PORT}")
    if site.host is not None and not LABEL.fullmatch(site.host):
        raise UsageError(
            "host is one part of a host name (1 to 40 of a-z, 0-9 and -): the box's own name"
            " follows behind it"
        )
    return site


def below_sites(directory: str, home: str) -> str:
    """Return the path of a folder relative to `~/sites`; UsageError when it is not below that.

    Only looks at the text; whoever opens the folder looks at links.
    """
    root = PurePosixPath(home, "sites")
    path = root / directory
    if not path.is_relative_to(root) or path == root:
        raise UsageError(f"the folder is not below {root}")
    relative = path.relative_to(root)
    if not all(_SEGMENT.fullmatch(part) for part in relative.parts):
        raise UsageError(
            "the folder's path holds other characters than A-Z, a-z, 0-9, _, - and ., or a part"
            " that begins with a dot"
        )
    if len(str(relative)) > 400:
        raise UsageError("the folder's path is too long")
    return str(relative)
