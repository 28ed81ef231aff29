"""Where the files about webhooks are, and how a session's one is called.

Imported by the supervisor at every start of a session, hence no imports.
"""

from __future__ import annotations

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from pathlib import Path

DISPATCH = "dispatch"
"""The key of the list of standing watches, which all sessions share."""

SELF = "LOCAL_WEBHOOK_SELF"
"""The variable that tells who the user's agents are on GitHub."""

PORT_NONE = "0"
"""The plugin of a session opens no port: the box has one receiver for all."""

_KEY_DIGITS = 12


def state_dir(home: Path) -> Path:
    """Return the directory that the receiver, the plugin and the command line share."""
    return home / ".local/state/local-webhook"


def spool_dir(home: Path) -> Path:
    """Return the receiver's own directory, out of the plugin's sight."""
    return home / ".local/state/agent-box/webhook"


def key_of(session_id: str) -> str:
    """Return the key of a session in names of files and sockets.

    Made of the id, which outlives a rename. Short, because the plugin makes a UNIX socket of that
    name and the kernel allows 107 bytes of path.
    """
    return "s-" + session_id.replace("-", "").lower()[:_KEY_DIGITS]


def filter_path(directory: Path, key: str) -> Path:
    """Return the file of subscriptions of `key`; the empty key is that of no session."""
    return directory / (f"filter.{key}.json" if key else "filter.json")


def clean(text: str) -> str:
    """Return `text` as the plugin makes a key of it."""
    return "".join(char for char in text if char.isascii() and (char.isalnum() or char in "._-"))


def environment(home: Path, session_id: str, url: str) -> dict[str, str]:
    """Return the variables that lead the plugin and the command line to a session's own file."""
    found = {
        "LOCAL_WEBHOOK_SESSION": key_of(session_id),
        "LOCAL_WEBHOOK_STATE_DIR": str(state_dir(home)),
        "LOCAL_WEBHOOK_PORT": PORT_NONE,
        "AGENT_BOX_WEBHOOK_URL": url,
    }
    login = known_login(home)
    if login:
        found[SELF] = login
    return found


def known_login(home: Path) -> str | None:
    """Return the login that events of the user's own agents carry, if it was ever asked for."""
    try:
        lines = (state_dir(home) / "self.env").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name == SELF:
            return clean(value) or None
    return None


def forget(home: Path, session_id: str) -> None:
    """Remove the subscriptions of a session that is not listed any more."""
    path = filter_path(state_dir(home), key_of(session_id))
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
