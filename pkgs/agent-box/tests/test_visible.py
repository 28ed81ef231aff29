"""What strangers cannot hide in the texts that are shown."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from agent_box.visible import visible, visible_line


def test_no_character_without_a_shape() -> None:
    """Of all of Unicode nothing that is invisible stays between two letters."""
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in ("Cf", "Cc", "Zl", "Zp", "Cs") and char not in "\n\t":
            shown = visible(f"a{char}b")
            assert shown in ("ab", "a\nb", "a\ufffdb"), hex(code)
    for code in (*range(0xFE00, 0xFE10), *range(0xE0000, 0xE0FFF), 0x034F, 0x115F, 0x3164, 0xFFA0):
        assert visible(f"a{chr(code)}b") == "ab", hex(code)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "tab\tand\nlines",
        "Zürich, 東京, שלום, कि",
        "\N{WOMAN}\u200d\N{ROCKET}",
        "\N{WAVING WHITE FLAG}\ufe0f\u200d\N{RAINBOW}",
        "\N{HEAVY BLACK HEART}\ufe0f\u200d\N{FIRE} 1\ufe0f\u20e3 \u2122\ufe0f",
        "\N{WOMAN}\U0001f3fd\u200d\N{PERSONAL COMPUTER}",
    ],
)
def test_what_people_write_stays(text: str) -> None:
    """Words of any language and emoji of several characters are as they were."""
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200db\N{ROCKET}\u200dc", "ab\N{ROCKET}c"),
        ("\N{ROCKET}\ufe0f\ufe0f\ufe0f", "\N{ROCKET}\ufe0f"),
        ("x\U000e0069\U000e0067\U000e006e", "x"),
        ("\N{WAVING BLACK FLAG}\U000e0067\U000e007f", "\N{WAVING BLACK FLAG}"),
        ("exe\u202egpj.txt", "exegpj.txt"),
        ("\x1b]0;t\x07a\x9bc", "]0;tac"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("half \ud83d", "half \ufffd"),
    ],
)
def test_what_hides_goes(text: str, shown: str) -> None:
    """Joiners outside of emoji, tags, marks of direction and controls are dropped."""
    assert visible(text) == shown
    assert visible_line(text) == shown.replace("\n", " ")
