"""How the machine is: memory, disk, units, certificate, read when somebody looks."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box.status import client

if TYPE_CHECKING:
    from agent_box.config import Box, User

FRESH = 2.0
"""Seconds for which an answer is good: several pages may ask at once."""

LOW_DISK = 0.05
LOW_DISK_BYTES = 1 << 30
LOW_MEMORY = 0.05
EXPIRES_SOON = 10 * 86400
"""Below these, the box has a problem worth telling."""


class Facts:
    """Collects the facts about one box."""

    def __init__(self, box: Box, user: User) -> None:
        self._box = box
        self._user = user
        self._lock = asyncio.Lock()
        self._known: tuple[float, dict[str, Any]] | None = None

    async def collect(self) -> dict[str, Any]:
        """Return the facts, at most `FRESH` seconds old."""
        async with self._lock:
            now = time.monotonic()
            if self._known is None or now - self._known[0] > FRESH:
                self._known = (now, await self._collect())
            return self._known[1]

    async def _collect(self) -> dict[str, Any]:
        told = await client.ask() or {}
        facts: dict[str, Any] = {
            "revision": self._box.box.revision,
            "host": self._box.web.domain if self._box.web else self._box.host_label,
            "uptime": _uptime(),
            "load": list(os.getloadavg()),
            "cpus": os.cpu_count(),
            "memory": _memory(),
            "disk": _disk(self._user.home),
            "units": told.get("units"),
            "certificate": told.get("certificate"),
        }
        facts["problems"] = _problems(facts)
        return facts


def _uptime() -> float | None:
    try:
        return float(Path("/proc/uptime").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _memory() -> dict[str, int] | None:
    try:
        rows = (line.split() for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        sizes = {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}
        return {
            "total": sizes["MemTotal"],
            "available": sizes["MemAvailable"],
            "swapTotal": sizes["SwapTotal"],
            "swapFree": sizes["SwapFree"],
        }
    except (OSError, ValueError, IndexError, KeyError):
        return None


def _disk(home: Path) -> dict[str, int] | None:
    try:
        usage = os.statvfs(home)
    except OSError:
        return None
    return {"total": usage.f_blocks * usage.f_frsize, "available": usage.f_bavail * usage.f_frsize}


def _problems(facts: dict[str, Any]) -> list[str]:
    found = []
    disk, memory, certificate = facts["disk"], facts["memory"], facts["certificate"]
    if disk and (
        disk["available"] < LOW_DISK_BYTES or disk["available"] < LOW_DISK * disk["total"]
    ):
        left = disk["available"] / (1 << 20)
        found.append(f"The disk is nearly full: {left:.0f} MiB left. Remove what is not needed.")
    if memory and memory["available"] < LOW_MEMORY * memory["total"]:
        left = memory["available"] / (1 << 20)
        found.append(f"Memory is short: {left:.0f} MiB left. Stop sessions that are not needed.")
    found += [
        f"The unit {unit['name']} has failed. See: journalctl -u {unit['name']}"
        for unit in facts["units"] or []
        if unit["state"] == "failed"
    ]
    if certificate and not certificate["trusted"]:
        found.append(f"Browsers do not trust the certificate: {certificate['reason']}.")
    elif certificate and certificate["ends"] - time.time() < EXPIRES_SOON:
        found.append("The certificate ends soon and was not renewed. See: journalctl -u caddy")
    return found
