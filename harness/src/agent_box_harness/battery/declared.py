"""What the rendered units say about sockets, and about paths that a user controls.

Read from `nixos-tests/rendered/test`: each socket that anything there names, and each path below a
home or in a directory of a user's that systemd, or a service of somebody else, looks at.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness import rendered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HOST = "test"
USER = "USER"
"""Stands for each user in a path."""

LISTENS = ("ListenStream", "ListenDatagram", "ListenSequentialPacket", "ListenFIFO")
LOOKED_AT = {
    "BindPaths", "BindReadOnlyPaths", "ReadWritePaths", "ReadOnlyPaths", "ExecPaths",
    "PathChanged", "PathModified", "PathExists", "PathExistsGlob", "DirectoryNotEmpty",
    "EnvironmentFile", "LoadCredential", "LoadCredentialEncrypted", "ImportCredential",
    "RootDirectory", "RootImage", "StandardInput", "StandardOutput", "StandardError", "PIDFile",
    "ExecStart", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost",
    "ConditionPathExists", "ConditionPathExistsGlob", "ConditionPathIsDirectory",
    "ConditionPathIsSymbolicLink", "ConditionDirectoryNotEmpty", "ConditionFileNotEmpty",
    "AssertPathExists", "OpenFile", "NetworkNamespacePath", "IPCNamespacePath", "WorkingDirectory",
}  # fmt: skip
"""Settings whose paths systemd itself, as root, opens, watches, mounts or starts."""

MADE = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib", "CacheDirectory": "/var/cache",
        "LogsDirectory": "/var/log"}  # fmt: skip
"""Directories that systemd makes for a unit, and gives to its user."""

_SOCKET = re.compile(r"/(?:run|var|home|tmp)/[A-Za-z0-9@._/+-]*?\.sock(?:et)?(?![A-Za-z0-9])")
_PATH = re.compile(r"(?<![\w@}.])/[A-Za-z0-9._/+@%*-]+")


@dataclass
class Found:
    """A socket or a path, USER standing for the user, and what is said about it."""

    path: str
    owner: str = ""
    mode: str = ""
    readers: set[str] = field(default_factory=set)
    """Who looks at it: units, or the edge."""

    def told(self) -> str:
        """Owner and mode for the table."""
        return " ".join(filter(None, (self.owner, self.mode))) or "its user"


@dataclass(frozen=True)
class Declared:
    """Everything that one host's rendered config says."""

    sockets: dict[str, Found]
    paths: dict[str, Found]


def read(repo: Path, host: str = HOST) -> Declared:
    """Read the rendered config of a host."""
    files = rendered.read_tree(repo / rendered.TREE / host)
    return extract(files)


def extract(files: Mapping[str, str]) -> Declared:
    """Find sockets and users' paths in the files of a rendered host."""
    users = sorted(json.loads(files["etc/agent-box/box.json"])["users"])
    units = {
        path.removeprefix("units/"): settings(text)
        for path, text in files.items()
        if path.startswith("units/") and not path.endswith(".wants")
    }
    tmpfiles = [
        line.split()
        for path, text in files.items()
        if path.startswith("etc/tmpfiles.d/")
        for line in text.splitlines()
        if line and not line.startswith("#")
    ]
    sockets = _sockets(files, units, tmpfiles, users)
    return Declared(sockets, _paths(units, tmpfiles, users, sockets))


def settings(unit: str) -> list[tuple[str, str]]:
    """Return the settings of a unit, in order."""
    pairs = (line.partition("=") for line in unit.splitlines())
    return [(name.strip(), value) for name, equals, value in pairs if equals]


def general(text: str, users: Iterable[str]) -> str:
    """Put USER where a user's name stands as a whole word.

    >>> general("/run/agent-box-web/bob.sock", ["bob"])
    '/run/agent-box-web/USER.sock'
    """
    for user in users:
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])", USER, text)
    return text


Units = dict[str, list[tuple[str, str]]]


def _sockets(
    files: Mapping[str, str], units: Units, tmpfiles: list[list[str]], users: list[str]
) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for path, text in files.items():
        if not path.startswith(("units/", "etc/")):
            continue
        reader = general(Path(path).name, users)
        for match in _SOCKET.finditer(text):
            socket = general(match[0], users)
            found.setdefault(socket, Found(socket)).readers.add(reader)
    for name, pairs in units.items():
        said = dict(pairs)
        for key, value in pairs:
            if key in LISTENS and value.startswith("/"):
                socket = general(value, users)
                entry = found.setdefault(socket, Found(socket))
                owner = f"{said.get('SocketUser', 'root')}:{said.get('SocketGroup', 'root')}"
                entry.owner = general(owner, users)
                entry.mode = said.get("SocketMode", "0666")
                entry.readers.add(general(name, users))
    for socket, entry in found.items():
        folder = str(Path(socket).parent)
        for words in tmpfiles:
            if not entry.owner and general(words[1], users) == folder and len(words) > 4:
                owner = general(f"{words[3].lstrip(':')}:{words[4].lstrip(':')}", users)
                entry.owner, entry.mode = f"in {owner}'s", words[2].lstrip(":")
    return found


def _paths(
    units: Units, tmpfiles: list[list[str]], users: list[str], sockets: Mapping[str, Found]
) -> dict[str, Found]:
    owned = dict(_directories_of_users(units, tmpfiles, users))
    roots = {f"/home/{USER}": f"{USER} 0700", **owned}
    found: dict[str, Found] = {}

    def note(path: str, reader: str) -> None:
        path = general(path, users).rstrip("/") or "/"
        root = next((root for root in sorted(roots, key=len, reverse=True)
                     if path == root or path.startswith(f"{root}/")), "")  # fmt: skip
        if root and path not in sockets:
            entry = found.setdefault(path, Found(path))
            entry.owner = roots[root]
            entry.readers.add(reader)

    for name, pairs in units.items():
        for key, value in pairs:
            if key in LOOKED_AT:
                for path in _PATH.findall(value):
                    note(path, f"{general(name, users)} ({key})")
            if key in MADE:
                for each in value.split():
                    note(f"{MADE[key]}/{each}", f"{general(name, users)} ({key})")
    for words in tmpfiles:
        note(words[1], f"tmpfiles ({words[0]})")
    return found


def _directories_of_users(
    units: Units, tmpfiles: list[list[str]], users: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield the directories outside of homes that belong to users, with owner and mode."""
    for pairs in units.values():
        said = dict(pairs)
        if said.get("User") not in users:
            continue
        for key, value in pairs:
            if key in MADE:
                for each in value.split():
                    mode = said.get(f"{key}Mode", "0755")
                    yield general(f"{MADE[key]}/{each}", users), f"{USER} {mode}"
    for words in tmpfiles:
        if len(words) > 3 and words[3].lstrip(":") in users:
            yield general(words[1], users), f"{USER} {words[2].lstrip(':')}"
