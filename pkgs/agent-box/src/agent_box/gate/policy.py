"""Which new passwords are acceptable.

Length is what counts. Beyond it a password must not be one that guessers try early: made of
common words, of neighbouring keys or of repetitions.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from importlib import resources
from typing import TYPE_CHECKING

from agent_box.gate.errors import PolicyError
from agent_box.gate.passwords import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable

MIN_LENGTH = 16
MAX_LENGTH = 64
"""Characters (code points), after composition."""

_LEAST_LEFT = 10
"""Characters that must remain when everything predictable is taken out."""

_LEAST_DISTINCT = 6
_SHORTEST_RUN = 4
_RUNS = (
    "01234567890",
    "abcdefghijklmnopqrstuvwxyz",
    "qwertyuiop",
    "qwertzuiop",
    "azertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "yxcvbnm",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm",
    "!@#$%^&*()",
)
_LEET = str.maketrans(
    {"0": "o", "1": "l", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s"}
)
_CONTROL = frozenset({"Cc", "Cs", "Cn", "Co", "Zl", "Zp"})


def check(password: str, personal: Iterable[str] = ()) -> str:
    """Return `password` in the form to hash; PolicyError says why it is not acceptable.

    `personal` are words that are easy to guess here: the user's name, the box's.
    """
    composed = normalise(password)
    if any(unicodedata.category(char) in _CONTROL for char in composed):
        raise PolicyError("the password contains a character that cannot be typed everywhere")
    if len(composed) < MIN_LENGTH:
        raise PolicyError(
            f"the password has {len(composed)} characters; use at least {MIN_LENGTH},"
            " for example four or five random words"
        )
    if len(composed) > MAX_LENGTH:
        raise PolicyError(f"the password has {len(composed)} characters; use at most {MAX_LENGTH}")
    if is_common(composed, personal):
        raise PolicyError(
            "the password is one that guessers try early (common words, neighbouring keys or"
            " repetitions); use four or five random words, or let a password manager make one"
        )
    return composed


def is_common(password: str, personal: Iterable[str] = ()) -> bool:
    """Tell whether little of `password` is hard to predict."""
    text = password.casefold()
    if len(set(text)) < _LEAST_DISTINCT:
        return True
    words = [*_words(), *_split(personal)]
    words.sort(key=len, reverse=True)
    return any(_left(form, words) < _LEAST_LEFT for form in (text, text.translate(_LEET)))


def _left(text: str, words: list[str]) -> int:
    """Count the characters of `text` that neither `words`, runs nor repetitions explain."""
    # Separators stay where they are only as long as they tell nothing: "p-a-s-s" is "pass".
    text = re.sub(r"[\s\-_.,:;/+]", "", text)
    text = _without_runs(text)
    for word in words:
        text = text.replace(word, "\0")
    text = re.sub(r"\0+", "", text)
    # Of "abcxabcxabcx" only the first part counts, of "aaaa" one.
    repeated = re.compile(r"(.+?)\1+")
    while (shorter := repeated.sub(r"\1", text)) != text:
        text = shorter
    return len(text)


def _without_runs(text: str) -> str:
    kept: list[str] = []
    index = 0
    while index < len(text):
        length = _run_length(text, index)
        if length >= _SHORTEST_RUN:
            kept.append("\0")
            index += length
        else:
            kept.append(text[index])
            index += 1
    return "".join(kept)


def _run_length(text: str, start: int) -> int:
    best = 0
    for run in _all_runs():
        length = 0
        while start + length < len(text) and text[start : start + length + 1] in run:
            length += 1
        best = max(best, length)
    return best


@functools.cache
def _all_runs() -> tuple[str, ...]:
    return (*_RUNS, *(run[::-1] for run in _RUNS))


@functools.cache
def _words() -> tuple[str, ...]:
    text = resources.files("agent_box.gate").joinpath("common.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _split(personal: Iterable[str]) -> list[str]:
    return [
        part
        for word in personal
        for part in re.split(r"[^\w]+", word.casefold())
        if len(part) >= _SHORTEST_RUN - 1
    ]
