"""What somebody else reads below a user's home is not what the user makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.battery import traps, walls

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]


def test_every_path_is_in_the_table(ground: Ground) -> None:
    """What units of the running box read of users has a line that says why it is safe."""
    table = walls.read()
    listed = {row.path for row in table.paths}
    found = traps.found(ground.box)
    assert sorted(found.paths.keys() - listed) == []


def test_traps(ground: Ground) -> None:
    """Links to what others own, pipes, huge files and what changes all the time, in the place of
    every path of bob's that somebody else reads: nothing is told, changed or held up, nothing
    stays failed, and alice is served.
    """
    told = traps.spring(ground)
    wrong = told["wrong"] + ground.complaints()
    assert any(len(made) > 10 for made in told["made"].values()), told["made"]
    assert not wrong, "\n".join(wrong)
