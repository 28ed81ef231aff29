"""What scenarios of the browser side have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.edge import Edge

if TYPE_CHECKING:
    from agent_box_harness.box import Box


@pytest.fixture
def edge(box: Box) -> Edge:
    """The box over HTTPS, up, each user with the password of the tests."""
    for unit in ("caddy", "agent-box-gate", *(f"agent-box-terminal-{user}" for user in box.users)):
        box.wait_for_unit(f"{unit}.service")
    edge = Edge(box)
    for user in box.users:
        edge.set_password(user)
    return edge
