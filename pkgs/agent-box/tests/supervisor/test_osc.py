"""Notifications in the output of a program, whole, in pieces, and from those who mean harm."""

from __future__ import annotations

import os
import random
import time

import pytest

from agent_box.agents.hook import ASKS, IDLE
from agent_box.agents.terminal import LONGEST, Terminal, clean
from agent_box.supervisor.osc import LONGEST as LONGEST_SEQUENCE
from agent_box.supervisor.osc import NEWEST, Notices

ALL = (
    b"text\x1b]9;one \xc3\xa4\x1b\\ \x1b]777;notify;two;more; of it\x07\x1b[1m"
    b"\x1bPtmux;\x1b\x1b]9;three\x07\x1b\\\x1bPtmux;\x1b\x1b]9;four\x1b\x1b\\\x1b\\"
    b"\x1b]99;;five\x1b\\\x1b]99;i=7:e=1:p=body;c2l4\x1b\\\x1b]99;i=1:d=0;seven\x07"
    b"\x1b]99;i=1:d=1:p=body;parts\x07end"
)
TEXTS = ["one ä", "two: more; of it", "three", "four", "five", "six", "seven parts"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 1000])
def test_every_form_in_pieces(size):
    notices = Notices()
    pieces = [ALL[start : start + size] for start in range(0, len(ALL), size)]
    assert [text for piece in pieces for text in notices.feed(piece)] == TEXTS


@pytest.mark.parametrize(
    "output",
    [
        b"\x1b]0;a title\x07\x1b]2;another\x1b\\",
        b"\x1b]8;;http://x\x07link\x1b]8;;\x07\x1b]52;c;aGk=\x07\x1b]10;?\x07",
        b"\x1b]9;4;1;50\x07\x1b]9;4;0\x07\x1b]9;9;/home\x07\x1b]9;4\x07",
        b"\x1b]777;precmd\x07\x1b]777;notify\x07\x1b]777;notify;;\x07",
        b"\x1b]99;i=1:p=?;\x07\x1b]99;p=icon;x\x07\x1b]99;e=1;no base64!\x07\x1b]99\x07",
        b"\x1b]9;\x07\x1b]9;\xe2\x80\xae \x01\x07\x1b]9;broken off\x18\x07\x1b]9;and\x1a\x07",
        b"\x1b]9;left by an escape\x1b[1m\x07",
        b"]9;no escape\x07",
        b"\x1b]9;" + b"x" * (LONGEST_SEQUENCE + 1) + b"\x07",
    ],
)
def test_what_is_no_notification(output):
    assert Notices().feed(output) == []
    notices = Notices()
    assert [notices.feed(bytes([byte])) for byte in output] == [[]] * len(output)


def test_a_number_may_begin_a_text():
    assert Notices().feed(b"\x1b]9;3 tests failed\x07") == ["3 tests failed"]


@pytest.mark.parametrize(
    "junk",
    [
        b"\x1b]9;",
        b"\x1b]9;x\x07",
        b"\x1b",
        b"\x1b]",
        b"\x1b]9;x\x1b",
        b"\x1b]99;d=0;x\x07",
        b"\x1b]99;e=1;" + b"QUJD" * 900 + b"\x07",
        b"\x1b]9;" + b"x" * 5000,
        b"x",
    ],
)
def test_junk_is_bounded(junk):
    """Neither memory nor time grows with what a program sends."""
    notices = Notices()
    piece = (junk * (65536 // len(junk) + 1))[:65536]
    started = time.process_time()
    for _ in range(8):
        texts = notices.feed(piece)
        assert len(texts) <= NEWEST
        assert all(len(text) <= LONGEST for text in texts)
        assert len(notices._rest) <= LONGEST_SEQUENCE
        assert len(notices._part) <= LONGEST
    assert time.process_time() - started < 2


def test_random_output_is_survived_in_any_pieces():
    alphabet = [b"\x1b", b"]", b"9", b";", b"\x07", b"\\", b"777;notify;", b"99;", b"x", b"\xff"]
    dice = random.Random(os.environ.get("AGENT_BOX_FUZZ_SEED", "7"))
    for _ in range(2000):
        output = b"".join(dice.choices(alphabet, k=dice.randrange(1, 40)))
        whole = Notices().feed(output)
        notices, cut = Notices(), dice.randrange(len(output) + 1)
        assert notices.feed(output[:cut]) + notices.feed(output[cut:]) == whole, output


def test_texts_are_cleaned():
    assert clean(" a\r\n\tb\x1b[31m\x00\u202e\u200b\u2028c\x9b ") == "a b [31m c"
    assert clean("x" * 10_000) == "x" * LONGEST
    assert clean("\x00" * 10_000 + "x") == ""
    assert clean("\ud800") == "\ufffd"


def test_meanings():
    terminal = Terminal(notices=[("done|ready", IDLE), ("", ASKS)], titles=[(r"^\* ", ASKS)])
    assert [terminal.notice(text) for text in ("All DONE", "what now?")] == [IDLE, ASKS]
    assert [terminal.title(text) for text in ("* x", "x * x")] == [ASKS, None]
    assert (Terminal().notice("x"), Terminal().title("x"), Terminal().bell) == (None, None, None)
