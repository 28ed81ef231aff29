"""Requests that are cut off, that lie about their length, that never end: what they cost others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.battery import health, hold, inside, rude

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground

pytestmark = [pytest.mark.limit(150), pytest.mark.renewed("module")]

LINES = 2
"""Lines of the journal that one request may cost: the edge's own, and one of a service."""
AT_LEAST = 40
"""Lines that any service may log meanwhile."""


def test_cut_off(ground: Ground) -> None:
    """A request of anybody that is cut off at any point costs the journal its own lines and no
    traceback; all services live on, no larger, and alice is served.
    """
    before = health.look(ground.box)
    requests = rude.cuts(ground)
    rude.send(ground, requests)
    after = health.look(ground.box, before)
    wrong = health.complaints(before, after) + ground.complaints()
    allowed = AT_LEAST + LINES * len(requests)
    for unit, count in after.logged().items():
        if count > allowed:
            wrong.append(f"{unit} logs {count} lines for {len(requests)} requests")
    assert not wrong, "\n".join(wrong)


def test_lies_about_length(ground: Ground) -> None:
    """A request that lies about its length is refused or waits for itself alone: no service fails,
    grows or logs without end, and alice is served.
    """
    before = health.look(ground.box)
    requests = rude.lies(ground)
    answers = rude.send(ground, requests)
    after = health.look(ground.box, before)
    wrong = health.complaints(before, after) + ground.complaints()
    assert 400 in answers  # they did arrive
    assert not wrong, "\n".join(wrong)


def test_strangers_who_say_nothing(ground: Ground) -> None:
    """Hundreds of connections without a word, or with half a handshake or head, take nothing from
    alice.
    """
    before = health.look(ground.box)
    with hold.held(ground, hold.idle(ground)):
        wrong = ground.complaints()
        wrong += health.complaints(before, health.look(ground.box, before))
    assert not wrong, "\n".join(wrong)


def test_bodies_that_never_come(ground: Ground) -> None:
    """Eight connections of somebody whom nobody knows, with 230 requests each whose bodies do not
    come, take nothing from alice, whichever address they are for; nor do bob's.
    """
    wrong = []
    before = health.look(ground.box)
    for signed_in in (False, True):
        for target in hold.open_targets(ground):
            who = "bob" if signed_in else "a stranger"
            with hold.held(ground, hold.without_bodies(ground, target, signed_in=signed_in)):
                found = ground.complaints()
                after = health.look(ground.box, before)
                found += health.complaints(before, after, memory=4 * health.MEMORY)
                before = after
            wrong += [f"{who} at POST {target}: {complaint}" for complaint in found]
    assert not wrong, "\n".join(wrong)


def test_own_sockets_that_hang(ground: Ground) -> None:
    """bob holds every socket that he may connect to, forty times each, silent and with half a
    head: alice is served, and nothing fails.
    """
    before = health.look(ground.box)
    with hold.held(ground, hold.own_sockets(ground), stand=inside.Stand.LOGIN):
        wrong = ground.complaints()
        wrong += health.complaints(before, health.look(ground.box, before))
    assert not wrong, "\n".join(wrong)
