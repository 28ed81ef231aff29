"""Who the user's agents are on GitHub, for `@self` in subscriptions.

Asked of `gh` once and kept in `self.env`, which systemd and shells can read as well.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box import envfile
from agent_box.errors import AgentBoxError
from agent_box.locking import atomic_write
from agent_box.subscriptions.place import clean, known_login, state_dir

if TYPE_CHECKING:
    from agent_box.config import User

PATIENCE = 8.0
AGAIN = 3600.0
"""Seconds after a failed look-up in which it is not tried again unless asked to."""


def resolve(user: User, *, refresh: bool = False) -> str | None:
    """Return the login; None when it is not known and cannot be found out."""
    given = clean(os.environ.get("LOCAL_WEBHOOK_SELF", ""))
    if given and not refresh:
        return given
    directory = state_dir(user.home)
    known = known_login(user.home)
    mark = _mark(user)
    if not refresh and (_same(directory, mark) or _just_failed(directory, mark)):
        return known
    found = _ask(user)
    if found is None:
        _write(directory / ".self-attempt", f"{int(time.time())} {mark}\n")
        return known
    _write(
        directory / "self.env",
        "# Who this box is on GitHub, made by agent-box-webhook.\n"
        f"# fp={mark}\nLOCAL_WEBHOOK_SELF={found}\n",
    )
    return found


def _ask(user: User) -> str | None:
    import subprocess  # here, because it is hardly ever needed

    try:
        done = subprocess.run(
            ["gh", "api", "user", "--jq", ".login"],
            env={**os.environ, **_tokens(user)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return clean(done.stdout.strip()) or None


def _tokens(user: User) -> dict[str, str]:
    names = ("GH_TOKEN", "GITHUB_TOKEN")
    try:
        stored = envfile.read(user.env_path)
    except AgentBoxError:
        stored = {}
    found = {name: stored.get(name) or os.environ.get(name, "") for name in names}
    return {name: value for name, value in found.items() if value}


def _mark(user: User) -> str:
    tokens = _tokens(user)
    text = f"{tokens.get('GH_TOKEN', '')}\n{tokens.get('GITHUB_TOKEN', '')}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _same(directory: Path, mark: str) -> bool:
    try:
        return f"# fp={mark}" in Path(directory / "self.env").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False


def _just_failed(directory: Path, mark: str) -> bool:
    try:
        moment, _, other = (directory / ".self-attempt").read_text("utf-8").strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return False
    return other == mark and moment.isdigit() and time.time() - int(moment) < AGAIN


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write(path, text.encode(), 0o644, durable=False)
