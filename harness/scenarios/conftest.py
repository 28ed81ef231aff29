"""What scenarios of the browser side have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness import browser
from agent_box_harness.edge import Edge
from agent_box_harness.plugin import run_key
from agent_box_harness.vendors import spare_real

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box
    from agent_box_harness.browser import Visitor


@pytest.fixture
def edge(box: Box) -> Edge:
    """The box over HTTPS, up, each user with the password of the tests."""
    names = ("caddy", "agent-box-gate", *(f"agent-box-terminal-{user}" for user in box.users))
    units = [f"{name}.service" for name in names]
    if box.run(f"systemctl is-active {' '.join(units)}").rc != 0:
        for unit in units:
            box.wait_for_unit(unit)
    edge = Edge(box)
    for user in box.users:
        edge.set_password(user)
    return edge


@pytest.fixture(scope="session", autouse=True)
def _one_browser() -> Iterator[None]:
    """End the browser with the run: its scenarios use one after the other."""
    yield
    browser.running.close()


@pytest.fixture
def visitor(edge: Edge, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """A browser beside the box; no page in it may complain about anything."""
    spare_real(edge.box)
    for user in edge.box.users:
        edge.box.wait_session(user, "main", ("running", "waiting"))
    folder = request.config.stash[run_key].folder / request.node.name
    with browser.visit(edge.box, folder) as visitor:
        yield visitor
        assert visitor.problems == []
