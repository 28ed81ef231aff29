"""How much memory the machine has left, and how long it can go on like that."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from agent_box.errors import InternalError

_SIZES = re.compile(
    rb"MemTotal: +(\d+) kB\n.*?MemAvailable: +(\d+) kB\n.*?SwapTotal: +(\d+) kB\nSwapFree: +(\d+)",
    re.DOTALL,
)
_STALL = re.compile(r"^some avg10=([\d.]+) .* total=(\d+)$", re.MULTILINE)

LITTLE = 0.10
"""Share of the memory, or of the swap, below which there is little left."""

MOST = 4 << 30
"""Bytes that are never little, on machines of which a tenth is more."""

NOTHING = 0.03
"""Share of the memory that the kernel keeps for itself."""

STUCK, STOPPED = 40.0, 30.0
"""Percent of the time in which something waits for memory: over 10 s, and since the last look."""

FASTEST = min(3 * (os.cpu_count() or 1), 16) << 30
"""Bytes that programs can take in a second, with all processors."""

SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two looks."""


@dataclass(frozen=True)
class Look:
    """What the kernel says at one moment, in bytes."""

    total: int
    available: int
    swap_total: int
    swap_free: int
    stuck: float | None
    """Percent of the last 10 s in which something waited for memory; None: it is not counted."""
    waited: int | None
    """Microseconds since the boot in which something did; None: it is not counted, or nobody asked
    since there was enough.
    """
    at: float
    """Seconds of a clock that only goes forward."""

    @property
    def little(self) -> int:
        """Available bytes below which there is little left."""
        return min(int(self.total * LITTLE), MOST)

    @property
    def pause(self) -> float:
        """Seconds after which nobody can have taken all that is left."""
        spare = self.available - self.little
        return min(max(spare / FASTEST, SHORTEST), LONGEST)

    def short(self, before: Look) -> bool:
        """Tell whether something has to end.

        Swap that is left helps, as long as it is not all that the machine does; zram is memory
        itself, so that it can be half empty when nothing is left.
        """
        if self.available >= self.little:
            return False
        if self.swap_free <= self.swap_total * LITTLE:
            return True
        nothing = self.available < self.total * NOTHING
        if self.stuck is None:
            return nothing
        if self.stuck >= STUCK:
            return True
        if self.waited is None or before.waited is None:
            return False
        seconds = max(self.at - before.at, SHORTEST)
        return nothing and (self.waited - before.waited) / 1e4 / seconds >= STOPPED


def look(at: float, proc: Path = Path("/proc")) -> Look:
    """Ask the kernel."""
    found = _SIZES.match((proc / "meminfo").read_bytes())
    if found is None:
        raise InternalError(f"{proc}/meminfo is not what this program knows")
    total, available, swap_total, swap_free = (int(size) << 10 for size in found.groups())
    now = Look(total, available, swap_total, swap_free, stuck=None, waited=None, at=at)
    if now.available >= now.little:
        return now
    try:
        stall = _STALL.search((proc / "pressure/memory").read_text())
    except OSError:  # a kernel that does not count it, or that was told not to
        stall = None
    if stall is None:
        return now
    return replace(now, stuck=float(stall[1]), waited=int(stall[2]))
