"""Many at once: guessers, open pages, nobody at all. What it costs, and that nobody notices."""

from __future__ import annotations

import itertools
import json
import statistics
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside
from agent_box_harness.edge import CROWD, PASSWORDS, Ask, Edge, page_headers, with_cookie
from agent_box_harness.edge_load import LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box

pytestmark = pytest.mark.limit(180)

GUESSERS = 40
MEMORY = 120.0
"""MB by which the gate may grow while they guess."""
ECHO = 200.0
"""Milliseconds for 95 of 100 keys to be shown meanwhile."""

PAGES, SESSIONS = 5, 30
SEEN = 100.0
"""Milliseconds until a change is in every open page, the median."""
IDLE = 0.5
"""Percent of a core that all services together may use while pages are open and nothing happens."""
WATCHED = 10
"""Seconds for which that is looked at."""
AWAKE = 500.0
"""Milliseconds from a request to the answer of a settings service that had to be started."""


def memory(box: Box, pid: int, field: str) -> float:
    """Return a field of a process's status, in MB."""
    line = next(line for line in box.read(f"/proc/{pid}/status").splitlines() if field in line)
    return int(line.split()[1]) * 1024 / 1e6


def percentile(samples: list[float], part: float) -> float:
    return sorted(samples)[min(int(len(samples) * part), len(samples) - 1)]


@pytest.mark.shared
def test_guessers(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """40 wrong passwords at the same moment, from 40 addresses, again and again: the gate hardly
    grows, who is signed in types on undisturbed, and who knows a password gets in.
    """
    box = edge.box
    cookie = edge.sign_in("alice")
    headers = [*with_cookie(cookie), ("Origin", edge.origin)]
    guesses = [
        {**edge.form("alice", f"wrong password {number}").step(), "source": f"127.0.1.{number}"}
        for number in range(1, GUESSERS + 1)
    ]
    pid = outside.main_pid(box, "agent-box-gate.service")
    box.succeed(f"echo 5 >/proc/{pid}/clear_refs")
    before = memory(box, pid, "VmRSS")
    steps: list[dict[str, Any]] = [
        {"do": "open", "as": "a", "target": "/alice/t/main/ws", "headers": headers},
        {"do": "read", "as": "a", "until": "$"},
        {"do": "echo", "as": "a", "count": 40},
        {"do": "flood", "as": "guessers", "requests": guesses, "rounds": 4},
        {"do": "echo", "as": "a", "count": 20, "while": "guessers"},
        edge.form("bob", PASSWORDS["bob"]).step(),
        {"do": "join", "as": "guessers"},
    ]
    _, _, calm, _, echo, in_between, flood = edge.steps(steps, program=CROWD, timeout=120)
    growth = memory(box, pid, "VmHWM") - before
    assert LETTERS in box.pane_text("alice", "main")
    box.tmux("alice", "send-keys -t main C-u").check()
    assert pid == outside.main_pid(box, "agent-box-gate.service")
    # They were judged, as many as a short queue holds; the others were told to come again.
    assert set(flood["statuses"]) <= {401, 429, 503}, flood
    assert flood["statuses"].count(401) > GUESSERS
    measured("guesses a second", len(flood["statuses"]) / flood["seconds"])
    measured("growth of the gate, MB", growth)
    assert growth < MEMORY
    late = percentile(echo["milliseconds"], 0.95)
    measured("keystroke echo without guessers, median, ms", statistics.median(calm["milliseconds"]))
    measured("keystroke echo meanwhile, median, ms", statistics.median(echo["milliseconds"]))
    measured("keystroke echo meanwhile, 95 of 100, ms", late)
    assert late < ECHO * box.machine.time_factor
    assert in_between["status"] == 303, in_between
    # One address alone has five guesses, and then has to wait.
    alone = [{**guess, "source": "127.0.2.1"} for guess in guesses[:8]]
    assert [result["status"] for result in edge.steps(alone)] == [401] * 5 + [429] * 3
    box.succeed("agent-box-gate unban --all")


def test_many_pages(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """30 sessions in five open pages: a change is in each of them at once, the state itself and
    not the order to fetch it; and where nothing changes, nothing is spent.
    """
    box = edge.box
    adding = (
        f"for n in $(seq {SESSIONS - 1}); do agent-box-session add s$n --agent shell || exit; done"
    )
    box.as_user("alice", adding, timeout=90).check(adding)
    cookie = with_cookie(edge.sign_in("alice"))
    steps: list[dict[str, Any]] = [
        {"do": "stream", "as": str(number), "target": "/alice/events", "headers": cookie}
        for number in range(PAGES)
    ]
    terminal = [*cookie, ("Origin", edge.origin)]
    steps.append({"do": "open", "as": "t", "target": "/alice/t/main/ws", "headers": terminal})
    steps.append({"do": "run", "command": f"sleep {box.machine.scaled(3)}"})
    names = ["s5", *(f"moved{number}" for number in range(15))]
    steps += [
        {
            "do": "change", "method": "POST", "target": f"/alice/api/sessions/{old}/rename",
            "headers": page_headers(edge, cookie), "body": json.dumps({"newName": new}),
            "until": f'"name":"{new}"',
        }
        for old, new in itertools.pairwise(names)
    ]  # fmt: skip
    units = ("caddy", "agent-box-gate", "agent-box-settings-alice", "agent-box-terminal-alice",
             "agent-box-supervisor-alice", "agent-box-alice")  # fmt: skip
    spent = " ".join(f"/sys/fs/cgroup/system.slice/{unit}.service/cpu.stat" for unit in units)
    look = f"cat {spent} | awk '/^usage_usec/ {{n += $2}} END {{print n}}'"
    steps += [
        {"do": "run", "command": f"sleep {box.machine.scaled(5)}"},
        {"do": "run", "command": look},
        {"do": "run", "command": f"sleep {WATCHED}"},
        {"do": "run", "command": look},
    ]
    found = edge.steps(steps, program=CROWD, timeout=150)
    assert {result["status"] for result in found[:PAGES]} == {200}
    changes = found[PAGES + 2 : PAGES + 2 + len(names) - 1]
    assert {result["status"] for result in changes} == {200}
    delays = [delay for result in changes for delay in result["delays"]]
    assert len(delays) == PAGES * (len(names) - 1)
    assert None not in delays
    measured("change in five pages of 30 sessions, median, ms", statistics.median(delays))
    measured("change in five pages of 30 sessions, 95 of 100, ms", percentile(delays, 0.95))
    assert statistics.median(delays) < SEEN * box.machine.time_factor
    used = (int(found[-1]["output"]) - int(found[-3]["output"])) / 1e6 / WATCHED * 100
    measured("idle pages, percent of a core", used)
    assert used < IDLE * box.machine.time_factor


@pytest.mark.shared
def test_nobody_looks(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """The settings service ends by itself when nobody looks, and is back before anybody waits."""
    box = edge.box
    unit = "agent-box-settings-alice.service"
    cookie = with_cookie(edge.sign_in("alice"))
    asks = [
        Ask("/alice/", headers=cookie).step(),
        Ask("/alice/api/sessions", headers=cookie).step(),
    ]
    assert edge.steps(asks)[0]["status"] == 200
    box.wait_for(
        "its end",
        lambda: box.machine.get_unit_property(unit, "ActiveState") == "inactive",
        timeout=90,
    )
    assert box.machine.get_unit_property(unit, "Result") == "success"
    again = {"do": "repeat", "target": "/alice/", "headers": cookie, "count": 1}
    steps = [again]
    for _ in range(4):
        steps += [{"do": "run", "command": f"systemctl stop {unit}"}, again]
    waits = [result["milliseconds"][0] for result in edge.steps(steps, program=CROWD)[::2]]
    measured("settings service, from nothing to an answer, median, ms", statistics.median(waits))
    assert statistics.median(waits) < AWAKE * box.machine.time_factor
