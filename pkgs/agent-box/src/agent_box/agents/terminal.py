"""What an agent tells through its terminal: notifications, its title, the bell.

What agents tell by hooks, a plugin or a `notify` (see `agents.hook`) need not be told by that, and
a bell of theirs is a reason to read the screen at once. For the rest, or all, of the signals of an
agent its adapter says as data what notifications and titles mean; the last word counts. All these
texts come from whatever runs in the pane and are nothing but words to show: bounded, without
anything that moves a cursor or turns the writing direction, and never interpreted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_box.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 160
"""Characters kept of a text that a terminal was sent."""


@dataclass(frozen=True)
class Terminal:
    """The meaning of what an agent tells through its terminal, in the words of `agents.hook`.

    `notices` (OSC 9, OSC 777;notify, OSC 99) and `titles` (OSC 0 and 2) are pairs of a regular
    expression and the word for a text in which it is found, in any case of letters; the first
    that fits counts. `bell` is the word for the bell.
    """

    notices: Sequence[tuple[str, str]] = ()
    titles: Sequence[tuple[str, str]] = ()
    bell: str | None = None

    def notice(self, text: str) -> str | None:
        """Return the word for a notification; None for one that tells nothing."""
        return _first(self.notices, text)

    def title(self, text: str) -> str | None:
        """Return the word for a title; None for one that tells nothing."""
        return _first(self.titles, text)


def _first(meanings: Sequence[tuple[str, str]], text: str) -> str | None:
    found = (word for pattern, word in meanings if re.search(pattern, text, re.IGNORECASE))
    return next(found, None)


def clean(text: str) -> str:
    """Return `text` on one line, bounded, without controls and invisible characters."""
    # Twice as much and more, since what is dropped leaves room.
    start = text[: 8 * LONGEST]
    return " ".join(visible(start, lambda _: " ").split())[:LONGEST].rstrip()
