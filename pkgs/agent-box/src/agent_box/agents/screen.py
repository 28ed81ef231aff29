"""Reading a pane: the few lines at the bottom in which agents put their dialogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


def tail(screen: str, count: int) -> list[str]:
    """Return the last `count` lines that hold text, stripped, top to bottom."""
    lines: list[str] = []
    for line in reversed(screen.splitlines()):
        text = line.strip(" \t┃│╭╰╮╯")
        if text:
            lines.append(text)
            if len(lines) == count:
                break
    return lines[::-1]


def has(lines: list[str], *needles: str) -> bool:
    """Return whether any of the lines contains any of the needles."""
    return any(needle in line for line in lines for needle in needles)


def last_words(
    screen: str, foot: re.Pattern[str], count: int = 1, skip: tuple[str, ...] = ()
) -> list[str]:
    """Return the lines of the last paragraph above an agent's input, stripped.

    The input begins at the `count`-th line from below that matches `foot`; without one there are
    no words. With a paragraph that begins with one of `skip` (an agent's status) comes the one
    above it.
    """
    lines = screen.splitlines()
    rules = [number for number, line in enumerate(lines) if foot.match(line.strip())]
    if len(rules) < count:
        return []
    words: list[str] = []
    for line in reversed(lines[: rules[-count]]):
        text = line.strip(" \t┃│╭╰╮╯")
        if text:
            words.append(text)
        elif words and not words[-1].startswith(skip or ("\0",)):
            break
    return words[::-1]
