"""What follows from the end of a run: park it, bring it back, or give up.

Pure functions; the supervisor feeds them and acts.
"""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from typing import Literal

from agent_box.config import SHELL
from agent_box.supervisor.launch import EXIT_FAILED

STABLE = 60.0
"""Seconds after which a run counts as good and earlier failures are forgotten."""

FIRST_DELAY = 0.0
BASE_DELAY = 1.0
MAX_DELAY = 300.0
"""Seconds before the first retry, before the second, and at most."""


@dataclass(frozen=True)
class Verdict:
    """What to do with a session whose process ended."""

    action: Literal["park", "retry", "fail"]
    cause: str
    """How the run ended, in words."""
    delay: float = 0.0
    """Seconds until the retry."""
    failures: int = 0
    """Failures in a row, this one included."""


def describe(code: int | None, signo: int | None, *, out_of_memory: bool) -> str:
    """Return the end of a process in words."""
    if out_of_memory and signo == signal.SIGKILL:
        return "out of memory"
    if signo is not None:
        try:
            return f"killed by {signal.Signals(signo).name}"
        except ValueError:
            return f"killed by signal {signo}"
    if code is None:
        return "vanished"
    return f"exit {code}"


def delay(failures: int, *, jitter: float = 0.1) -> float:
    """Return the seconds to wait after `failures` failures in a row."""
    if failures <= 1:
        return FIRST_DELAY
    seconds = min(MAX_DELAY, BASE_DELAY * 2.0 ** min(failures - 2, 20))
    # Spread out sessions that died of one cause, so that they do not return in step.
    return seconds * (1 + random.uniform(-jitter, jitter))  # noqa: S311


def judge(
    *,
    agent: str,
    code: int | None,
    signo: int | None,
    out_of_memory: bool,
    lived: float,
    failures: int,
    failed_reason: str | None,
) -> Verdict:
    """Decide what follows from the end of a run that lived `lived` seconds.

    `failures` counts the failures in a row before this run; `failed_reason` is the
    launcher's own word that the session can never start as configured.
    """
    if failed_reason is not None and code == EXIT_FAILED:
        return Verdict("fail", failed_reason, failures=failures + 1)
    cause = describe(code, signo, out_of_memory=out_of_memory)
    if code == 0 and agent != SHELL:
        return Verdict("park", cause)
    if agent == SHELL and code is not None and lived >= 1.0:
        # Leaving a shell is how one asks for a fresh one.
        return Verdict("retry", cause, delay=0.0, failures=0)
    count = 1 if lived >= STABLE else failures + 1
    return Verdict("retry", cause, delay=delay(count), failures=count)
