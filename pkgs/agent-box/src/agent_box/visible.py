"""Texts of strangers as they may be shown: what nobody can see is not in them.

Senders of webhooks, programs in terminals and names of files choose texts that people, agents and
terminals read. Characters without a shape hide words from the people and not from the agents (tags,
zero-width characters, variation selectors), and some turn the direction of what follows. One
function for all places, so that none is forgotten; what is left is data all the same.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # spares each start of a command the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable

_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
_INVISIBLE = (
    # Category Cf, and whatever else Unicode says that a reader need not show.
    "\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_LINE_ENDS = "\u2028\u2029"
_PICTURE = (
    "\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\U0001f000-\U0001faff"
)
_SIGN = f"{_PICTURE}\xa9\xae\u203c\u2049\u2122\u2139\u3030\u303d\u3297\u3299"

_HIDDEN = re.compile(
    # What makes one emoji of several characters stays where it does that.
    rf"(?:(?<=[{_PICTURE}])|(?<=[{_PICTURE}]\ufe0f))\u200d(?=[{_PICTURE}])"
    rf"|(?<=[{_SIGN}])[\ufe0e\ufe0f]"
    r"|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    rf"|(?P<hidden>[{_INVISIBLE}])"
    rf"|(?P<control>[{_CONTROL}])"
    rf"|(?P<end>[{_LINE_ENDS}])"
    r"|(?P<half>[\ud800-\udfff])"
)


def visible(text: str, instead: Callable[[str], str] = lambda _: "") -> str:
    """Return `text` without control characters, and without invisible ones outside of emoji.

    Line feeds and tabs stay; other ends of lines become line feeds. `instead` tells what stands
    for a character that is left out.
    """
    if text.isascii() and text.isprintable():
        return text

    def shown(found: re.Match[str]) -> str:
        match found.lastgroup:
            case None:
                return found[0]
            case "end":
                return "\n"
            case "half":
                return "\N{REPLACEMENT CHARACTER}"
            case _:
                return instead(found[0])

    return _HIDDEN.sub(shown, text.replace("\r\n", "\n").replace("\r", "\n"))


def visible_line(text: str, instead: Callable[[str], str] = lambda _: "") -> str:
    """Return `text` as `visible` does, on one line: blanks stand for ends of lines and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return " ".join(visible(text, instead).replace("\t", " ").split("\n"))
