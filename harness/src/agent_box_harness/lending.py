"""Guests that several scenarios use, one after the other."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_box_harness import renew
from agent_box_harness.box import Box

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from agent_box_harness.machine import Machine

MARKERS = ("shared", "renewed")


@dataclass(frozen=True)
class Tenant:
    """One scenario, or all those of a module, with a guest whose users are made anew for it."""

    name: str
    touches: tuple[str, ...] | None = None
    """The only users whom anything happens to; None for all."""


@dataclass
class Lent:
    """One such guest."""

    key: tuple[str, ...] = ()
    """The marker, then module, host and kind of machine; empty while there is no guest."""
    tenant: Tenant = Tenant("")
    """For whom its users were made anew."""
    machine: Machine | None = None
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def end(self) -> None:
        """Close the guest, if there is one."""
        self.key, self.machine = (), None
        self.stack.close()


class Lending:
    """The guests of one process: one for each marker."""

    def __init__(self) -> None:
        self._lent = {marker: Lent() for marker in MARKERS}

    def lend(self, key: tuple[str, ...], tenant: Tenant, fresh: Callable[[], Machine]) -> Machine:
        """Return the guest of a key as a tenant may expect it, or a fresh one."""
        marker, *_ = key
        lent = self._lent[marker]
        if lent.key != key or lent.machine is None or not lent.machine.is_up():
            lent.end()
            lent.machine = lent.stack.enter_context(fresh())
            lent.key = key
            if marker == "renewed":
                renew.keep(Box(lent.machine))
        elif marker == "renewed" and lent.tenant != tenant:
            renew.renew(Box(lent.machine), lent.tenant.touches)
        lent.tenant = tenant
        return lent.machine

    def end(self, key: tuple[str, ...]) -> None:
        """End the guest of a key, if there is one."""
        for lent in self._lent.values():
            if key and lent.key == key:
                lent.end()

    def end_before(self, following: tuple[str, ...] | None) -> None:
        """End what the next scenario, or with None nobody, has a use for."""
        for marker, lent in self._lent.items():
            # Others may come in between those whose users are made anew.
            if following is None or (marker == "shared" and following != lent.key):
                lent.end()


def sharing(item: pytest.Item, host: str) -> tuple[str, ...]:
    """Marker, module and host of scenarios that can use one guest; empty without a marker."""
    marker = next((name for name in MARKERS if item.get_closest_marker(name)), None)
    if marker is None:
        return ()
    return (marker, str(item.path) if marker == "shared" else "", host)


def turn(item: pytest.Item, host: str) -> tuple[int, tuple[str, ...]]:
    """Sort by this: those of one guest come together, best done by one worker.

    Last come those for which every worker has a guest in the end, whoever takes them over.
    """
    found = sharing(item, host)
    return (MARKERS.index(found[0]) + 1 if found else 0, found)


def tenant(item: pytest.Item) -> Tenant:
    """For whom the users of a guest are made anew: a scenario, or all those of a module."""
    marker = item.get_closest_marker("renewed")
    if marker is None:
        return Tenant(item.nodeid)
    name = str(item.path) if "module" in marker.args else item.nodeid
    return Tenant(name, marker.kwargs.get("touches"))
