"""What the attacker's scenarios have in common: a box with both parties, one guest for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.battery import ground as grounds

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground
    from agent_box_harness.edge import Edge


@pytest.fixture
def ground(edge: Edge) -> Ground:
    """The box, alice signed in and with something to lose, bob signed in."""
    ground = grounds.prepare(edge)
    assert ground.complaints() == []  # before anybody attacks
    return ground
