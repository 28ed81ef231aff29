"""The conversation of a session as a file, as its agent keeps it."""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from agent_box import agents, envfile
from agent_box.agents.base import Context
from agent_box.errors import AgentBoxError
from agent_box.registry import Store
from agent_box.supervisor.record import Records
from agent_box.web.answers import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent_box.config import Box, User


def find(box: Box, user: User, name: str) -> Path:
    """Return the transcript file of session `name`; Refusal (404) when there is none."""
    entry = Store(user).read().entry(name)
    if entry.id is not None:
        record = Records(user.state_dir).load(entry.id)
        context = Context(box, user, name, entry.id, entry, record, _environment(user))
        with contextlib.suppress(KeyError):
            if (transcript := agents.get(entry.agent).transcript(context)) is not None:
                return transcript
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
