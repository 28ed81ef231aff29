"""Reading a pane: the few lines at the bottom in which agents put their dialogs."""

from __future__ import annotations


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
