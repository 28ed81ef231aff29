"""Notifications in what a program writes to its terminal.

Three forms are in use, all ended by BEL or ESC backslash:

``ESC ] 9 ; TEXT``                  iTerm2. Where TEXT begins with a number and a semicolon it is
                                    ConEmu's, such as the progress of a task, and no notification
``ESC ] 777 ; notify ; TITLE ; TEXT``  urxvt
``ESC ] 99 ; KEY=VALUE:… ; TEXT``   kitty; in several parts with ``d=0``, in base64 with ``e=1``

Inside tmux programs may wrap them (``ESC P tmux ;``, each ESC doubled), for the terminal beyond;
they are found there as well.
"""

from __future__ import annotations

import base64
import re
from collections import deque

from agent_box.agents.terminal import clean

LONGEST = 4096
"""Bytes of a sequence; what is longer is none."""

NEWEST = 8
"""Notifications taken from one piece of output: of a flood the newest count."""

# CAN and SUB break a sequence off, as does an ESC that does not end it.
_BODY = rb"[^\x07\x18\x1a\x1b]"
_NOTICE = re.compile(
    rb"\x1b\](9|99|777);(%b{0,%d})(?:\x07|\x1b{1,2}\\)" % (_BODY, LONGEST), re.DOTALL
)
_OPEN = re.compile(rb"\x1b(?:\](?:[0-9]{0,3}|(?:9|99|777);%b*\x1b{0,2}))?\Z" % _BODY, re.DOTALL)
_CONEMU = re.compile(r"[0-9]+(?:;|\Z)")


class Notices:
    """Finds the notifications in the output of one program, however it is cut into pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._part = ""

    def feed(self, data: bytes) -> list[str]:
        """Take the next piece of output; return the texts of the notifications that it ends."""
        if not self._rest and b"\x1b" not in data:
            return []
        data = self._rest + data
        found = deque(_NOTICE.finditer(data), NEWEST)
        texts = [self._text(match[1], match[2]) for match in found]
        # What is open is behind the last ESC that could begin a sequence, hence near the end.
        opened = _OPEN.search(data, max(0, len(data) - LONGEST))
        self._rest = opened[0] if opened else b""
        return [text for text in texts if text]

    def _text(self, number: bytes, body: bytes) -> str:
        words = body.decode("utf-8", "replace")
        if number == b"9":
            return "" if _CONEMU.match(words) else clean(words)
        if number == b"777":
            kind, _, rest = words.partition(";")
            return clean(rest.replace(";", ": ", 1).strip(": ")) if kind == "notify" else ""
        return self._kitty(words)

    def _kitty(self, words: str) -> str:
        keys, _, payload = words.partition(";")
        options = dict(item.partition("=")[::2] for item in keys.split(":"))
        if options.get("p", "title") not in ("title", "body"):
            return ""  # an icon, a button, a question about what the terminal can do
        if options.get("e") == "1":
            try:
                payload = base64.b64decode(payload, validate=True).decode("utf-8", "replace")
            except ValueError:
                payload = ""
        text = clean(f"{self._part} {payload}")
        self._part = text if options.get("d") == "0" else ""
        return "" if options.get("d") == "0" else text
