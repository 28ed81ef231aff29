"""The order of the tabs: the user's own, the same in every browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agent_box import naming
from agent_box.errors import InternalError, UsageError
from agent_box.locking import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

MAX_NAMES = 1000


class Order:
    """Names in the order that the user gave them; sessions it lacks come after."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "web" / "order.json"
        self._names: list[str] | None = None

    def names(self) -> list[str]:
        """Return the ordered names, some of which may not exist any more."""
        if self._names is None:
            try:
                self._names = msgspec.json.decode(self._path.read_bytes(), type=list[str])
            except (OSError, msgspec.MsgspecError):
                self._names = []  # never ordered, or spoilt: nothing that matters is lost
        return self._names

    def set(self, names: list[str]) -> None:
        """Keep `names`; UsageError when they are none, InternalError when they cannot be kept."""
        if len(names) > MAX_NAMES or len(set(names)) != len(names):
            raise UsageError("an order names every session once")
        for name in names:
            naming.check_existing(name)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write(self._path, msgspec.json.encode(names), durable=False)
        except OSError as error:
            raise InternalError(f"the order cannot be kept: {error.strerror}") from error
        self._names = names

    def rename(self, old: str, new: str) -> None:
        """Keep a renamed session in its place."""
        if old in self.names():
            self.set([new if name == old else name for name in self.names() if name != new])
