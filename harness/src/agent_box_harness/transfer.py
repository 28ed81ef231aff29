"""Copies files over the root shell, for machines that share no directory with the host."""

from __future__ import annotations

import io
import shlex
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = 120.0

_PIECE = 96 * 1024
"""Bytes that are read at once. QEMU's console drops what the harness is too busy to take, from some
200 KB on, and the end of the answer with it."""


class ShellTransfer:
    """Mixin that implements the copying methods of `Machine` by `_execute`."""

    _execute: Callable[[str, float | None, bytes | None], tuple[int, bytes]]
    scaled: Callable[[float | None], float | None]

    def copy_from_host(self, source: str, target: str) -> None:
        """See `Machine.copy_from_host`."""
        goal = PurePosixPath(target)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(source, arcname=goal.name, filter=_owned_by_root)
        parent = shlex.quote(str(goal.parent))
        status, _ = self._execute(
            f"mkdir -p {parent}; tar -x -C {parent} --no-same-owner -p",
            self.scaled(_SECONDS),
            buffer.getvalue(),
        )
        if status != 0:
            raise RequestFailedError(f"cannot copy {source} to {target} (exit status {status})")

    def copy_from_machine(self, source: str, target_dir: str) -> Path:
        """See `Machine.copy_from_machine`."""
        path = PurePosixPath(source)
        pack = f"tar -c -C {shlex.quote(str(path.parent))} {shlex.quote(path.name)}"
        limit = self.scaled(_SECONDS)
        # tar says 1 when a file grew while it was read, as a log does.
        command = (
            f"packed=$(mktemp /run/agent-box-harness.XXXXXX); {pack} >$packed || [ $? = 1 ] ||"
            " { rm $packed; exit 2; }; stat -c '%n %s' $packed"
        )
        status, told = self._execute(command, limit, None)
        if status != 0:
            raise RequestFailedError(f"cannot copy {source} (exit status {status})")
        packed, _, size = told.decode().strip().partition(" ")
        data = b""
        while len(data) < int(size):
            command = f"tail -c +{len(data) + 1} {packed} | head -c {_PIECE} || true"
            piece = self._execute(command, limit, None)[1]
            if not piece:  # or this would go on for ever
                raise RequestFailedError(f"{source} ended after {len(data)} of {size} bytes")
            data += piece
        self._execute(f"rm {packed}", limit, None)
        goal = Path(target_dir)
        goal.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(goal, filter="data")
        return goal / path.name


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info
