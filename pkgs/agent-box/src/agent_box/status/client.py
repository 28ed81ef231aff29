"""Asks the status service. For services of users, which have no way to the system bus."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

SOCKET = Path("/run/agent-box-status.sock")
"""Where the status service answers; systemd made it in a directory of root's."""

_TIMEOUT = 8.0
_LONGEST = 1 << 20


async def ask(path: Path = SOCKET) -> dict[str, Any] | None:
    """Return `units` and `certificate` as the service tells the calling user; None without it."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST)
            try:
                answer = json.loads(await reader.read(_LONGEST))
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
