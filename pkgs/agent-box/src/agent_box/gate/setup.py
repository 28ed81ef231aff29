"""Set-up codes: how the first password of a box is chosen by whoever can read its console.

A user has one code at a time, which is told again as often as somebody asks. It is made from the
key of the box, so that it need not be kept.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from agent_box.gate.store import Store

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_GROUPS = 4
_GROUP = 4
_ALIKE = str.maketrans({"O": "0", "I": "1", "L": "1"})

LIFETIME = 24 * 3600.0
"""Seconds for which a code that root asked for works."""


def create(store: Store, user: str, *, lifetime: float | None = LIFETIME) -> str:
    """Make and return a code for `user` (80 random bits); an earlier one stops working."""
    nonce = secrets.token_hex(16)
    code = _code(store, user, nonce)
    expires = None if lifetime is None else store.clock() + lifetime
    store.set_setup(user, normalise(code), expires, nonce)
    return code


def current(store: Store, user: str, *, lifetime: float | None = LIFETIME) -> str:
    """Return the code of `user` that waits to be used, or make one.

    It works for `lifetime` from now on, or for longer where it did.
    """
    waiting = store.setups.get(user)
    if waiting is None or not waiting.nonce:  # one of an earlier version is known to nobody here
        return create(store, user, lifetime=lifetime)
    code = _code(store, user, waiting.nonce)
    if waiting.expires is not None:
        expires = None if lifetime is None else store.clock() + lifetime
        store.set_setup(user, normalise(code), expires, waiting.nonce)
    return code


def link(origin: str, user: str, code: str) -> str:
    """Return the address that fills in a code. What is behind # stays in the browser."""
    return f"{origin}/login?setup=1#{urlencode({'user': user, 'code': code})}"


def _code(store: Store, user: str, nonce: str) -> str:
    mixed = hmac.digest(store.key, f"setup-code\0{user}\0{nonce}".encode(), "sha256")
    number = int.from_bytes(mixed)
    signs = [_ALPHABET[number >> 5 * place & 31] for place in range(_GROUPS * _GROUP)]
    return "-".join("".join(signs[at : at + _GROUP]) for at in range(0, len(signs), _GROUP))


def normalise(code: str) -> str:
    """Return `code` without what people add or confuse when they copy it from a screen."""
    text = "".join(char for char in code.upper() if char.isalnum())
    return text.translate(_ALIKE)
