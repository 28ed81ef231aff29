"""In which order the scenarios of a run begin, so that several workers end at the same time."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def order(heavy: list[T], others: list[T], workers: int, cores: int) -> list[T]:
    """Return all, for workers of which each begins with an equal part of what it is given.

    So does pytest-xdist's `worksteal`, which later gives the end of one's part to whoever has
    nothing left. `heavy` ones, the longest first, compute all the time and begin their worker's
    part; no more workers than there are cores have any.
    """
    busy = min(workers, cores)
    lanes = [heavy[lane::busy] for lane in range(busy)]
    left, rest = len(heavy) + len(others), list(others)
    ordered: list[T] = []
    for worker in range(workers):
        share = left // (workers - worker)
        lane = lanes[worker] if worker < len(lanes) else []
        light = max(0, share - len(lane))
        ordered += [*lane, *rest[:light]]
        left -= len(lane) + len(rest[:light])
        rest = rest[light:]
    return ordered + rest
