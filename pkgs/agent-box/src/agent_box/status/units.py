"""The state of units, as systemd tells it."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROPERTIES = "Id,LoadState,ActiveState,SubState,StateChangeTimestamp,NRestarts"
_TIMEOUT = 3.0
_OF_A_USER = ("", "supervisor-", "terminal-", "settings-", "webhook-")
_OF_THE_BOX = ("agent-box-gate.service", "caddy.service", "fail2ban.service")


def names_for(user: str) -> list[str]:
    """Return the units that a user may know about: the own ones, and those that all share."""
    return [*(f"agent-box-{kind}{user}.service" for kind in _OF_A_USER), *_OF_THE_BOX]


async def states(names: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return name, state, detail, since (seconds since 1970) and restarts of the units that
    there are; None where systemd does not answer.
    """
    program = shutil.which("systemctl")
    if program is None:
        return None
    options = ("show", "--no-pager", "--timestamp=unix", f"--property={_PROPERTIES}", "--")
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *options,
            *names,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(_TIMEOUT):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    except (OSError, TimeoutError):
        return None
    return parse(output.decode("utf-8", "replace")) if process.returncode == 0 else None


def parse(text: str) -> list[dict[str, Any]]:
    """Read what `systemctl show --timestamp=unix` prints of several units."""
    units = []
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("LoadState") == "loaded":
            since = values.get("StateChangeTimestamp", "")
            units.append(
                {
                    "name": values["Id"],
                    "state": values.get("ActiveState", ""),
                    "detail": values.get("SubState", ""),
                    "since": int(since[1:]) if since.startswith("@") else None,
                    "restarts": int(values.get("NRestarts") or 0),
                }
            )
    return units
