"""The table of all sockets and users' paths: who reads each, and why that is safe.

The reasons are written by people, in `sockets-and-paths.toml`; what units say about each is read
from them. A socket that nobody gave a reason, and a reason for what is gone, are failures.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_box_harness.battery import declared
    from agent_box_harness.battery.inside import Stand
    from agent_box_harness.battery.sockets import Socket, View

FILE = Path(__file__).with_name("sockets-and-paths.toml")


@dataclass(frozen=True)
class Row:
    """One socket or path. USER stands for each user, `*` for part of a name."""

    path: str
    readers: str
    """Who connects to it or reads it."""
    writers: str
    """Who may write there, or put something else in its place."""
    safe: str
    """Why no harm comes of that."""
    dialled_by: tuple[str, ...] = ()
    """Who of another user's connects to it, beside the edge, which says so itself."""
    open_to: tuple[str, ...] = ()
    """Where any user may connect to it from: `login`, `session`."""
    runtime: bool = False
    """It is made by a program: no unit names it."""
    system: bool = False
    """It belongs to the operating system, and need not be there."""

    def covers(self, path: str, users: Iterable[str]) -> bool:
        """Tell whether a path on a box is what this row is about."""
        names = "|".join(map(re.escape, users))
        pattern = re.escape(self.path).replace(r"\*", r"[^/]*").replace("USER", f"(?:{names})")
        return re.fullmatch(pattern, path) is not None


@dataclass(frozen=True)
class Table:
    """What people wrote."""

    sockets: tuple[Row, ...]
    paths: tuple[Row, ...]

    def row_of(self, path: str, users: Iterable[str]) -> Row | None:
        """Return the row of a socket on a box."""
        names = list(users)
        return next((row for row in self.sockets if row.covers(path, names)), None)

    def open_to(self, path: str, stand: Stand, users: Iterable[str]) -> bool:
        """Tell whether any user may connect to a socket."""
        row = self.row_of(path, users)
        return row is not None and stand.value in row.open_to


def read(file: Path = FILE) -> Table:
    """Read the table. A wrong entry is a HarnessError that names it."""
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    return Table(_rows(file, document["socket"]), _rows(file, document["path"]))


def _rows(file: Path, entries: list[dict[str, Any]]) -> tuple[Row, ...]:
    rows = []
    for entry in entries:
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        try:
            rows.append(Row(**given))
        except TypeError as error:
            raise HarnessError(f"{file}: {entry.get('path', entry)}: {error}") from error
    return tuple(rows)


def problems(table: Table, found: declared.Declared) -> list[str]:
    """Say what the units name and the table lacks, and what it has and no unit names."""
    wrong = []
    for kind, rows, entries in (
        ("socket", table.sockets, found.sockets), ("path", table.paths, found.paths),
    ):  # fmt: skip
        listed = [row.path for row in rows]
        wrong += [f"{path} is in the table twice" for path in set(listed) if listed.count(path) > 1]
        for path, entry in entries.items():
            if path not in listed:
                readers = ", ".join(sorted(entry.readers))
                wrong.append(f"{kind} {path} ({entry.told()}; {readers}) is not in {FILE.name}")
        wrong += [
            f"{kind} {row.path} is in {FILE.name}, and no unit names it any more"
            for row in rows
            if not (row.runtime or row.system) and row.path not in entries
        ]
    return sorted(wrong)


def why_dialled(view: View, table: Table, socket: Socket) -> str:
    """Say who of another user's dials a socket; empty if nobody does, as far as anybody knows.

    The edge's configuration tells whom it dials; modes tell who is meant to; the table the rest.
    """
    if socket.path in view.dialled_by_edge:
        return "the edge"
    row = table.row_of(socket.path, view.accounts)
    if row is not None and row.dialled_by:
        return ", ".join(row.dialled_by)
    if row is not None and row.system:
        return ""  # of the operating system: its paths are root's, as `replaceable_by` would say
    end = socket.chain[-1]
    owner = view.accounts.get(socket.owner)
    if end.mode & 0o022 and (owner is None or end.gid not in owner.gids):
        return f"whoever its mode {end.mode:o} lets in"
    return ""
