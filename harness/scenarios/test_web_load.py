"""Many at once: guessers, open pages, nobody at all. What it costs, and that nobody notices."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import web_figures
from agent_box_harness.edge import Ask, Edge, with_cookie
from agent_box_harness.edge_load import LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]

# Times are those of an idle machine at native speed.
MEMORY = 120.0
"""MB by which the gate may grow while 40 guess at once."""
ECHO = 200.0
"""Milliseconds for 95 of 100 keys to be shown meanwhile."""
SEEN = 100.0
"""Milliseconds until a change is in every open page, the median."""
IDLE = 0.5
"""Percent of a core that all services together may use while pages are open and nothing happens."""
AWAKE = 500.0
"""Milliseconds from a request to the answer of a settings service that had to be started."""


def test_guessers(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """40 wrong passwords at the same moment, from 40 addresses, again and again: the gate hardly
    grows, who is signed in types on undisturbed, and who knows a password gets in.
    """
    box = edge.box
    found = web_figures.guess(edge)
    assert not found.restarted
    # What came back had been typed into the session.
    assert box.pane_text("alice", "main").rstrip()[-1] in LETTERS
    box.tmux("alice", "send-keys -t main C-u").check()
    # They were judged, as many as a short queue holds; the others were told to come again.
    assert set(found.statuses) <= {401, 429, 503}
    assert found.statuses.count(401) > web_figures.GUESSERS
    measured("guesses a second", len(found.statuses) / found.seconds)
    measured("growth of the gate, MB", found.growth)
    assert found.growth < MEMORY
    late = web_figures.percentile(found.meanwhile, 0.95)
    measured("keystroke echo without guessers, median, ms", statistics.median(found.calm))
    measured("keystroke echo meanwhile, median, ms", statistics.median(found.meanwhile))
    measured("keystroke echo meanwhile, 95 of 100, ms", late)
    assert late < ECHO * web_figures.patience(box)
    assert found.sign_in == 303
    # One address alone has five guesses, and then has to wait.
    alone = [{**guess, "source": "127.0.2.1"} for guess in web_figures.guesses(edge)[:8]]
    assert [result["status"] for result in edge.steps(alone)] == [401] * 5 + [429] * 3
    box.succeed("agent-box-gate unban --all")


@pytest.mark.renewed
def test_many_pages(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """30 sessions in five open pages: a change is in each of them at once, the state itself and
    not the order to fetch it; and where nothing changes, nothing is spent.
    """
    factor = web_figures.patience(edge.box)
    found = web_figures.follow(edge)
    assert found.statuses == {200}
    delays = [delay for delay in found.delays if delay is not None]
    assert len(delays) == len(found.delays)
    measured("change in five pages of 30 sessions, median, ms", statistics.median(delays))
    measured(
        "change in five pages of 30 sessions, 95 of 100, ms", web_figures.percentile(delays, 0.95)
    )
    assert statistics.median(delays) < SEEN * factor
    measured("bytes that a change costs a page, median", statistics.median(found.sizes))
    assert statistics.median(found.sizes) < 2000
    measured("idle pages, percent of a core", found.idle)
    assert found.idle < IDLE * factor


def test_nobody_looks(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """The settings service ends by itself when nobody looks, and is back before anybody waits."""
    box = edge.box
    unit = "agent-box-settings-alice.service"
    cookie = with_cookie(edge.sign_in("alice"))
    assert edge.ask([Ask("/alice/", headers=cookie)])[0].status == 200
    box.wait_for(
        "its end",
        lambda: box.machine.get_unit_property(unit, "ActiveState") == "inactive",
        timeout=90,
    )
    assert box.machine.get_unit_property(unit, "Result") == "success"
    waits = web_figures.wake(edge)
    measured("settings service, from nothing to an answer, median, ms", statistics.median(waits))
    # The least, since whatever else the machine does only ever adds to it.
    assert min(waits) < AWAKE * web_figures.patience(box)
