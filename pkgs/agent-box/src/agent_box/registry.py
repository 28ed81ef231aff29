"""The registry: which sessions of a user should exist.

`sessions.json` is the user's own file and stays editable by hand. It is parsed strictly; a
file that does not parse is never written over, and the last good content stays in force.
Entries keep the fields that this version does not know. Every write is atomic and durable
before it is acknowledged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agent_box import naming
from agent_box.errors import ConflictError, NotFoundError, UsageError
from agent_box.locking import atomic_write, locked

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box.config import Box, Seed, User

log = logging.getLogger(__name__)

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
"""A larger registry is a mistake, not a list of sessions."""


MAX_DEPTH = 100
"""Nesting of the document; entries need three."""


class RegistryError(ConflictError):
    """The registry cannot be used as it stands. Nothing was written."""


class _Fields(msgspec.Struct, rename="camel"):
    """Fields of an entry that we read, with their types; the rest is kept as it is."""

    agent: str
    skip_permissions: bool | None = None
    remote_control: bool | None = None
    remote_control_name: str | None = None
    working_directory: str | None = None
    extra_args: list[str] | None = None
    initial_prompt: str | None = None
    resume_prompt: str | None = None
    box_session_id: str | None = None
    stopped: bool | None = None


_FIELD_NAMES = tuple(info.encode_name for info in msgspec.structs.fields(_Fields))


@dataclass(frozen=True)
class Entry:
    """One listed session, defaults filled in."""

    name: str
    agent: str
    working_directory: str
    skip_permissions: bool = True
    remote_control: bool = True
    remote_control_name: str | None = None
    extra_args: list[str] = field(default_factory=list)
    initial_prompt: str | None = None
    resume_prompt: str | None = None
    id: str | None = None
    stopped: bool = False


@dataclass
class Document:
    """A parsed registry: the raw JSON and what it means."""

    raw: dict[str, Any]
    entries: dict[str, Entry] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)
    """Entries that make no sense, with the reason; the others are unaffected."""

    @property
    def sessions(self) -> dict[str, Any]:
        """The raw entries by name."""
        sessions: dict[str, Any] = self.raw["sessions"]
        return sessions

    def entry(self, name: str) -> Entry:
        """Return the entry of `name` or say why there is none."""
        if name in self.invalid:
            raise ConflictError(f"session '{name}': {self.invalid[name]}; correct sessions.json")
        try:
            return self.entries[name]
        except KeyError:
            raise NotFoundError(f"no session '{name}'; `agent-box-session ls` lists them") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"the key {twice[0]!r} stands there twice")
    return result


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _check_depth(raw: object) -> None:
    """Refuse what could be read and not written again: the writer recurses deeper."""
    layer, depth = [raw], 0
    while layer:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        inner: list[object] = []
        for item in layer:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        layer = [item for item in inner if isinstance(item, (dict, list))]


def parse(data: bytes, home: str) -> Document:
    """Parse `data`; raise `ValueError` when it is no registry as a whole."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        raw = json.loads(
            data.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(raw)
    if not isinstance(raw, dict) or not isinstance(raw.get("sessions"), dict):
        raise ValueError(  # noqa: TRY004  (what is wrong is the file, not a caller)
            'it is not an object with a "sessions" object in it'
        )
    document = Document(raw)
    seen: dict[str, str] = {}
    for name, item in raw["sessions"].items():
        reason = _invalid(name, item, seen)
        if reason:
            document.invalid[name] = reason
            continue
        fields = _fields(item)
        if fields.box_session_id:
            seen[fields.box_session_id] = name
        document.entries[name] = Entry(
            name=name,
            agent=fields.agent,
            working_directory=fields.working_directory or home,
            skip_permissions=fields.skip_permissions is not False,
            remote_control=fields.remote_control is not False,
            remote_control_name=fields.remote_control_name,
            extra_args=fields.extra_args or [],
            initial_prompt=fields.initial_prompt or None,
            resume_prompt=fields.resume_prompt or None,
            id=fields.box_session_id,
            stopped=fields.stopped is True,
        )
    return document


def _fields(item: object) -> _Fields:
    if isinstance(item, dict):
        # Only what we know: msgspec cannot look at a key with half a surrogate pair.
        item = {key: item[key] for key in _FIELD_NAMES if key in item}
    return msgspec.convert(item, _Fields)


def _invalid(name: str, item: object, seen: dict[str, str]) -> str | None:
    """Return what is wrong with an entry, or None."""
    try:
        naming.check_new(name)
    except UsageError as error:
        return str(error)
    try:
        fields = _fields(item)
    except msgspec.ValidationError as error:
        return f"its entry is not valid: {error}"
    if fields.box_session_id is not None:
        if not is_uuid(fields.box_session_id):
            return "its boxSessionId is not a UUID (remove it to get a new one)"
        if fields.box_session_id in seen:
            return f"its boxSessionId is also that of '{seen[fields.box_session_id]}' (remove it)"
    if fields.working_directory and not fields.working_directory.startswith("/"):
        return f"its workingDirectory {fields.working_directory!r} is not an absolute path"
    texts = [fields.initial_prompt, fields.resume_prompt, fields.working_directory]
    texts += [fields.remote_control_name, *(fields.extra_args or [])]
    if any("\0" in text for text in texts if text):
        return "a prompt, argument or directory holds a NUL character"
    return None


def is_uuid(text: str) -> bool:
    """Tell whether `text` is a UUID in its usual spelling; only then is it used in paths."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def serialize(raw: dict[str, Any]) -> bytes:
    """Return `raw` the way the registry is written: readable, one entry after another."""
    return (json.dumps(raw, indent=2, ensure_ascii=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )


class Store:
    """The registry file of one user."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.path = user.registry_path
        self.lock_path = self.path.with_name("sessions.json.lock")
        self.last_good_path = self.path.with_name("sessions.json.last-good")
        self._home = str(user.home)
        self._last_good: bytes | None = None

    def prepare(self, box: Box) -> None:
        """Make the directory, and on the very first boot the registry from its seed."""
        self.user.config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.user.config_dir.stat().st_uid == os.getuid():
            self.user.config_dir.chmod(0o700)
        with locked(self.lock_path):
            if self.last_good_path.exists() or (_size(self.path) != 0):
                return
            sessions = {name: _seed_entry(seed, box) for name, seed in self.user.seed.items()}
            data = serialize({"version": VERSION, "sessions": sessions})
            atomic_write(self.path, data)
            self._remember(data)

    def read(self) -> Document:
        """Return the registry, or raise `RegistryError` saying what is wrong and the remedy."""
        data = self._bytes()
        document = self._parse(data)
        if data != self._last_good:
            self._remember(data)
        return document

    def last_good(self) -> Document:
        """Return the last content that parsed, or an empty registry."""
        try:
            return parse(self.last_good_path.read_bytes(), self._home)
        except (OSError, ValueError):
            return Document({"version": VERSION, "sessions": {}})

    def mutate(self, change: Callable[[Document], None]) -> Document:
        """Apply `change` to the raw document and write it durably, or change nothing.

        The whole read-modify-write happens under the lock. `change` edits
        `document.raw` in place; what it raises is passed on and nothing is written.
        """
        with locked(self.lock_path):
            try:
                before = self._bytes()
            except FileNotFoundError:
                before = serialize(self.last_good().raw)
            document = self._parse(before)
            change(document)
            after = serialize(document.raw)
            result = self._parse(after)
            if after != before:
                atomic_write(self.path, after)
                self._remember(after)
            return result

    def _bytes(self) -> bytes:
        try:
            info = self.path.stat()
        except FileNotFoundError:
            if self.last_good_path.exists():
                raise RegistryMissingError(
                    f"{self.path} is missing; the last known sessions stay in force. "
                    f"Restore it with: cp {self.last_good_path} {self.path}"
                ) from None
            raise RegistryMissingError(f"{self.path} does not exist yet") from None
        except OSError as error:
            raise RegistryError(f"{self.path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(info.st_mode):
            raise RegistryError(
                f"{self.path} is not a regular file. Move it away; "
                f"the last known sessions stay in force ({self.last_good_path})"
            )
        if info.st_uid != os.getuid():
            raise RegistryError(
                f"{self.path} belongs to uid {info.st_uid}, not to {self.user.name}. "
                f"Give it back: sudo chown {self.user.name}: {self.path}"
            )
        if info.st_size > MAX_BYTES:
            raise RegistryError(f"{self.path} is larger than {MAX_BYTES} bytes; shorten it")
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise RegistryError(f"{self.path} cannot be read: {error.strerror}") from error

    def _parse(self, data: bytes) -> Document:
        try:
            return parse(data, self._home)
        except ValueError as error:
            raise RegistryError(
                f"{self.path} does not parse: {error}. The last known sessions stay in force and "
                f"nothing is written until it is corrected (last good copy: {self.last_good_path})"
            ) from None

    def _remember(self, data: bytes) -> None:
        # The copy is for a later start; a full disk must not refuse what the registry says.
        with contextlib.suppress(OSError):
            atomic_write(self.last_good_path, data, durable=False)
            self._last_good = data


class RegistryMissingError(RegistryError, FileNotFoundError):
    """There is no registry file. A write makes a new one from the last good content."""


def _size(path: Path) -> int:
    """Return the size of `path`, 0 when it does not exist, -1 when it is not a file."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return 0
    return info.st_size if stat.S_ISREG(info.st_mode) else -1


def _seed_entry(seed: Seed, box: Box) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(seed)
    entry["agent"] = seed.agent or box.default_agent
    entry["boxSessionId"] = str(uuid.uuid4())
    if (credential := entry.pop("initialPromptCredential", None)) is not None:
        entry["initialPrompt"] = _credential(credential)
    return entry


def _credential(name: str) -> str | None:
    """Return what systemd handed to this service under `name`; None where it is empty."""
    try:
        path = Path(os.environ["CREDENTIALS_DIRECTORY"]) / name
        return path.read_text(encoding="utf-8").strip() or None
    except (KeyError, OSError, UnicodeDecodeError) as error:
        log.warning("the initial prompt %s cannot be read: %s", name, error)
        return None
