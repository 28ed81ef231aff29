"""Set-up codes: how the first password of a box is chosen by whoever can read its console."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

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
    code = "-".join(
        "".join(secrets.choice(_ALPHABET) for _ in range(_GROUP)) for _ in range(_GROUPS)
    )
    expires = None if lifetime is None else store.clock() + lifetime
    store.set_setup(user, normalise(code), expires)
    return code


def normalise(code: str) -> str:
    """Return `code` without what people add or confuse when they copy it from a screen."""
    text = "".join(char for char in code.upper() if char.isalnum())
    return text.translate(_ALIKE)
