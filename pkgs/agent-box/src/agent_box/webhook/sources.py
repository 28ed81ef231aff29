"""Who may send: `sources.json` and the secrets beside it, read anew for every request.

The plugin knows the same file; keys that only we know (`scheme`, `secretFiles`, `replayHours`) do
not disturb it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box.errors import ConflictError, UsageError
from agent_box.locking import atomic_write, locked
from agent_box.webhook.verify import DEFAULT, SCHEMES

if TYPE_CHECKING:
    from pathlib import Path

REPLAY_HOURS = 72.0
"""Hours for which the same signed content counts as a repetition."""

REPLAY_HOURS_GITHUB = 90 * 24.0
"""The same for GitHub, none of whose deliveries equals another."""

SHORT_SECRET = 16
"""Secrets with fewer bytes can be guessed."""

PRESETS: dict[str, dict[str, Any]] = {
    "stripe": {"scheme": "stripe", "keyPath": "data.object.object", "replayHours": 1},
    "slack": {"scheme": "slack", "keyPath": "event.channel", "senderPath": "event.user"},
    "gitlab": {
        "scheme": "token",
        "signatureHeader": "x-gitlab-token",
        "eventHeader": "x-gitlab-event",
        "deliveryHeader": "x-gitlab-event-uuid",
        "keyPath": "project.path_with_namespace",
        "senderPath": "user_username",
    },
    "shopify": {
        "scheme": "hmac-sha256-base64",
        "eventHeader": "x-shopify-topic",
        "deliveryHeader": "x-shopify-webhook-id",
        "keyPath": "admin_graphql_api_id",
    },
}
"""What `setup` writes for senders whose ways are known."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Source:
    """One sender."""

    name: str
    github: bool
    scheme: str
    signature_header: str
    event_header: str
    delivery_header: str
    key_path: str | None
    sender_path: str | None
    secrets: tuple[bytes, ...]
    replay_hours: float


@dataclass(frozen=True)
class Sources:
    """All senders, and the one that a path without a name means."""

    default: str
    known: dict[str, Source]

    def find(self, name: str) -> Source | None:
        """Return the source of that name; the empty one is the default."""
        return self.known.get(name or self.default)


def load(directory: Path) -> Sources:
    """Return the sources of `directory`; whatever makes no sense is not there."""
    raw = _raw(directory)
    default = raw.get("defaultSource")
    entries = raw.get("sources")
    known = {
        name: _source(directory, name, config)
        for name, config in (entries.items() if isinstance(entries, dict) else ())
        if isinstance(config, dict)
    }
    return Sources(default if isinstance(default, str) and default else "github", known)


def _raw(directory: Path) -> dict[str, Any]:
    try:
        raw = json.loads((directory / "sources.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _source(directory: Path, name: str, config: dict[str, Any]) -> Source:
    form = config.get("format")
    github = form == "github" if form in ("github", "generic") else name == "github"
    scheme = config.get("scheme", DEFAULT)

    def text(key: str, default: str | None) -> str | None:
        value = config.get(key)
        return value if isinstance(value, str) and value else default

    def header(key: str, default: str) -> str:
        return (text(key, default) or default).lower()

    kind = SCHEMES.get(scheme) if isinstance(scheme, str) else None
    replay = config.get("replayHours")
    return Source(
        name=name,
        github=github,
        scheme=scheme if kind else "unknown",
        signature_header=header("signatureHeader", kind.header if kind else "-"),
        event_header=header("eventHeader", "x-github-event" if github else "x-webhook-event"),
        delivery_header=header(
            "deliveryHeader", "x-github-delivery" if github else "x-webhook-delivery"
        ),
        key_path=text("keyPath", "repository.full_name" if github else None),
        sender_path=text("senderPath", "sender.login" if github else None),
        secrets=_secrets(directory, config) if kind else (),
        replay_hours=float(replay)
        if isinstance(replay, (int, float)) and not isinstance(replay, bool) and replay >= 0
        else (REPLAY_HOURS_GITHUB if github else REPLAY_HOURS),
    )


def _secrets(directory: Path, config: dict[str, Any]) -> tuple[bytes, ...]:
    """Return every secret that counts: more than one while it is being changed."""
    found: list[bytes] = []
    inline = config.get("secret")
    if isinstance(inline, str) and inline.strip():
        found.append(inline.strip().encode("utf-8", "replace"))
    names = [] if found else [config.get("secretFile")]
    more = config.get("secretFiles")
    names += more if isinstance(more, list) else []
    for name in names:
        if not isinstance(name, str) or not name or "\0" in name:
            continue
        try:
            secret = (directory / name).read_bytes().strip()
        except OSError:
            continue
        if secret and secret not in found:
            found.append(secret)
    return tuple(found)


@dataclass(frozen=True)
class Prepared:
    """A source that is ready to be registered at its sender."""

    source: Source
    secret: str
    fresh: bool


def prepare(
    directory: Path, name: str, *, rotate: bool = False, secret: str | None = None
) -> Prepared:
    """Give the source `name` a secret unless it has one, and list it; others stay as they are.

    `rotate` makes a new one and lets the old ones count, too. `secret` is one that the sender
    made. Raises UsageError for a name that no address can have.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name[:80]}': invalid source name; use letters, digits, '_' and '-'")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / "sources.json"
    with locked(path):
        raw = _load_strictly(path)
        listed = raw.setdefault("sources", {})
        if not isinstance(listed, dict):
            raise ConflictError(f'{path}: "sources" is no object; correct it')
        known = load(directory).known.get(name)
        if known is not None and known.secrets and not rotate and secret is None:
            return Prepared(known, known.secrets[0].decode("utf-8", "replace"), fresh=False)
        if known is None and not isinstance(listed.get(name), dict):
            listed[name] = dict(PRESETS.get(name, {}))
        config = listed[name]
        value = os.urandom(16).hex() if secret is None else secret.strip()
        if not value or "\n" in value:
            raise UsageError("a secret is one line that is not empty")
        file = f"{name}.secret"
        if rotate and known is not None and known.secrets:
            file = _rotate(directory, name, config)
        atomic_write(directory / file, value.encode())
        config["secretFile"] = file
        # An inline one would win over the file.
        config.pop("secret", None)
        raw.setdefault("defaultSource", name)
        atomic_write(path, json.dumps(raw, indent=2, ensure_ascii=False).encode() + b"\n")
    return Prepared(load(directory).known[name], value, fresh=True)


def _rotate(directory: Path, name: str, config: dict[str, Any]) -> str:
    """Keep the present secret among those that still count; return a file for the new one."""
    older = config.get("secretFiles")
    kept = [item for item in older if isinstance(item, str)] if isinstance(older, list) else []
    inline = config.get("secret")
    if isinstance(inline, str) and inline.strip():
        file = f"{name}.{os.urandom(4).hex()}.secret"
        atomic_write(directory / file, inline.strip().encode())
        kept.insert(0, file)
    elif isinstance(config.get("secretFile"), str):
        kept.insert(0, config["secretFile"])
    config["secretFiles"] = kept[:2]
    return f"{name}.{os.urandom(4).hex()}.secret"


def remove(directory: Path, name: str) -> bool:
    """Forget a source and its secrets; return whether there was one."""
    path = directory / "sources.json"
    with locked(path):
        raw = _load_strictly(path)
        listed = raw.get("sources")
        if not isinstance(listed, dict) or name not in listed:
            return False
        config = listed.pop(name)
        if raw.get("defaultSource") == name:
            del raw["defaultSource"]
        atomic_write(path, json.dumps(raw, indent=2, ensure_ascii=False).encode() + b"\n")
    files = [config.get("secretFile"), *(config.get("secretFiles") or [])]
    for file in files:
        # Only what lies beside the list: another place is somebody else's.
        if isinstance(file, str) and "/" not in file and file.endswith(".secret"):
            (directory / file).unlink(missing_ok=True)
    return True


def retire(directory: Path) -> bool:
    """Remove a list that says nothing any more; return whether there is none.

    A box starts with a receiver for those who have a list (see `subscriptions.receiving`).
    """
    path = directory / "sources.json"
    if not path.exists():
        return True
    try:
        with locked(path):
            if any(_load_strictly(path).values()):
                return False
            path.unlink(missing_ok=True)
            return True
    except (ConflictError, OSError):
        return False


def _load_strictly(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict):
        raise ConflictError(f"{path} does not parse, so nothing was changed; correct or remove it")
    return raw
