"""Reading the pane of a sign-in: the address, the code, the question, the menu, the failure.

The text is what `tmux capture-pane -e -J` prints: lines that the terminal wrapped are whole again,
hyperlinks (OSC 8) carry their target. Nothing of it is trusted: any program can print anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_box.signin.flows import Flow

MAX_FAILURE = 240
"""Characters of a vendor's own words about a failure."""

_LINK = re.compile(r"\x1b\]8;[^;\x07\x1b]*;([^\x07\x1b]*)(?:\x07|\x1b\\)")
_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]|[\x0e\x0f]"
)
# What RFC 3986 allows. A backslash is not in it: browsers take it for a slash, parsers do not.
_CHARACTERS = r"A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-"
_ADDRESS = re.compile(rf"https://[{_CHARACTERS}]+")
_REST = re.compile(rf"[{_CHARACTERS}]+")
_TRAILING = ".,;:!?'\")]"
_NEAR = 6
"""Columns that programs leave free at the right edge when they wrap by themselves."""

_CODE = re.compile(r"(?<![\w-])[A-Z0-9]{3,8}(?:-[A-Z0-9]{3,8}){1,3}(?![\w-])")
_PROSE = frozenset(
    (
        *("ACCESS", "ANY", "AUTH", "CODE", "DEVICE", "ENTER", "LOG", "MAKE", "NEW", "NOT", "ONE"),
        *("ONLY", "OPEN", "OUT", "READ", "REQUIRED", "SIGN", "STEP", "THE", "TIME", "TWO", "URL"),
        *("USE", "WEB", "YOUR"),
    )
)
_LOOKBACK = 3
"""Lines above a lone code in which it must be called one."""

_SECRET = re.compile(
    r"\b(?:sk-|gh[opsur]_|github_pat_|eyJ|xox|ya29)[\w.-]+"
    r"|(?=[\w.~+/=-]*[0-9])(?=[\w.~+/=-]*[A-Za-z])[\w.~+/=-]{20,}"
)
_FRAME = " \t┃│╭╰╮╯┌└◇◆■▲"
_BULLETS = {"●": True, "◉": True, "○": False, "◯": False}
_ARROWS = "→\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}>"


@dataclass(frozen=True)
class Menu:
    """A choice between lines; `selected` is the index of the marked one."""

    choices: tuple[str, ...]
    selected: int


def plain(screen: str) -> list[str]:
    """Return the lines of a captured screen without escapes and without empty ones at the end."""
    lines = [line.rstrip() for line in _ESCAPE.sub("", screen).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def trusted(address: str, hosts: Sequence[str]) -> bool:
    """Return whether a browser that opens `address` goes to one of `hosts` or below it."""
    if _ADDRESS.fullmatch(address) is None:
        return False
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    # Before an @ stands a name that looks like the host and is not.
    if "@" in parts.netloc or port not in (None, 443):
        return False
    return any(host == known or host.endswith(f".{known}") for known in hosts)


def address(screen: str, columns: int, flow: Flow) -> str | None:
    """Return the sign-in page's address, whole, or None; foreign hosts do not exist for it."""
    found = [match.group(1) for match in _LINK.finditer(screen)] + _visible(screen, columns)
    good = [item for item in found if trusted(item, flow.hosts)]
    best = [item for item in good if re.search(flow.page, item)]
    # Of a link and its text, the text may be cut; of two attempts, the later one counts.
    wanted = best or (good if flow.any_page else [])
    whole = [item for item in wanted if not any(o != item and o.startswith(item) for o in wanted)]
    return whole[-1] if whole else None


def _visible(screen: str, columns: int) -> list[str]:
    lines = plain(_LINK.sub("", screen))
    found = []
    for index, line in enumerate(lines):
        for match in _ADDRESS.finditer(line):
            text = match.group()
            if match.end() == len(line):
                text += "".join(_continuation(lines, index, columns))
            found.append(text.rstrip(_TRAILING))
    return found


def _continuation(lines: list[str], index: int, columns: int) -> list[str]:
    """Return the rest of an address that its program broke at the right edge."""
    rest: list[str] = []
    width = len(lines[index])
    while columns - _NEAR <= width <= columns and index + 1 < len(lines):
        index += 1
        text = lines[index].strip(_FRAME)
        if _REST.fullmatch(text) is None or text.startswith("https://"):
            break
        rest.append(text)
        width = len(lines[index])
    return rest


def code(screen: str) -> str | None:
    """Return the one-time code that the screen shows, the last one if there are several."""
    lines = [_ADDRESS.sub("", line) for line in plain(screen)]
    found = None
    for index, line in enumerate(lines):
        for match in _CODE.finditer(line):
            text = match.group()
            if any(group in _PROSE for group in text.split("-")):
                continue
            alone = line.strip(_FRAME) == text
            above = [item for item in lines[:index] if item.strip(_FRAME)][-_LOOKBACK:]
            if "code" in line.lower() or (alone and any("code" in i.lower() for i in above)):
                found = text
    return found


def menu(screen: str) -> Menu | None:
    """Return the menu at the foot of the screen, if it waits there for a choice."""
    lines = plain(screen)[-24:]
    bullets = []
    for line in lines:
        text = line.strip(_FRAME)
        if text[:1] in _BULLETS and len(text) > 2:
            bullets.append((text[1:].strip(), _BULLETS[text[0]]))
    if sum(marked for _, marked in bullets) == 1:
        return Menu(
            tuple(text for text, _ in bullets), [marked for _, marked in bullets].index(True)
        )
    return _arrows(lines)


def _arrows(lines: list[str]) -> Menu | None:
    for index in range(len(lines) - 1, -1, -1):
        text = lines[index]
        indent = len(text) - len(text.lstrip(" "))
        if text.lstrip(" ")[:2] not in {f"{arrow} " for arrow in _ARROWS}:
            continue
        pad = " " * (indent + 2)

        def member(line: str, pad: str = pad) -> bool:
            return line.startswith(pad) and len(line) > len(pad) and line[len(pad)] not in " ("

        first, last = index, index
        while first > 0 and member(lines[first - 1]):
            first -= 1
        while last + 1 < len(lines) and member(lines[last + 1]):
            last += 1
        if last > first:
            block = lines[first : last + 1]
            return Menu(tuple(line[indent + 2 :].strip() for line in block), index - first)
    return None


def last_line(screen: str) -> str:
    """Return the last line that is not empty, stripped."""
    return next((line.strip(_FRAME) for line in reversed(plain(screen)) if line.strip(_FRAME)), "")


def asks(screen: str, pattern: str | None, lines: int = 5) -> bool:
    """Return whether one of the last lines asks what `pattern` says."""
    if pattern is None:
        return False
    shown = [line for line in plain(screen) if line.strip(_FRAME)][-lines:]
    return any(re.search(pattern, line) for line in shown)


def failure(screen: str, secrets: Sequence[str] = ()) -> str:
    """Return the vendor's last words, without addresses and whatever looks like a secret."""
    text = " ".join(line.strip(_FRAME) for line in plain(screen) if line.strip(_FRAME))
    for secret in sorted((item for item in secrets if item), key=len, reverse=True):
        for form in {secret, secret.strip(), " ".join(secret.split())}:
            if form:
                text = text.replace(form, "…")
    text = _CODE.sub("…", _SECRET.sub("…", _ADDRESS.sub("…", text)))
    return text[-MAX_FAILURE:].strip()
