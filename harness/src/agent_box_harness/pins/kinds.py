"""The pins of this repository: where each is written, and what it follows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_box_harness.pins.errors import PinError
from agent_box_harness.pins.prefetch import SRI
from agent_box_harness.pins.upstream import COMMIT

if TYPE_CHECKING:
    from agent_box_harness.pins.upstream import Channels, GitHub, Target


@dataclass(frozen=True)
class Pinned:
    """A revision and the hash of its files: they change together or not at all."""

    owner: str
    repo: str
    rev: str
    hash: str
    modified: int | None = None
    """Time of the commit, seconds since 1970, where the file keeps it."""
    ref: str | None = None
    """Branch or tag that the pin follows, such as `heads/main`; None: the default branch."""


class Pin(Protocol):
    """One pinned thing."""

    @property
    def name(self) -> str:
        """What `--pin` calls it."""

    @property
    def path(self) -> Path:
        """The file that holds it, relative to the repository."""

    def parse(self, content: bytes) -> Pinned:
        """Read the pin out of its file."""

    def newest(self, github: GitHub, channels: Channels, pinned: Pinned) -> Target:
        """Ask upstream for the newest revision."""

    def render(self, content: bytes, pinned: Pinned) -> bytes:
        """Return the file with another pin in it, all else as it was."""


def _document(path: Path, content: bytes, remedy: str) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise PinError(f"{path} is not the JSON that it should be: {remedy}")
    return document


def _pinned(path: Path, fields: Any, hash_key: str, remedy: str) -> Pinned:
    """Check the fields that every pin has."""
    fields = fields if isinstance(fields, dict) else {}
    found = {key: fields.get(key) for key in ("owner", "repo", "rev", hash_key)}
    for key, value in found.items():
        if not isinstance(value, str) or not value:
            raise PinError(f"{path} has no {key}: {remedy}")
    if not COMMIT.fullmatch(found["rev"] or ""):
        raise PinError(f"{path}: rev is not a full commit id: {remedy}")
    if not SRI.fullmatch(found[hash_key] or ""):
        raise PinError(f"{path}: {hash_key} is not a hash as Nix writes it (sha256-…): {remedy}")
    modified = fields.get("lastModified")
    ref = fields.get("ref")
    return Pinned(
        owner=fields["owner"],
        repo=fields["repo"],
        rev=fields["rev"],
        hash=fields[hash_key],
        modified=modified if isinstance(modified, int) else None,
        ref=ref if isinstance(ref, str) else None,
    )


@dataclass(frozen=True)
class FlakeInput:
    """An input of the flake that follows a channel of NixOS."""

    name: str
    path: Path = Path("flake.lock")
    remedy: str = "restore flake.lock from Git, or write it anew with `nix flake lock`"

    def parse(self, content: bytes) -> Pinned:
        """See `Pin.parse`."""
        document = _document(self.path, content, self.remedy)
        if _dump(document) != content:
            raise PinError(f"{self.path} is not written as Nix writes it: {self.remedy}")
        node = self._node(document)
        original = node.get("original")
        ref = original.get("ref") if isinstance(original, dict) else None
        locked = node.get("locked")
        fields = {**locked, "ref": ref} if isinstance(locked, dict) else None
        return _pinned(self.path, fields, "narHash", self.remedy)

    def newest(self, github: GitHub, channels: Channels, pinned: Pinned) -> Target:
        """See `Pin.newest`: the newest release of the channel that flake.nix names."""
        return channels.newest(pinned.ref or "nixos-unstable")

    def render(self, content: bytes, pinned: Pinned) -> bytes:
        """See `Pin.render`."""
        document = _document(self.path, content, self.remedy)
        self._node(document)["locked"] |= {
            "rev": pinned.rev,
            "narHash": pinned.hash,
            "lastModified": pinned.modified,
        }
        return _dump(document)

    def _node(self, document: dict[str, Any]) -> dict[str, Any]:
        nodes = document.get("nodes")
        node = nodes.get(self.name) if isinstance(nodes, dict) else None
        if not isinstance(node, dict) or document.get("version") != 7:
            raise PinError(f"{self.path} has no input {self.name} in version 7: {self.remedy}")
        return node


@dataclass(frozen=True)
class JsonPin:
    """A small JSON file with `owner`, `repo`, `rev` and `hash`, and `ref` if it follows one."""

    name: str
    path: Path
    remedy: str = "restore it from Git"

    def parse(self, content: bytes) -> Pinned:
        """See `Pin.parse`."""
        document = _document(self.path, content, self.remedy)
        return _pinned(self.path, document, "hash", self.remedy)

    def newest(self, github: GitHub, channels: Channels, pinned: Pinned) -> Target:
        """See `Pin.newest`: the newest commit of the branch."""
        return github.newest(pinned.owner, pinned.repo, pinned.ref)

    def render(self, content: bytes, pinned: Pinned) -> bytes:
        """See `Pin.render`."""
        document = _document(self.path, content, self.remedy)
        return _dump(document | {"rev": pinned.rev, "hash": pinned.hash}, sort=False)


def _dump(document: dict[str, Any], *, sort: bool = True) -> bytes:
    """Write JSON the way that Nix does: two spaces, sorted keys, a line break at the end."""
    text = json.dumps(document, indent=2, sort_keys=sort, ensure_ascii=False)
    return f"{text}\n".encode()


PINS: tuple[Pin, ...] = (
    FlakeInput("agent-nixpkgs"),
    JsonPin("local-channels", Path("pkgs/local-channels/pin.json")),
)
"""Every pin that the updater moves: the agent CLIs, and the plugin for Claude sessions."""
