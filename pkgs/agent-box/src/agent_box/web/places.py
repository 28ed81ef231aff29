"""Directories of the user's home, for the picker and for new sessions.

Everything is resolved before it is compared with the home, so that neither `..` nor a symbolic
link leads out.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path
from typing import Any

from agent_box.web.answers import Refusal

MAX_LISTED = 500


def resolve(home: Path, text: str) -> Path:
    """Return the real path that `text` means, which may not exist yet.

    `~` and relative paths start at the home. Refusal when it lies outside.
    """
    if "\0" in text:
        raise Refusal(HTTPStatus.BAD_REQUEST, "usage", "a path cannot contain a NUL character")
    text = text.strip()
    if text in ("", "~") or text.startswith("~/"):
        text = text[2:].lstrip("/")
    root = os.path.realpath(home)
    try:
        real = os.path.realpath(os.path.join(root, text))  # noqa: PTH118 - absolute text replaces root
    except (OSError, ValueError):
        real = "/"
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise Refusal(
            HTTPStatus.BAD_REQUEST, "outside_home", f"{text[:200]} is outside your home directory"
        )
    return Path(real)


def show(home: Path, path: Path) -> str:
    """Return `path` the way people write it, from `~`."""
    root = os.path.realpath(home)
    text = str(path)
    if text == root:
        return "~"
    return f"~/{os.path.relpath(text, root)}" if text.startswith(root + "/") else text


def listing(home: Path, text: str) -> dict[str, Any]:
    """List the directories in the one that `text` means, hidden ones last.

    Refusal (404) when there is no such directory or it cannot be read.
    """
    path = resolve(home, text)
    root = os.path.realpath(home)
    try:
        with os.scandir(path) as entries:
            found = [entry.name for entry in entries if _inside(entry, root)]
    except OSError as error:
        raise Refusal(
            HTTPStatus.NOT_FOUND, "not_found", f"{show(home, path)}: {error.strerror}"
        ) from error
    names = [name for name in found if _printable(name)]
    names.sort(key=lambda name: (name.startswith("."), name.casefold()))
    return {
        "path": show(home, path),
        "directories": names[:MAX_LISTED],
        "truncated": len(names) > MAX_LISTED,
    }


def _inside(entry: os.DirEntry[str], root: str) -> bool:
    try:
        if not entry.is_symlink():
            return entry.is_dir()
        real = os.path.realpath(entry.path)
        return (real == root or real.startswith(root + "/")) and entry.is_dir()
    except OSError:
        return False


def _printable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()
