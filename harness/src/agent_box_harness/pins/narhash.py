"""The hash that Nix gives to a tree of files, computed from a tar archive without Nix.

Nix hashes the tree in its archive format (NAR): strings with a 64-bit length, padded to eight
bytes; entries in byte order; of the mode nothing but the executable bit. Described in
"Nix Archive (NAR) format" of the Nix manual and in section 5.2.1 of Dolstra's thesis.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import struct
import tarfile
import tempfile
import zlib
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from agent_box_harness.pins.errors import PinError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 20
LARGEST_TREE = 4 << 30
"""Bytes of unpacked files after which an archive is refused: nixpkgs has a tenth of it."""


@dataclass
class Node:
    """One file, link or folder of an archive; `entries` is None for what is no folder."""

    entries: dict[bytes, Node] | None = None
    link: bytes | None = None
    executable: bool = False
    start: int = 0
    size: int = 0


@dataclass
class Archive:
    """What an archive of a Git host holds."""

    hash: str
    """SRI hash of its single top folder, as `fetchFromGitHub` and flakes compute it."""
    commit: str | None
    """The commit that `git archive` wrote into the header, if any."""
    modified: int
    """Newest time stamp of an entry, seconds since 1970: the time of the commit."""
    paths: set[str] = field(default_factory=set)
    """Every path below the top folder."""


def sri(digest: bytes) -> str:
    """Return a SHA-256 digest in the notation of Nix and the web (`sha256-…`)."""
    return "sha256-" + base64.b64encode(digest).decode()


def _string(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data + bytes(-len(data) % 8)


def _strings(*words: bytes) -> bytes:
    return b"".join(map(_string, words))


def _write(node: Node, spool: IO[bytes], out: Callable[[bytes], object]) -> None:
    out(_strings(b"(", b"type"))
    if node.link is not None:
        out(_strings(b"symlink", b"target", node.link))
    elif node.entries is None:
        out(_strings(b"regular"))
        if node.executable:
            out(_strings(b"executable", b""))
        out(_string(b"contents") + struct.pack("<Q", node.size))
        spool.seek(node.start)
        left = node.size
        while left:
            part = spool.read(min(CHUNK, left))
            out(part)
            left -= len(part)
        out(bytes(-node.size % 8))
    else:
        out(_strings(b"directory"))
        for name, child in sorted(node.entries.items()):
            out(_strings(b"entry", b"(", b"name", name, b"node"))
            _write(child, spool, out)
            out(_strings(b")"))
    out(_strings(b")"))


def _place(root: Node, path: bytes, leaf: Node) -> None:
    """Put `leaf` at `path`. Nothing of an archive ever touches the file system, so that no
    name in it can point out of a folder; odd names are refused all the same."""
    node = root
    parts = path.split(b"/")
    if any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        raise PinError(f"the archive holds the unusual path {path!r}: look at it before going on")
    for part in parts[:-1]:
        if node.entries is None:
            raise PinError(f"the archive holds a folder below a file at {path!r}: not a Git tree")
        node = node.entries.setdefault(part, Node(entries={}))
    if node.entries is None or (parts[-1] in node.entries and leaf.entries is None):
        raise PinError(f"the archive holds {path!r} twice: not a Git tree")
    node.entries.setdefault(parts[-1], leaf)


def read_archive(source: IO[bytes]) -> Archive:
    """Read a `.tar.gz` and hash the folder in it. Raises TransientError when it ends early."""
    root = Node(entries={})
    modified = 0
    commit: str | None = None
    paths: set[str] = set()
    try:
        with (
            tempfile.TemporaryFile(prefix="agent-box-pins-") as spool,
            tarfile.open(fileobj=source, mode="r|gz", encoding="utf-8") as tar,
        ):
            for member in tar:
                commit = commit or tar.pax_headers.get("comment")
                modified = max(modified, int(member.mtime))
                path = member.name.encode("utf-8", "surrogateescape").strip(b"/")
                paths.add(member.name.strip("/").partition("/")[2])
                _place(root, path, _node_of(tar, member, spool))
            entries = root.entries or {}
            top = next(iter(entries.values()), Node())
            if len(entries) != 1 or top.entries is None:
                raise PinError(
                    "the archive does not hold one folder, as archives of GitHub do: "
                    "look at what the address serves"
                )
            digest = hashlib.sha256(_strings(b"nix-archive-1"))
            _write(top, spool, digest.update)
    except (tarfile.ReadError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TransientError(f"the archive is damaged or ended early ({error})") from None
    return Archive(sri(digest.digest()), commit, modified, paths - {""})


def _node_of(tar: tarfile.TarFile, member: tarfile.TarInfo, spool: IO[bytes]) -> Node:
    if member.isdir():
        return Node(entries={})
    if member.issym():
        return Node(link=member.linkname.encode("utf-8", "surrogateescape"))
    content = tar.extractfile(member) if member.isfile() else None
    if content is None:
        raise PinError(f"the archive holds {member.name!r}, which is no file, link or folder")
    node = Node(executable=bool(member.mode & 0o100), start=spool.tell(), size=member.size)
    if node.start + node.size > LARGEST_TREE:
        raise PinError(f"the archive unpacks to more than {LARGEST_TREE >> 30} GiB: look at it")
    left = member.size
    while left:
        part = content.read(min(CHUNK, left))
        if not part:
            raise TransientError("the archive is damaged or ended early")
        spool.write(part)
        left -= len(part)
    return node
