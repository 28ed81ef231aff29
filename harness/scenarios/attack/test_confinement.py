"""What units declare is what their processes have; and no sibling of a session's has more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.battery import confinement, siblings

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground
    from agent_box_harness.box import Box

pytestmark = [pytest.mark.limit(120), pytest.mark.renewed("module")]


def test_units_are_what_they_declare(box: Box) -> None:
    """Namespaces, mounts, capabilities, filters and limits of every unit's process are those that
    the unit declares, and processes of two users share no private namespace.
    """
    units = confinement.look(box)
    assert len(units) > 10
    wrong = confinement.broken(units)
    assert not wrong, "\n".join(wrong)


def test_siblings_of_a_session(ground: Ground) -> None:
    """A session reaches nothing through the other services of its user that it does not reach by
    itself: no socket, no directory, no network, no privilege, no other limits.
    """
    told = siblings.reached(ground, login=False)
    wrong = siblings.escapes(told, login=False)
    assert not wrong, "\n".join(wrong)


def test_logins_beside_a_session(ground: Ground) -> None:
    """Where its user is signed in on the machine as well, the login is a way out of the sandbox, as
    the README says: to what any login of that user has, setuid programs included, and to nothing
    of another user's and no other limits.
    """
    told = siblings.reached(ground, login=True)
    found = siblings.escapes(told, login=True)
    assert found, "the login was not looked at"
    doors = ("may gain privileges", "has capabilities", "without a filter", "/root of",
             "in the network of the host")  # fmt: skip
    wrong = [line for line in found if "alice" in line or not any(door in line for door in doors)]
    assert not wrong, "\n".join(wrong)
