"""Back-off for addresses that send wrong credentials.

Whoever has to wait is known by where the attempts come from and never by the name they try: a
stranger cannot lock a user out, except from the stranger's own network. The names are counted only
to tell what a user may forgive: failures of the own name, and nobody else's.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from agent_box.gate import addresses
from agent_box.gate.errors import ThrottledError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

FREE = 5
"""Failures without consequence; as many attempts may be under way at once. A ban takes as many."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 900.0
"""Seconds; the pause doubles with each failure after the free ones."""

FORGET = 1800.0
"""Seconds after its last failure until an address counts as new."""

MAX_ADDRESSES = 8192
"""Networks remembered; beyond that those that failed longest ago are forgotten."""


NOBODY = ""
"""Stands for all names that nobody has."""

_MAX_NAMES = 64
"""Names that are counted of one network; further failures are root's alone to forgive."""


@dataclasses.dataclass(slots=True)
class _Record:
    failures: int = 0
    names: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    pending: int = 0
    until: float = 0.0
    last: float = 0.0


@dataclasses.dataclass(slots=True)
class Attempt:
    """One attempt under way. The caller sets `failed` when the credential was wrong."""

    failed: bool = False


class Throttle:
    """Remembers who failed lately."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, limit: int = MAX_ADDRESSES
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._records: OrderedDict[bytes, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    @contextlib.contextmanager
    def attempt(self, address: addresses.Address, name: str | None = None) -> Iterator[Attempt]:
        """Hold a place for one attempt from `address`; ThrottledError when it has to wait.

        The user `name` may forgive it; without a name only root may.
        """
        key = addresses.network(address)
        now = self._clock()
        record = self._records.get(key)
        if record is not None and not record.pending and now - record.last > FORGET:
            record = None
        if record is None:
            record = self._records[key] = _Record(last=now)
            self._make_room()
        if now < record.until:
            raise ThrottledError(record.until - now)
        if record.pending >= max(1, FREE - record.failures):
            raise ThrottledError(FIRST_PAUSE)
        record.pending += 1
        attempt = Attempt()
        try:
            yield attempt
        finally:
            record.pending -= 1
            if attempt.failed:
                self._fail(key, record, name)
            elif not record.failures and not record.pending:
                self._records.pop(key, None)

    def count(self, address: addresses.Address, names: Collection[str] | None = None) -> int:
        """Return the failures of the network of `address`, or those of them under `names`."""
        record = self._records.get(addresses.network(address))
        if record is None:
            return 0
        return record.failures if names is None else sum(record.names[name] for name in names)

    def forgive(self, address: addresses.Address, names: Collection[str] | None = None) -> int:
        """Forget failures of the network of `address`, all or those under `names`; return how many.

        Whoever still has too many goes on waiting.
        """
        key = addresses.network(address)
        record = self._records.get(key)
        if record is None:
            return 0
        count = self.count(address, names)
        for name in list(record.names) if names is None else names:
            record.names.pop(name, None)
        record.failures -= count
        if not record.failures:
            record.until = 0.0
            if not record.pending:
                del self._records[key]
        elif record.failures < FREE:
            record.until = 0.0
        return count

    def forgive_all(self) -> int:
        """Forget every failure; return of how many networks."""
        count = len(self._records)
        self._records.clear()
        return count

    def _fail(self, key: bytes, record: _Record, name: str | None) -> None:
        now = self._clock()
        record.failures += 1
        if name is not None and (name in record.names or len(record.names) < _MAX_NAMES):
            record.names[name] += 1
        record.last = now
        over = record.failures - FREE
        if over >= 0:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(over, 32))
            record.until = now + pause
            record.last = record.until
        self._records[key] = record
        self._records.move_to_end(key)

    def _make_room(self) -> None:
        while len(self._records) > self._limit:
            for key, record in self._records.items():
                if not record.pending:
                    del self._records[key]
                    break
            else:
                return
