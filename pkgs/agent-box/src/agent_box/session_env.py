"""The variables that single sessions have of their own, beside those of all: found by name.

Each file (see `envfile`) goes by the session's id, so that it stays with one that is renamed.
"""

from __future__ import annotations

from agent_box import envfile
from agent_box.errors import ConflictError
from agent_box.registry import Store

TYPE_CHECKING = False  # spares each start of the command line the import of typing
if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.config import User


def path_of(user: User, name: str) -> Path:
    """Return the file of session `name`; NotFoundError when there is none of that name.

    ConflictError while the session has no id yet, because no supervisor has seen it.
    """
    entry = Store(user).read().entry(name)
    if entry.id is None:
        raise ConflictError(f"session '{name}' is new: start it once, then try again")
    return user.session_env_path(entry.id)


def keys(user: User) -> dict[str, list[str]]:
    """Return the names of such variables, by the name of the session."""
    entries = Store(user).read().entries
    paths = {name: user.session_env_path(e.id) for name, e in entries.items() if e.id is not None}
    found = {name: envfile.keys(path) for name, path in paths.items()}
    return {name: names for name, names in found.items() if names}
