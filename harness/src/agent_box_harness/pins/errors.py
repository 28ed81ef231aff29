"""Why a pin was not moved. Every message says what to do; nothing is written then."""

from __future__ import annotations

import unicodedata

from agent_box_harness.errors import HarnessError


class PinError(HarnessError):
    """Base of all of them. `exit_code` is what the command ends with."""

    exit_code = 1


class UsageError(PinError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class NotFoundError(PinError):
    """Upstream does not know what was asked for."""

    exit_code = 3


class ConflictError(PinError):
    """Going on would overwrite somebody's work or go back in time."""

    exit_code = 4


class TransientError(PinError):
    """A fault that may pass: worth another try until the deadline.

    `retry_after` is the pause in seconds that the server asked for, 0 when it did not.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def clean(text: str, limit: int = 200) -> str:
    """Return upstream text as one printable line of at most `limit` characters.

    Control characters and the invisible ones that reorder text could otherwise steer the
    terminal or show a reader something else than what is there.

    >>> clean("fix \\x1b[2Jit\\nnow")
    'fix [2Jit now'
    """
    kept = []
    for character in text[: limit * 4]:
        if character.isspace():
            kept.append(" ")
        elif unicodedata.category(character)[0] != "C":
            kept.append(character)
    line = " ".join("".join(kept).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
