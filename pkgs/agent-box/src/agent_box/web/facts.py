"""How the machine is: memory, disk, units, certificate, read when somebody looks."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box.config import Box, User

FRESH = 2.0
"""Seconds for which an answer is good: several pages may ask at once."""

CERTIFICATE_FRESH = 600.0
LOW_DISK = 0.05
LOW_DISK_BYTES = 1 << 30
LOW_MEMORY = 0.05
EXPIRES_SOON = 10 * 86400
"""Below these, the box has a problem worth telling."""

_PROPERTIES = "Id,LoadState,ActiveState,SubState,StateChangeTimestamp,NRestarts"


class Facts:
    """Collects the facts about one box."""

    def __init__(self, box: Box, user: User) -> None:
        self._box = box
        self._user = user
        self._lock = asyncio.Lock()
        self._known: tuple[float, dict[str, Any]] | None = None
        self._certificate: tuple[float, dict[str, Any]] | None = None

    async def collect(self) -> dict[str, Any]:
        """Return the facts, at most `FRESH` seconds old."""
        async with self._lock:
            now = time.monotonic()
            if self._known is None or now - self._known[0] > FRESH:
                self._known = (now, await self._collect())
            return self._known[1]

    async def _collect(self) -> dict[str, Any]:
        units, certificate = await asyncio.gather(self._units(), self._certificate_state())
        facts: dict[str, Any] = {
            "revision": self._box.box.revision,
            "host": self._box.web.domain if self._box.web else self._box.host_label,
            "uptime": _uptime(),
            "load": list(os.getloadavg()),
            "cpus": os.cpu_count(),
            "memory": _memory(),
            "disk": _disk(self._user.home),
            "units": units,
            "certificate": certificate,
        }
        facts["problems"] = _problems(facts)
        return facts

    async def _units(self) -> list[dict[str, Any]] | None:
        """Ask systemd; None where it does not answer this service."""
        user = self._user.name
        names = [
            *(f"agent-box-{user}.service", f"agent-box-supervisor-{user}.service"),
            *(f"agent-box-terminal-{user}.service", f"agent-box-settings-{user}.service"),
            f"agent-box-webhook-{user}.service",
            *("agent-box-gate.service", "caddy.service", "fail2ban.service"),
        ]
        program = shutil.which("systemctl")
        if program is None:
            return None
        try:
            process = await asyncio.create_subprocess_exec(
                *(
                    program,
                    "show",
                    "--no-pager",
                    "--timestamp=unix",
                    f"--property={_PROPERTIES}",
                    "--",
                    *names,
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                async with asyncio.timeout(3):
                    output, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
        except (OSError, TimeoutError):
            return None
        return _parse_units(output.decode("utf-8", "replace")) if process.returncode == 0 else None

    async def _certificate_state(self) -> dict[str, Any] | None:
        if self._box.web is None:
            return None
        now = time.monotonic()
        if self._certificate is None or now - self._certificate[0] > CERTIFICATE_FRESH:
            state = await asyncio.to_thread(_certificate, self._box.web.domain)
            if state is None:
                return None
            self._certificate = (now, state)
        return self._certificate[1]


def _parse_units(text: str) -> list[dict[str, Any]]:
    units = []
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("LoadState") == "loaded":
            units.append(
                {
                    "name": values["Id"],
                    "state": values.get("ActiveState", ""),
                    "detail": values.get("SubState", ""),
                    "since": _seconds(values.get("StateChangeTimestamp", "")),
                    "restarts": int(values.get("NRestarts") or 0),
                }
            )
    return units


def _seconds(text: str) -> int | None:
    """Read a time as `systemctl --timestamp=unix` tells it."""
    return int(text[1:]) if text.startswith("@") else None


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


def _certificate(domain: str) -> dict[str, Any] | None:
    """Look at the certificate that this box shows the world; None when no edge answers."""
    import ssl  # several megabytes, needed only here

    context = ssl.create_default_context()
    try:
        with (
            socket.create_connection(("127.0.0.1", 443), timeout=2) as plain,
            context.wrap_socket(plain, server_hostname=domain) as secure,
        ):
            shown = secure.getpeercert() or {}
            ends = ssl.cert_time_to_seconds(str(shown["notAfter"]))
            issuer = {key: value for part in _pairs(shown.get("issuer")) for key, value in part}
            return {
                "trusted": True,
                "ends": ends,
                "issuer": issuer.get("organizationName") or issuer.get("commonName"),
                "reason": None,
            }
    except ssl.SSLCertVerificationError as error:
        return {"trusted": False, "ends": None, "issuer": None, "reason": error.verify_message}
    except (OSError, KeyError, ValueError):
        return None


def _pairs(value: Any) -> list[list[tuple[str, str]]]:
    return [list(part) for part in value] if isinstance(value, tuple) else []


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
