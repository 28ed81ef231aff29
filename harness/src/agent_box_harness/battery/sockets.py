"""Sockets that have a path: which there are, who dials them, who could take their place."""

from __future__ import annotations

import fnmatch
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness.battery import edge_config, inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_box_harness.box import Box


@dataclass(frozen=True)
class Part:
    """One component of a path."""

    path: str
    uid: int
    gid: int
    mode: int
    link: bool
    acl: bool

    def told(self) -> str:
        """Say what it is, the way `ls` does."""
        return f"{self.path} (uid {self.uid}, gid {self.gid}, {self.mode:o})"


@dataclass(frozen=True)
class Account:
    """A user, with all groups."""

    name: str
    uid: int
    gids: frozenset[int]

    def may_write(self, part: Part) -> bool:
        """Tell whether modes let them change a directory's entries, or the modes."""
        if part.uid == self.uid:
            return True
        if part.gid in self.gids and part.mode & stat.S_IWGRP:
            return True
        return bool(part.mode & stat.S_IWOTH)


@dataclass(frozen=True)
class Socket:
    """A socket file."""

    path: str
    chain: tuple[Part, ...]
    """From `/` to the socket itself."""
    socket_unit: str
    service: str
    served_by: str
    """User under whom whoever answers runs."""
    owner: str

    @property
    def of_the_box(self) -> bool:
        """Whether the box made it, and not the operating system."""
        return self.path.startswith(("/run/agent-box", "/run/caddy", "/run/fail2ban"))

    def replaceable_by(self, account: Account) -> str:
        """Say how somebody can put something else at this path, by owners and modes; empty: not."""
        for folder, entry in zip(self.chain, self.chain[1:], strict=False):
            if folder.acl or entry.link:
                return f"{folder.told()} has an ACL or leads elsewhere: nobody can tell"
            if not account.may_write(folder):
                continue
            # Where it is sticky, entries belong to those who made them.
            if folder.mode & stat.S_ISVTX and account.uid not in (folder.uid, entry.uid):
                continue
            return f"{account.name} may change what is in {folder.told()}"
        return ""


@dataclass(frozen=True)
class View:
    """All sockets of a box at one moment."""

    sockets: tuple[Socket, ...]
    accounts: dict[str, Account]
    """The users of the box."""
    dialled_by_edge: frozenset[str]

    def serving(self, users: Iterable[str]) -> list[Socket]:
        """Return the sockets at which processes of these users answer."""
        names = set(users)
        return [socket for socket in self.sockets if socket.served_by in names]


def look(box: Box) -> View:
    """Look at every socket file of a box."""
    found = inside.run(box, "look")
    accounts = {
        name: Account(
            name,
            found["users"][name]["uid"],
            frozenset(
                {found["users"][name]["gid"]}
                | {each["gid"] for each in found["groups"].values() if name in each["members"]}
            ),
        )
        for name in box.users
    }
    sockets = tuple(map(_socket, found["sockets"]))
    return View(sockets, accounts, frozenset(_present(edge_config.dials(box), sockets)))


def _present(dialled: Iterable[str], sockets: Iterable[Socket]) -> Iterator[str]:
    """Yield the paths that are there; a placeholder of the edge's stands for part of a name."""
    forms = [re.sub(r"\{[^}]*\}", "*", path) for path in dialled]
    for socket in sockets:
        if any(fnmatch.fnmatchcase(socket.path, form) for form in forms):
            yield socket.path


def _socket(told: dict[str, Any]) -> Socket:
    chain = tuple(Part(**part) for part in told.pop("chain"))
    return Socket(chain=chain, **told)
