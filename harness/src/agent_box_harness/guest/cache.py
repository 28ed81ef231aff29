"""The content-addressed cache of what guests are made of.

Every entry is a directory `<cache>/<kind>/<key>` that appears whole, by rename,
after it was built under a lock; an entry is never changed afterwards, so that
machines can share it and a second start only looks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def cache_root() -> Path:
    """Return the directory that holds everything we cache (made if missing)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    root = Path(base) / "agent-box"
    root.mkdir(parents=True, exist_ok=True)
    return root


def digest(*parts: object) -> str:
    """Return a short stable key of JSON-like values; Paths count by content."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            state.update(tree_digest(part).encode())
        else:
            state.update(json.dumps(part, sort_keys=True, separators=(",", ":")).encode())
        state.update(b"\0")
    return state.hexdigest()[:20]


def tree_digest(path: Path) -> str:
    """Return the digest of a file, or of the names and contents below a directory."""
    state = hashlib.sha256()
    if not path.is_dir():
        state.update(path.read_bytes())
        return state.hexdigest()
    for child in sorted(path.rglob("*")):
        if child.is_dir() or "__pycache__" in child.parts:
            continue
        state.update(str(child.relative_to(path)).encode() + b"\0")
        state.update(str(child.readlink()).encode() if child.is_symlink() else child.read_bytes())
        state.update(b"\0")
    return state.hexdigest()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (created if missing)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the cache entry, calling `make(directory)` to fill it if it does not exist.

    A failed `make` leaves nothing behind. Two processes that want the same
    entry build it once.
    """
    final = cache_root() / kind / key
    if final.is_dir():
        return final
    with locked(cache_root() / kind / f"{key}.lock"):
        if final.is_dir():
            return final
        fresh = final.with_name(f"{key}.new")
        remove_tree(fresh)
        fresh.mkdir(parents=True)
        try:
            make(fresh)
        except BaseException:
            remove_tree(fresh)
            raise
        fresh.rename(final)
    return final


def prune(kind: str, prefix: str, keep: Path, seconds: float) -> None:
    """Remove entries `<prefix>-*` of a kind, except `keep`, unused for that long.

    A machine that still runs from one keeps its open files.
    """
    os.utime(keep)
    oldest = time.time() - seconds
    for path in (cache_root() / kind).glob(f"{prefix}-*"):
        # Others prune at the same time: only one gets to rename an entry, and one that is being
        # removed counts as new.
        with contextlib.suppress(FileNotFoundError):
            if path != keep and path.is_dir() and path.stat().st_mtime < oldest:
                os.utime(path)
                remove_tree(path.rename(path.with_name(f"{path.name}.{os.getpid()}.gone")))


def remove_tree(path: Path) -> None:
    """Remove a directory tree; files of a sub-uid need the user namespace they came from."""
    if not path.exists():
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        if os.geteuid() == 0:
            raise
        subprocess.run([*in_user_namespace(), "rm", "-rf", str(path)], check=True)


def in_user_namespace() -> list[str]:
    """Return the argv prefix that gives root over many uids; empty when we are root."""
    if os.geteuid() == 0:
        return []
    return ["unshare", "--map-auto", "--map-root-user", "--"]


def need_programs(*names: str) -> None:
    """Raise BuildError naming the Debian packages of missing programs."""
    packages = {
        "mmdebstrap": "mmdebstrap",
        "mke2fs": "e2fsprogs",
        "npm": "npm",
        "qemu-system-x86_64": "qemu-system-x86",
        "qemu-img": "qemu-utils",
        "systemd-nspawn": "systemd-container",
        "newuidmap": "uidmap",
        "ssh-keygen": "openssh-client",
        "ssh": "openssh-client",
        "nsenter": "util-linux",
        "unshare": "util-linux",
    }
    missing = sorted({packages.get(name, name) for name in names if find_program(name) is None})
    if missing:
        raise BuildError(
            f"missing programs; on Debian or Ubuntu: apt-get install {' '.join(missing)}"
        )


def find_program(name: str) -> str | None:
    """Return the path of a program, looking in the sbin directories of ordinary users too."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def run_logged(
    argv: Sequence[str], log: Path, what: str, env: dict[str, str] | None = None
) -> None:
    """Run a long program with its output in `log`; raise BuildError with the log's tail."""
    with log.open("ab") as handle:
        code = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, env=env, check=False
        ).returncode
    if code != 0:
        tail = log.read_text(errors="replace").splitlines()[-25:]
        kept = cache_root() / f"failed-{log.name}"
        shutil.copyfile(log, kept)
        raise BuildError(f"{what} failed with status {code} (log: {kept}):\n" + "\n".join(tail))
