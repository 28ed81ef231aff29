"""A set of files with owners and modes that goes on top of a root file system.

It is built without root and leaves as a tar: the container unpacks it into an
overlay, the emulated machine's initrd unpacks it onto its disk.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MTIME = 1_600_000_000
"""Modification time of all files (unix seconds): the same input gives the same bytes."""


@dataclass(frozen=True)
class Node:
    """One file, directory or symbolic link."""

    kind: str
    """`file`, `dir` or `link`."""
    data: bytes = b""
    """Content of a file, target of a link."""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class Layer:
    """Files by absolute path; a later one replaces an earlier one."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def file(
        self, path: str, content: str | bytes, mode: int = 0o644, uid: int = 0, gid: int = 0
    ) -> None:
        """Add a regular file."""
        data = content.encode() if isinstance(content, str) else content
        self._put(path, Node("file", data, mode, uid, gid))

    def directory(self, path: str, mode: int = 0o755, uid: int = 0, gid: int = 0) -> None:
        """Add a directory, or set owner and mode of one."""
        self._put(path, Node("dir", b"", mode, uid, gid))

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._put(path, Node("link", target.encode(), 0o777))

    def mask(self, unit: str) -> None:
        """Make a systemd unit impossible to start."""
        self.link(f"/etc/systemd/system/{unit}", "/dev/null")

    def enable(self, unit: str, target: str, kind: str = "wants") -> None:
        """Pull a unit in with a target; `kind` is wants or requires."""
        self.link(f"/etc/systemd/system/{target}.{kind}/{unit}", f"/etc/systemd/system/{unit}")

    def tree(self, source: Path, target: str, *, byte_code: bool = False) -> None:
        """Add the Python byte code below a host directory, or everything else.

        Executables stay executable.
        """
        for child in sorted(source.rglob("*")):
            if child.is_dir() or ("__pycache__" in child.parts) != byte_code:
                continue
            mode = 0o755 if child.stat().st_mode & 0o100 else 0o644
            relative = child.relative_to(source).as_posix()
            self.file(f"{target}/{relative}", child.read_bytes(), mode)

    def text(self, path: str) -> str:
        """Return the content of a file that was added."""
        return self.nodes[_clean(path)].data.decode()

    def digest(self) -> str:
        """Return the digest of everything in the layer."""
        state = hashlib.sha256()
        for path, node in sorted(self.nodes.items()):
            state.update(repr((path, node)).encode())
        return state.hexdigest()

    def tar(self) -> bytes:
        """Return a tar of the layer, parents before children, independent of insertion order."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path, node in sorted(self.nodes.items()):
                info = tarfile.TarInfo(path.lstrip("/"))
                info.mode, info.uid, info.gid, info.mtime = node.mode, node.uid, node.gid, MTIME
                if node.kind == "dir":
                    info.type = tarfile.DIRTYPE
                elif node.kind == "link":
                    info.type = tarfile.SYMTYPE
                    info.linkname = node.data.decode()
                else:
                    info.size = len(node.data)
                archive.addfile(info, io.BytesIO(node.data) if node.kind == "file" else None)
        return buffer.getvalue()

    def _put(self, path: str, node: Node) -> None:
        self.nodes[_clean(path)] = node


def _clean(path: str) -> str:
    pure = PurePosixPath(path)
    if not pure.is_absolute() or ".." in pure.parts:
        message = f"not an absolute path without dots: {path}"
        raise ValueError(message)
    return str(pure)
