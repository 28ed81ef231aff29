"""Writes the cpio archive (format `newc`) in which the kernel takes its first root."""

from __future__ import annotations

import io
import stat

_FIELDS = 13


class CpioWriter:
    """Collects entries; `finish` returns the archive."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._inode = 0

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Add a directory; parents must come first."""
        self._entry(path, stat.S_IFDIR | mode, b"")

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._entry(path, stat.S_IFREG | mode, data)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def device(self, path: str, major: int, minor: int, mode: int = 0o600) -> None:
        """Add a character device."""
        self._entry(path, stat.S_IFCHR | mode, b"", major, minor)

    def finish(self) -> bytes:
        """Close the archive and return it."""
        self._inode = -1
        self._entry("TRAILER!!!", 0, b"")
        self._pad(512)
        return self._out.getvalue()

    def _entry(self, path: str, mode: int, data: bytes, major: int = 0, minor: int = 0) -> None:
        self._inode += 1
        name = path.lstrip("/").encode() + b"\0"
        numbers = (
            self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name), 0,
        )  # fmt: skip
        if len(numbers) != _FIELDS:
            raise AssertionError("a newc header has thirteen numbers")
        self._out.write(b"070701" + b"".join(b"%08X" % number for number in numbers))
        self._out.write(name)
        self._pad(4)
        self._out.write(data)
        self._pad(4)

    def _pad(self, boundary: int) -> None:
        self._out.write(b"\0" * (-self._out.tell() % boundary))
