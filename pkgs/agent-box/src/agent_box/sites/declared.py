"""The user's own list of sites: `~/.config/agent-box/sites.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent_box.errors import ConflictError, InternalError, NotFoundError, UsageError
from agent_box.locking import atomic_write, locked
from agent_box.sites import handover, model

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.config import User


def path_of(user: User) -> Path:
    """Return where the list is."""
    return user.sites_path


def read(user: User) -> tuple[bytes, dict[str, object]]:
    """Return the file's bytes and its raw entries; UsageError when it does not parse."""
    path = path_of(user)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b"", {}
    except OSError as error:
        raise InternalError(f"cannot read {path}: {error.strerror}") from error
    try:
        return data, model.parse(data)
    except UsageError as error:
        raise ConflictError(f"{path}: {error}. Nothing was changed: mend or remove it") from None


def add(user: User, name: str, entry: dict[str, Any]) -> bytes:
    """Add a checked site and return the file's new bytes; ConflictError if there is one."""
    with locked(path_of(user)):
        _, sites = read(user)
        if name in sites:
            raise ConflictError(
                f"there is a site {name} already; agent-box-site rm {name} removes it"
            )
        if len(sites) >= model.MOST_SITES:
            raise ConflictError(
                f"there are {len(sites)} sites already, and {model.MOST_SITES} is most"
            )
        return _write(user, {**sites, name: entry})


def change(user: User, name: str, changes: dict[str, Any]) -> bytes:
    """Change fields of a site and return the file's new bytes; NotFoundError if there is none.

    UsageError when the result would be no site.
    """
    with locked(path_of(user)):
        _, sites = read(user)
        entry = sites.get(name)
        if not isinstance(entry, dict):
            raise NotFoundError(f"there is no site {name}; agent-box-site ls lists them")
        entry = {**entry, **changes}
        model.check(name, entry)
        return _write(user, {**sites, name: entry})


def remove(user: User, name: str) -> bytes:
    """Remove a site and return the file's new bytes; NotFoundError if there is none."""
    with locked(path_of(user)):
        _, sites = read(user)
        if name not in sites:
            raise NotFoundError(f"there is no site {name}; agent-box-site ls lists them")
        del sites[name]
        return _write(user, sites)


def _write(user: User, sites: dict[str, object]) -> bytes:
    data = json.dumps({"version": 1, "sites": sites}, indent=2).encode() + b"\n"
    try:
        atomic_write(path_of(user), data)
    except OSError as error:
        raise InternalError(f"cannot write {path_of(user)}: {error.strerror}") from error
    # The supervisor notices as well, a little later.
    handover.send(user, handover.LIST + data)
    return data
