"""The guide that tells an agent about its box, and the links that lead agents to it.

An agent reads instructions of its user from one fixed place. Where that place is empty it becomes
a link to the guide. A project's own files are never touched: a file that the user did not put
there would end up in somebody's commit.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

DIRECTORY = Path("/etc/agent-box-guides")
"""Where the module puts the guides; `AGENT_BOX_GUIDES` overrides it."""


def path_of(user: str) -> Path:
    """Return where the guide for the agents of `user` is, if there is any."""
    return Path(os.environ.get("AGENT_BOX_GUIDES") or DIRECTORY) / f"AGENTS.{user}.md"


def link(place: Path, user: str) -> None:
    """Make `place` a link to the user's guide if nothing is there and no checkout is around it.

    A link of ours whose guide is gone is removed. Never raises: an agent also works without.
    """
    guide = path_of(user)
    with contextlib.suppress(OSError):
        if not guide.exists():
            if place.is_symlink() and place.readlink() == guide:
                place.unlink()
            return
        if os.path.lexists(place) or _in_checkout(place.parent):
            return
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.symlink_to(guide)


def _in_checkout(directory: Path) -> bool:
    """Tell whether the directory, followed through links, is part of a git work tree."""
    real = Path(os.path.realpath(directory))
    return any(os.path.lexists(each / ".git") for each in (real, *real.parents))
