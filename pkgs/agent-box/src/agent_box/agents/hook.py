"""agent-box-hook: what claude runs whenever it begins or continues a conversation.

Claude moves on to a new conversation id by itself (on /clear, for one). The hook notes which id
a launch is at now, in `~/.local/state/agent-box/live/<launch id>`. It prints nothing and always
succeeds, since claude shows its output to the model and its failures to the user.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def record(payload: bytes, launch_id: str, home: Path) -> Path | None:
    """Store the conversation id of the hook's JSON input; return the file, None if not sound."""
    import json

    from agent_box.agents.base import valid_uuid

    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    conversation = document.get("session_id") if isinstance(document, dict) else None
    if not isinstance(conversation, str) or not valid_uuid(conversation):
        return None
    if not valid_uuid(launch_id):
        return None
    directory = home / ".local" / "state" / "agent-box" / "live"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / launch_id
    temporary = directory / f".{launch_id}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(conversation + "\n")
    temporary.rename(path)
    return path


def main() -> int:
    """Read the hook's input to its end (claude dislikes a closed pipe) and record the id."""
    try:
        payload = sys.stdin.buffer.read()
        home = os.environ.get("HOME")
        if home:
            record(payload, os.environ.get("AGENT_BOX_SESSION_ID", ""), Path(home))
    except OSError:
        # A full disk or a lost home costs a resume its newest id, never the session itself.
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
