"""What ran on a machine, for the evidence of a failed scenario."""

from __future__ import annotations

from dataclasses import dataclass

HISTORY_OUTPUT = 4000
"""Characters of a command's output that the history keeps."""


@dataclass(frozen=True)
class Command:
    """One command that ran on a machine: what, when, how long, with what result."""

    at: float
    """Wall clock, unix seconds, when it started."""
    seconds: float
    command: str
    status: int | None
    """Exit status; None when the command never came back."""
    output: str
    """Standard output, cut to `HISTORY_OUTPUT` characters."""
