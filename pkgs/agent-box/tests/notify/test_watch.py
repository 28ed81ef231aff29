"""What follows from a notice, in whatever order notices and time come."""

from __future__ import annotations

import pytest

from agent_box.notify.watch import MARGIN, Notice, Start, Stop, Tell, Watch

STOP = Notice("interruption", "stop", 1_000_120.0)
NOW = 1_000_000.0


def kinds(steps):
    return [type(step) for step in steps]


def test_told_at_once_and_stopped_after_the_grace():
    watch = Watch(75)
    assert kinds(watch.seen(STOP, NOW)) == [Tell]
    assert watch.seen(STOP, NOW + 74) == []
    assert kinds(watch.seen(STOP, NOW + 75)) == [Stop]
    assert watch.seen(STOP, NOW + 80) == []


def test_the_announced_end_cuts_the_grace_short():
    watch = Watch(600)
    watch.seen(STOP, NOW)
    assert watch.due(STOP.at - MARGIN - 1) == []
    assert kinds(watch.due(STOP.at - MARGIN)) == [Stop]


def test_a_late_notice_stops_in_the_same_breath():
    assert kinds(Watch(75).seen(STOP, STOP.at - 3)) == [Tell, Stop]


def test_time_alone_brings_the_end_while_the_service_is_silent():
    watch = Watch(75)
    watch.seen(STOP, NOW)
    assert kinds(watch.due(NOW + 80)) == [Stop]


@pytest.mark.parametrize(("later", "expected"), [(10, [Tell]), (80, [Start, Tell])])
def test_withdrawn(later, expected):
    watch = Watch(75)
    watch.seen(STOP, NOW)
    watch.due(NOW + later)
    assert kinds(watch.seen(None, NOW + later + 1)) == expected
    assert watch.due(NOW + 10_000) == []
    assert kinds(watch.seen(STOP, NOW + 200)) == [Tell, Stop]


def test_a_machine_that_hibernates_keeps_its_sessions():
    watch = Watch(75)
    assert kinds(watch.seen(Notice("interruption", "hibernate", STOP.at), NOW)) == [Tell]
    assert watch.due(NOW + 10_000) == []


def test_a_changed_notice_is_told_anew():
    watch = Watch(75)
    watch.seen(STOP, NOW)
    (told,) = watch.seen(Notice("interruption", "terminate", STOP.at), NOW + 1)
    assert "lost" in told.text


def test_words():
    (told,) = Watch(75).seen(STOP, NOW)
    assert "at 13:48:40 UTC on 12 January" in told.text
    assert Watch(75, "Push now").seen(STOP, NOW) == [Tell("Push now")]
    (told,) = Watch(75).seen(Notice("interruption", "stop", None), NOW)
    assert "stop this machine. Write" in told.text


def test_recommendations_are_told_once():
    watch = Watch(75)
    for notice in (Notice("rebalance", "", 1.0), Notice("maintenance", "system-reboot", 2.0)):
        assert kinds(watch.heard(notice)) == [Tell]
        assert watch.heard(notice) == []
    assert kinds(watch.heard(Notice("rebalance", "", 3.0))) == [Tell]
