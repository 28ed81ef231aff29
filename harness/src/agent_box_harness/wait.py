"""Deadlines and polling: waits start fast and back off, and failing ones tell what they saw."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from agent_box_harness.errors import WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_INTERVAL = 0.02
"""Seconds between the first two tries."""
LAST_INTERVAL = 0.5
"""Seconds between tries once a wait has lasted for a while."""
GROWTH = 1.5

T = TypeVar("T")


class Deadline:
    """A point in time to be done by; `seconds=None` never passes."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the deadline was set."""
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float | None:
        """Seconds left, never negative; None when there is no limit."""
        if self.seconds is None:
            return None
        return max(0.0, self.seconds - self.elapsed)

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and self.elapsed >= self.seconds


def poll(
    what: str,
    attempt: Callable[[], tuple[bool, T]],
    *,
    timeout: float | None,
    explain: Callable[[], str] | None = None,
    time_factor: float = 1.0,
) -> T:
    """Call `attempt` until it returns (True, value), and return that value.

    `attempt` runs at least twice, the last time after the deadline, so that a
    condition which comes true while the machine is busy is still seen. A machine that is
    `time_factor` times slower is asked less often at first: each question is work for it. Raises
    WaitTimeoutError with the last observed value and the text of `explain`.
    """
    deadline = Deadline(timeout)
    interval = min(FIRST_INTERVAL * time_factor, LAST_INTERVAL)
    while True:
        final = deadline.passed
        done, value = attempt()
        if done:
            return value
        if final:
            break
        remaining = deadline.remaining
        time.sleep(interval if remaining is None else min(interval, remaining))
        interval = min(interval * GROWTH, LAST_INTERVAL)
    message = f"gave up on {what} after {deadline.elapsed:.1f} s; last observed: {value!r}"
    if explain is not None:
        message += "\n" + explain()
    raise WaitTimeoutError(message)
