"""The box boots into a state in which people can work."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box

QUIET = 5.0  # seconds in which a restart loop would show: units come back after 0.1 to 2 s


@pytest.mark.needs("reboot")
def test_boot(box: Box, measured: Callable[[str, float], None]) -> None:
    """After power-on every unit is active, none has failed, none was restarted and the sessions
    run; the time from power-on until they can be listed is measured.
    """
    box.shutdown()
    began = time.monotonic()
    box.start()
    box.connect()
    for user in box.users:
        answers = functools.partial(_answers, box, user)
        box.wait_for(f"an answer of the supervisor of {user}", answers, timeout=60)
        box.ctl(user, "ls").check("agent-box-session ls")
    measured("power-on to agent-box-session ls", time.monotonic() - began)
    assert box.wait_ready() == "running"
    measured("power-on to all units", time.monotonic() - began)

    for user in box.users:
        box.require_unit_state(outside.sandbox(user))
        box.require_unit_state(outside.supervisor(user))
        view = box.wait_session(user, "main", "running")
        assert view["pid"] == outside.panes(box, user)["main"].pid
    assert box.succeed("systemctl --failed --no-legend --plain") == ""

    before = _lives(box)
    box.sleep(QUIET)
    assert _lives(box) == before
    assert {unit: count for unit, (count, _) in before.items() if count} == {}


def _answers(box: Box, user: str) -> bool:
    return box.ctl(user, "status").rc == 0


def _lives(box: Box) -> dict[str, tuple[int, str]]:
    """Restarts and present life of every service that the box's config has."""
    shown = box.succeed("systemctl show --property=Id,NRestarts,InvocationID 'agent-box-*.service'")
    lives = {}
    for block in shown.strip().split("\n\n"):
        facts = dict(line.split("=", 1) for line in block.splitlines())
        lives[facts["Id"]] = (int(facts["NRestarts"]), facts["InvocationID"])
    expected = {of(user) for user in box.users for of in (outside.sandbox, outside.supervisor)}
    assert expected <= lives.keys()
    return lives
