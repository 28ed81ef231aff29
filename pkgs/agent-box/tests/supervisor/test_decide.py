"""Every combination of what is wanted and what is there."""

from __future__ import annotations

from itertools import product

import pytest

from agent_box.panes import Pane
from agent_box.registry import Entry
from agent_box.supervisor.reconcile import Action, Phase, decide

ID, OTHER = "f47ac10b-58cc-4372-a567-0e02b2c3d479", "f47ac10b-58cc-4372-a567-0e02b2c3d470"


def pane(session_id, *, dead=False, code=None, signal=None, lost=False):
    return Pane("one", "$0", "%0", 7, dead, code, signal, 0, 0, session_id, "L", lost)


ENTRIES = {
    "unlisted": None,
    "listed": Entry("one", "claude", "/h", id=ID),
    "stopped": Entry("one", "claude", "/h", id=ID, stopped=True),
}
PANES = {
    "none": None,
    "alive": pane(ID),
    "ended": pane(ID, dead=True, code=3),
    "lost": pane(ID, dead=True, lost=True),
    "stranger": pane(None),
    "stranger's end": pane(None, dead=True, code=0),
    "earlier": pane(OTHER),
}
NAMESAKES = {"free": None, "foreign": pane(None), "ours": pane(OTHER)}
CASES = list(product(ENTRIES, PANES, Phase, (True, False), NAMESAKES))


def expected(entry, there, phase, due, namesake):
    """Say it a second time, in other words than the code."""
    mine = there in ("alive", "ended", "lost")
    if entry == "unlisted":
        return Action.END if mine or there == "earlier" else Action.NOTHING
    if not mine and there != "none":
        namesake = "ours" if there == "earlier" else "foreign"
    if entry == "stopped" or phase is Phase.PARKED:
        return Action.END if mine else Action.NOTHING
    if phase is Phase.FAILED:
        return Action.NOTHING
    if there == "alive":
        return Action.ADOPT if phase in (Phase.IDLE, Phase.CRASHED) else Action.NOTHING
    if mine:
        if phase is Phase.CRASHED:
            return Action.RESPAWN if due else Action.NOTHING
        return Action.FINISH
    if phase in (Phase.STARTING, Phase.RUNNING):
        return Action.FINISH
    if phase is Phase.CRASHED and not due:
        return Action.NOTHING
    return {"free": Action.START, "foreign": Action.BLOCKED, "ours": Action.NOTHING}[namesake]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_table(case):
    entry, there, phase, due, namesake = case
    action = decide(ENTRIES[entry], PANES[there], phase, due=due, namesake=NAMESAKES[namesake])
    assert action is expected(*case)
    starts = action in (Action.START, Action.RESPAWN)
    if there.startswith("stranger"):
        assert action not in (Action.END, Action.ADOPT, Action.RESPAWN)
    if entry != "listed" or phase in (Phase.FAILED, Phase.PARKED):
        assert not starts
    if PANES[there] is not None and not PANES[there].ended and PANES[there].session_id == ID:
        assert not starts
