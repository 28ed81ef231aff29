"""Names of sessions and ids of agents: the one place that knows what is allowed.

A session name ends up in a tmux target, in file names and in URLs, hence the small character
set. Names with a leading `_` belong to the box itself (panes that it opens for its own purposes).
"""

from __future__ import annotations

import os

from agent_box.errors import ConflictError, UsageError

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

MAX_LENGTH = 150
"""Longest name that can be created: fits every name a webhook can ask for."""

SHELL = "shell"
"""The agent id that stands for the user's login shell; always there."""

TMUX_SOCKET = "agent-box"
"""How the tmux server of each user is called, as `tmux -L` takes it."""

_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_LAST_COUNTER = 9


def tmux_socket(runtime_dir: Path) -> Path:
    """Return the socket of the tmux server of the user who asks, as tmux itself names it."""
    return runtime_dir / f"tmux-{os.getuid()}" / TMUX_SOCKET


def is_valid(name: str) -> bool:
    """Tell whether `name` can be created."""
    return _charset_ok(name) and len(name) <= MAX_LENGTH and name[0] not in "-_"


def is_reserved(name: str) -> bool:
    """Tell whether `name` belongs to the box itself rather than to the user."""
    return name.startswith("_")


def check_new(name: str) -> str:
    """Return `name` if a session of that name may be created; raise UsageError otherwise."""
    check_existing(name)
    if name.startswith("_"):
        raise UsageError(
            f"the name {quote(name)} is reserved: names that start with '_' belong to the box;"
            " choose one that starts with a letter or a digit"
        )
    if name.startswith("-"):
        raise UsageError(
            f"the name {quote(name)} starts with '-', which commands would take for an option;"
            " choose one that starts with a letter or a digit"
        )
    if len(name) > MAX_LENGTH:
        raise UsageError(
            f"the name is {len(name)} characters long, the limit is {MAX_LENGTH}; shorten it"
        )
    return name


def check_existing(name: str) -> str:
    """Return `name` if a session could carry it, made by hand or not; else raise UsageError.

    Looser than `check_new` on purpose: whatever somebody wrote into the registry by hand can
    still be stopped and removed.
    """
    if not name:
        raise UsageError("the session name is empty; give one of letters, digits, '-' and '_'")
    if not _charset_ok(name):
        raise UsageError(
            f"{quote(name)} is not a session name; use letters, digits, '-' and '_' only"
        )
    return name


def check_agent(agent: str, installed: Iterable[str]) -> str:
    """Return `agent` if the box can run it (`installed` plus the shell); else raise UsageError."""
    known = sorted({*installed, SHELL})
    if agent in known:
        return agent
    raise UsageError(
        f"{quote(agent)} is not an agent of this box; choose one of {', '.join(known)}"
    )


def derive(
    agent: str,
    cwd: str | os.PathLike[str],
    home: str | os.PathLike[str],
    taken: Container[str],
) -> str:
    """Return a free name for a session that its creator did not name.

    First choice is the agent's own id, then the name of the working directory (unless that is
    the home directory) with a small counter, then the agent's id with random digits. The caller
    holds whatever lock keeps `taken` true until the name is stored.
    """
    if agent not in taken and is_valid(agent):
        return agent
    base = _fold(cwd, home)
    if base:
        for candidate in (base, *(f"{base}-{count}" for count in range(2, _LAST_COUNTER + 1))):
            if candidate not in taken:
                return candidate
    stem = agent if is_valid(f"{agent}-0000") else "session"
    # Four hex digits collide only on a box full of sessions; give up rather than spin then.
    for _ in range(10_000):
        candidate = f"{stem}-{os.urandom(2).hex()}"
        if candidate not in taken:
            return candidate
    raise ConflictError("no free session name is left; remove some sessions or give a name")


def quote(text: str, limit: int = 60) -> str:
    """Return `text` fit for a message: quoted, control characters escaped, cut to `limit`."""
    shown = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return repr(shown)


def _charset_ok(name: str) -> bool:
    return bool(name) and _CHARS.issuperset(name)


def _fold(cwd: str | os.PathLike[str], home: str | os.PathLike[str]) -> str | None:
    directory = os.path.realpath(cwd)
    if directory == os.path.realpath(home):
        return None
    folded = "".join(char if char in _CHARS else "-" for char in os.path.basename(directory))  # noqa: PTH119
    folded = folded.strip("-").lstrip("-_")
    # Two characters stay free for the counter.
    return folded if folded and len(folded) <= MAX_LENGTH - 2 else None
