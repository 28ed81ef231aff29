"""Texts that a regular expression takes: at least one for each way through it.

The edge chooses its routes by regular expressions. With such texts as addresses, every branch of
every route is asked, those of tomorrow included.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

codes: Any = vars(re)["_constants"]
parser: Any = vars(re)["_parser"]
"""Python's own understanding of expressions, which it keeps to itself."""

MOST = 12
"""More texts than this no part of an expression gives."""


def samples(pattern: str) -> list[str]:
    """Return texts that a pattern takes as a whole.

    >>> samples("^/a(b|c?)$")
    ['/ab', '/a', '/ac']
    """
    found = _sequence(list(parser.parse(pattern)))
    return list(dict.fromkeys(found))


def _sequence(parts: list[Any]) -> list[str]:
    """Return texts for parts that follow each other: each choice of a part once, not their product.

    The product of ten choices would be a thousand requests that show nothing new.
    """
    choices = [_part(code, argument) for code, argument in parts]
    if not all(choices):
        return []
    first = [choice[0] for choice in choices]
    found = ["".join(first)]
    for index, choice in enumerate(choices):
        found += ["".join([*first[:index], text, *first[index + 1 :]]) for text in choice[1:]]
    return list(dict.fromkeys(found))[:MOST]


def _part(code: Any, argument: Any) -> list[str]:
    if code is codes.LITERAL:
        return [chr(argument)]
    if code is codes.NOT_LITERAL:
        return ["x" if argument != ord("x") else "y"]
    if code is codes.ANY:
        return ["x"]
    if code is codes.IN:
        return [_of_set(argument)]
    if code is codes.AT:
        return [""]
    if code is codes.SUBPATTERN:
        return _sequence(list(argument[-1]))
    if code is codes.BRANCH:
        return list(itertools.chain.from_iterable(_sequence(list(each)) for each in argument[1]))
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, inner = argument
        texts = _sequence(list(inner))
        numbers = [least] if least == most else [least, least + 1]
        return list(dict.fromkeys(text * number for number in numbers for text in texts))
    raise ValueError(f"{code} in an expression of the edge: teach {__name__} what that takes")


def _of_set(members: Any) -> str:
    """Return one character of a set, a plain one where it has any."""
    if members[0][0] is codes.NEGATE:
        taken = {argument for code, argument in members[1:] if code is codes.LITERAL}
        return next(char for char in "xyz" if ord(char) not in taken)
    ranges = [argument for code, argument in members if code is codes.RANGE]
    letters = [chr(low) for low, _ in ranges if chr(low) in "aA0"]
    if letters:
        return max(letters)
    code, argument = members[0]
    return chr(argument if code is codes.LITERAL else argument[0])
