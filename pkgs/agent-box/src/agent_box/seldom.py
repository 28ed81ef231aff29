"""Logs that nobody can fill: what strangers can cause is told once in a while, with its number."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 60.0
"""Seconds between two lines of one kind."""

_MAX_KINDS = 256


class Seldom(logging.Filter):
    """Lets one record of a kind pass in a while; the next one tells how many were held back.

    A kind is a text before its arguments are filled in, so no client makes up new kinds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether `record` may pass."""
        kind = str(record.msg)
        if kind not in self._told and len(self._told) >= _MAX_KINDS:
            kind = ""
        now = self._clock()
        before, held = self._told.get(kind, (now - EVERY, 0))
        if now - before < EVERY:
            self._told[kind] = before, held + 1
            return False
        self._told[kind] = now, 0
        if held:
            record.msg = f"{record.getMessage()} (and {held} more since the last such line)"
            record.args = ()
        return True


class Tally:
    """Counts what is no error; tells the number in one line a minute, as long as there is one."""

    def __init__(self, log: logging.Logger, text: str) -> None:
        self._log = log
        self._text = text
        self._count = 0

    def add(self) -> None:
        """Count one more. Takes a running loop."""
        self._count += 1
        if self._count == 1:
            asyncio.get_running_loop().call_later(EVERY, self._tell)

    def _tell(self) -> None:
        count, self._count = self._count, 0
        self._log.info("%d %s", count, self._text)
