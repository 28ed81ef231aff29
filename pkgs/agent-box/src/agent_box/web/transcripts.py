"""The conversation of a session as a file, as its agent keeps it."""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box import agents, envfile
from agent_box.agents.base import Context, valid_uuid
from agent_box.errors import AgentBoxError
from agent_box.registry import Store
from agent_box.supervisor.record import Records
from agent_box.web.answers import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_box.config import Box, User


def find(box: Box, user: User, name: str) -> Path:
    """Return the transcript file of session `name`; Refusal (404) when there is none."""
    entry = Store(user).read().entry(name)
    if entry.agent in (*agents.NAMES,) and entry.id is not None:
        record = Records(user.state_dir).load(entry.id)
        env = _environment(user)
        context = Context(box, user, name, entry.id, entry, record, env)
        conversation = agents.get(entry.agent).conversation(context) or record.conversation
        if conversation is not None and valid_uuid(conversation):
            newest = max(_files(user, env, entry.agent, conversation), key=_modified, default=None)
            if newest is not None:
                return newest
    raise Refusal(
        HTTPStatus.NOT_FOUND,
        "no_transcript",
        f"session '{name}' has no transcript file: {entry.agent} has not stored one",
    )


def _environment(user: User) -> Mapping[str, str]:
    try:
        return envfile.read(user.env_path)
    except AgentBoxError:
        return {}


def _files(user: User, env: Mapping[str, str], agent: str, conversation: str) -> Iterator[Path]:
    def place(variable: str, default: str) -> Path:
        return Path(env.get(variable) or user.home / default)

    if agent == "claude":
        root, pattern = place("CLAUDE_CONFIG_DIR", ".claude") / "projects", "*/{}.jsonl"
    elif agent == "codex":
        root, pattern = place("CODEX_HOME", ".codex") / "sessions", "*/*/*/*-{}.jsonl"
    elif agent == "pi":
        root = place("PI_CODING_AGENT_DIR", ".pi/agent") / "sessions"
        pattern = "**/*_{}.jsonl"
    else:
        return
    yield from (path for path in root.glob(pattern.format(conversation)) if path.is_file())


def _modified(path: Path) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 - a path of a glob
    except OSError:
        return 0.0
