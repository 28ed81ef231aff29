"""Bringing a new file of sites to the edge."""

from __future__ import annotations

import grp
import hashlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from agent_box.errors import InternalError
from agent_box.locking import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

EDGE_CONFIG = "/etc/caddy/Caddyfile"
EDGE_ADMIN = "/run/caddy/admin.sock"

_TIMEOUT = 60.0


def publish(text: str, state: Path, results: Path) -> tuple[str | None, bool]:
    """Make `text` the edge's configuration of sites.

    Returns why that did not work, and whether Caddy was asked at all. A file takes the place of
    the former only when the edge works with it, so that the edge also starts with what is on the
    disk. With the edge down, Caddy's command has to do as a judge.
    """
    current = state / "sites.caddy"
    loaded = results / "loaded"
    data = text.encode("ascii")
    digest = hashlib.sha256(data).hexdigest()
    before = current.read_bytes() if current.exists() else None
    known = loaded.read_text("ascii") if loaded.exists() else ""
    if before == data and known == digest:
        return None, False
    candidate = state / "candidate"
    write(candidate, data, 0o600)
    # Caddy's command reads the files and hands the edge one whole configuration.
    environment = {"HOME": str(results), "AGENT_BOX_SITES": str(candidate)}
    try:
        trouble = _caddy("reload" if _edge_is_up() else "adapt", environment)
        if trouble is not None:
            return f"the edge refuses the configuration of sites: {trouble}", True
    finally:
        candidate.unlink()
    _write_shared(current, data)
    write(loaded, digest.encode(), 0o600)
    return None, True


def _caddy(command: str, extra: dict[str, str]) -> str | None:
    """Have Caddy look at the configuration or load it; returns what it complains of."""
    argv = ["caddy", command, "--config", EDGE_CONFIG, "--adapter", "caddyfile"]
    environment = {**os.environ, **extra}
    try:
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, env=environment, timeout=_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    print(f"agent-box-sites: caddy {command}: {lines[-1]}", file=sys.stderr)
    return lines[-1][:300]


def _edge_is_up() -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(EDGE_ADMIN)
        except OSError:
            return False
    return True


def _write_shared(path: Path, data: bytes) -> None:
    """Write a file that the edge reads, too."""
    write(path, data, 0o640)
    if os.geteuid() == 0:
        os.chown(path, 0, grp.getgrnam("caddy").gr_gid)


def write(path: Path, data: bytes, mode: int) -> None:
    """Write a file of the helper's, whole or not at all."""
    try:
        atomic_write(path, data, mode)
    except OSError as error:
        raise InternalError(f"cannot write {path}: {error.strerror}") from error
