"""agent-box-hook: what agents run when something happens to them.

Each agent has a way of its own to say that it begins to work, is done, asks somebody or was
refused by its vendor; all of them come down to one word for the supervisor (`WORDS`), sent as a
datagram that names the pane. How to call it:

``agent-box-hook``              by claude, which gives a JSON document on standard input
``agent-box-hook codex JSON``   by codex (its setting `notify`)
``agent-box-hook WORD``         by the plugins of the others
``agent-box-hook output TOKEN`` by tmux, with the output of a pane on standard input: it is handed
                                to the supervisor (see `supervisor.ears`)

Claude moves on to a new conversation id by itself (on /clear, for one). At its SessionStart the
hook also notes which id a launch is at now, in `~/.local/state/agent-box/live/<launch id>`.

It prints nothing and always succeeds: claude shows its output to the model and its failures to
the user.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

WORKING, IDLE, ASKS = "working", "idle", "asks"
REFUSED, FAILED = "refused", "failed"
WORDS = (WORKING, IDLE, ASKS, REFUSED, FAILED)
"""A turn has begun; it has ended; somebody is needed; it came to nothing because the vendor refused
the login; or for another reason."""

_REFUSALS = ("authentication_failed", "oauth_org_not_allowed", "billing_error")
_QUESTIONS = ("permission_prompt", "elicitation_dialog")


def record(document: object, launch_id: str, home: Path) -> Path | None:
    """Store the conversation id of the hook's input; return the file, None if not sound."""
    from agent_box.agents.base import valid_uuid

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


def word_of_claude(document: dict[str, object]) -> str | None:
    """Return what a hook event of claude means; None for one that tells nothing new."""
    event, kind = document.get("hook_event_name"), document.get("notification_type")
    if event == "UserPromptSubmit":
        return WORKING
    if event == "StopFailure":
        return REFUSED if document.get("error") in _REFUSALS else FAILED
    if event == "Stop" or (event == "Notification" and kind == "idle_prompt"):
        return IDLE
    if event == "PermissionRequest" or (event == "Notification" and kind in _QUESTIONS):
        return ASKS
    return None


def word_of_codex(document: dict[str, object]) -> str | None:
    """Return what a notification of codex means."""
    return IDLE if document.get("type") == "agent-turn-complete" else None


def send(word: str, env: dict[str, str]) -> None:
    """Tell the supervisor, if this runs in a pane of the box and not in one of a nested tmux."""
    from agent_box.naming import tmux_socket

    runtime, pane = env.get("TMUX_TMPDIR", ""), env.get("TMUX_PANE", "")
    server = env.get("TMUX", "").partition(",")[0]
    if not runtime or server != str(tmux_socket(Path(runtime))):
        return
    _deliver(runtime, {"event": "signal", "pane": pane, "word": word})


def hand_over(token: str, env: dict[str, str]) -> None:
    """Give the supervisor the standard input, which is its pane's as `token` tells it."""
    _deliver(env.get("TMUX_TMPDIR", ""), {"event": "output", "token": token}, 0)


def _deliver(runtime: str, message: dict[str, str], *files: int) -> None:
    import json
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)
        sock.connect(f"{runtime}/notify.sock")
        socket.send_fds(sock, [json.dumps(message).encode()], files)


def _parse(text: str | bytes) -> dict[str, object]:
    import json

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def main() -> int:
    """Take one event in whatever form it comes, and pass it on."""
    words, env = sys.argv[1:], dict(os.environ)
    word: str | None = None
    try:
        if not words:
            # To its end: claude dislikes a closed pipe.
            document = _parse(sys.stdin.buffer.read())
            word = word_of_claude(document)
            if (
                env.get("HOME")
                and document.get("hook_event_name", "SessionStart") == "SessionStart"
            ):
                record(document, env.get("AGENT_BOX_SESSION_ID", ""), Path(env["HOME"]))
        elif words[0] == "codex":
            word = word_of_codex(_parse(words[-1]))
        elif words[0] == "output":
            hand_over(words[-1], env)
        elif words[0] in WORDS:
            word = words[0]
        if word is not None:
            send(word, env)
    except OSError:
        # A full disk, a lost home, a supervisor that is away: the session goes on all the same.
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
