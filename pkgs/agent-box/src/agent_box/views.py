"""The view of a session that is known by its name only: what every other view starts from."""

from __future__ import annotations

from typing import Any


def unmanaged(name: str) -> dict[str, Any]:
    """Return the view of a tmux session that the registry does not list."""
    return {
        "name": name,
        "agent": "-",
        "state": "unmanaged",
        "reason": None,
        "id": None,
        "pid": None,
        "workingDirectory": None,
        "promptPending": False,
        "restarts": 0,
        "since": 0.0,
        "idleSince": None,
        "credential": None,
        "lastCall": None,
        "nextRetry": None,
        "lastExit": None,
        "attached": 0,
        "limits": {"memoryMax": None, "tasksMax": None},
    }
