"""`signin`: the vendor's own sign-in, told here line by line. The code goes in, never into argv."""

from __future__ import annotations

import getpass
import sys
import time
from typing import TYPE_CHECKING, Any

from agent_box.errors import ConflictError, InternalError, UsageError
from agent_box.session_cli import PROGRAM, render

if TYPE_CHECKING:
    import argparse

    from agent_box.session_cli.context import Context

POLL = 0.7
"""Seconds between two looks at a sign-in."""

_ALL = 100.0
"""Seconds for every CLI to say whether it is signed in."""

_ENDED = ("connected", "failed", "expired", "missing", "blocked", "idle", "unknown")
_WORDS = {
    "idle": "not signed in",
    "connected": "signed in",
    "unknown": "does not say",
    "missing": "not installed",
    "blocked": "the sandbox does not run",
}


def run(context: Context, arguments: argparse.Namespace) -> int:
    """List the sign-ins, or carry one out."""
    if arguments.what is None:
        return _list(context)
    if arguments.cancel:
        return _tell(context, _act(context, arguments.what, "cancel"))
    if arguments.code:
        text = _read_code()
        return _tell(context, _act(context, arguments.what, "code", text=text))
    card = _act(context, arguments.what, "start", provider=arguments.provider)
    if arguments.no_wait or context.json:
        return _tell(context, card)
    return _follow(context, arguments.what, card)


def _list(context: Context) -> int:
    cards = context.call("connections", call_timeout=_ALL, wait=True)["connections"]
    if context.json:
        context.print_json({"connections": cards})
        return 0
    for card in cards:
        print(f"{card['id']:<10} {render.line(_sentence(card))}")
    return 0


def _sentence(card: dict[str, Any]) -> str:
    text = str(_WORDS.get(card["state"], card["state"]))
    if card["detail"]:
        text += f" {card['detail']}" if card["state"] == "connected" else f" ({card['detail']})"
    if card["shadows"]:
        text += f"; {', '.join(card['shadows'])} of the env file wins over it"
    if card["error"]:
        text += f": {card['error']}"
    return text


def _act(context: Context, what: str, action: str, **more: Any) -> dict[str, Any]:
    given = {key: value for key, value in more.items() if value is not None}
    result = context.call("signin", call_timeout=_ALL, flow=what, action=action, **given)
    card: dict[str, Any] = result["connection"]
    return card


def _tell(context: Context, card: dict[str, Any]) -> int:
    if context.json:
        context.print_json(card)
    else:
        print(f"{card['id']}: {render.line(_sentence(card))}")
        _show(card, set())
    return 0 if card["state"] not in ("failed", "expired") else InternalError.exit_code


def _follow(context: Context, what: str, card: dict[str, Any]) -> int:
    """Show what the sign-in wants until it has ended; Ctrl-C gives it up."""
    shown: set[str] = set()
    try:
        while card["state"] not in _ENDED:
            _show(card, shown)
            if card["choices"]:
                card = _act(context, what, "choose", choice=_choose(card["choices"]))
            elif card["needsCode"]:
                try:
                    card = _act(context, what, "code", text=_read_code())
                except ConflictError as error:
                    context.note(str(error))
            time.sleep(POLL)
            cards = context.call("connections")["connections"]
            card = next(item for item in cards if item["id"] == what)
    except (KeyboardInterrupt, EOFError):
        _act(context, what, "cancel")
        context.note("given up; what was signed in before still is")
        return ConflictError.exit_code
    return _tell(context, card)


def _show(card: dict[str, Any], shown: set[str]) -> None:
    if card["url"] and card["url"] not in shown:
        shown.add(card["url"])
        print(f"Open this page in a browser:\n\n  {render.line(card['url'])}\n")
    if card["code"] and card["code"] not in shown:
        shown.add(card["code"])
        print(f"Enter this code there:  {render.line(card['code'])}\n")
    sys.stdout.flush()


def _choose(choices: list[str]) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"a choice is wanted, in a terminal: {PROGRAM} signin")
    for number, choice in enumerate(choices, 1):
        print(f"{number:3}  {render.line(choice)}")
    while True:
        answer = input("Your choice: ").strip()
        if answer.isdigit() and 1 <= int(answer) <= len(choices):
            return choices[int(answer) - 1]


def _read_code() -> str:
    if sys.stdin.isatty():
        return str(getpass.getpass("Code from that page (not shown): "))
    data: bytes = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeError:
        raise UsageError("the code is not UTF-8 text") from None
