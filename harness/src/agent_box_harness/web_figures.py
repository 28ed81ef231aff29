"""What the browser side costs: for scenarios, which hold it down, and for `scripts/bench`."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness import outside
from agent_box_harness.edge import CROWD, PASSWORDS, Edge, page_headers, with_cookie

if TYPE_CHECKING:
    from agent_box_harness.box import Box

GATE = "agent-box-gate.service"
GUESSERS = 40
PAGES, SESSIONS = 5, 30
WATCHED = 10
"""Seconds for which idle services are looked at."""

SERVICES = ("caddy", "agent-box-gate", "agent-box-settings-alice", "agent-box-terminal-alice",
            "agent-box-supervisor-alice", "agent-box-alice")  # fmt: skip


@dataclass(frozen=True)
class Guessing:
    """What many wrong passwords at once did."""

    growth: float
    """MB by which the gate's memory grew at most."""
    calm: list[float]
    """Milliseconds of each key that a signed-in user typed before."""
    meanwhile: list[float]
    statuses: list[int]
    """Answers to the guesses."""
    seconds: float
    sign_in: int
    """Answer to a right password of somebody else meanwhile."""
    restarted: bool


@dataclass(frozen=True)
class Following:
    """What changes do to open pages."""

    statuses: set[int]
    delays: list[float | None]
    """Milliseconds until a change was in a page, for each change and page."""
    sizes: list[int]
    """Bytes that a page got for a change."""
    idle: float
    """Percent of a core that all services used while nothing happened."""


def guesses(edge: Edge) -> list[dict[str, Any]]:
    """Return wrong passwords in forms, each from an address of its own."""
    return [
        {**edge.form("alice", f"wrong password {number}").step(), "source": f"127.0.1.{number}"}
        for number in range(1, GUESSERS + 1)
    ]


def guess(edge: Edge, rounds: int = 4) -> Guessing:
    """Have strangers guess at once, while alice types and bob signs in."""
    box = edge.box
    pid = outside.main_pid(box, GATE)
    headers = [*with_cookie(edge.sign_in("alice")), ("Origin", edge.origin)]
    box.succeed(f"echo 5 >/proc/{pid}/clear_refs")  # the peak begins anew
    before = memory(box, pid, "VmRSS")
    steps: list[dict[str, Any]] = [
        {"do": "open", "as": "a", "target": "/alice/t/main/ws", "headers": headers},
        {"do": "read", "as": "a", "until": "$"},
        {"do": "echo", "as": "a", "count": 60},
        {"do": "flood", "as": "guessers", "requests": guesses(edge), "rounds": rounds},
        {"do": "echo", "as": "a", "count": 20, "while": "guessers"},
        edge.form("bob", PASSWORDS["bob"]).step(),
        {"do": "join", "as": "guessers"},
    ]
    _, _, calm, _, echo, sign_in, flood = edge.steps(steps, program=CROWD, timeout=120)
    return Guessing(
        growth=memory(box, pid, "VmHWM") - before,
        calm=calm["milliseconds"],
        meanwhile=echo["milliseconds"],
        statuses=flood["statuses"],
        seconds=flood["seconds"],
        sign_in=sign_in["status"],
        restarted=pid != outside.main_pid(box, GATE),
    )


def follow(edge: Edge, changes: int = 15) -> Following:
    """Have open pages follow changes of alice's 30 sessions, then look at them idle."""
    box = edge.box
    add = (
        f"for n in $(seq {SESSIONS - 1}); do agent-box-session add s$n --agent shell || exit; done"
    )
    box.as_user("alice", add, timeout=90).check(add)
    cookie = with_cookie(edge.sign_in("alice"))
    steps: list[dict[str, Any]] = [
        {"do": "stream", "as": str(number), "target": "/alice/events", "headers": cookie}
        for number in range(PAGES)
    ]
    terminal = [*cookie, ("Origin", edge.origin)]
    steps.append({"do": "open", "as": "t", "target": "/alice/t/main/ws", "headers": terminal})
    steps.append(_pause(box, 3))
    first = len(steps)
    names = ["s5", *(f"moved{number}" for number in range(changes))]
    steps += [
        {
            "do": "change",
            "method": "POST",
            "target": f"/alice/api/sessions/{old}/rename",
            "headers": page_headers(edge, cookie),
            "body": json.dumps({"newName": new}),
            "until": f'"name":"{new}"',
        }
        for old, new in itertools.pairwise(names)
    ]
    look = (
        f"systemctl show -P CPUUsageNSec {' '.join(SERVICES)} | awk '{{n += $1}} END {{print n}}'"
    )
    steps += [_pause(box, 5), _run(look), _run(f"sleep {WATCHED}"), _run(look)]
    found = edge.steps(steps, program=CROWD, timeout=150)
    results = found[first : first + changes]
    return Following(
        statuses={result["status"] for result in (*found[:PAGES], *results)},
        delays=[delay for result in results for delay in result["delays"]],
        sizes=[size for result in results for size in result["sizes"]],
        idle=(int(found[-1]["output"]) - int(found[-3]["output"])) / 1e9 / WATCHED * 100,
    )


def wake(edge: Edge, times: int = 5) -> list[float]:
    """Return the milliseconds until alice's settings service answers that did not run before."""
    unit = "agent-box-settings-alice.service"
    cookie = with_cookie(edge.sign_in("alice"))
    again = {"do": "repeat", "target": "/alice/", "headers": cookie, "count": 1}
    steps = [_run(f"systemctl stop {unit}"), again] * times
    return [result["milliseconds"][0] for result in edge.steps(steps, program=CROWD)[1::2]]


def patience(box: Box) -> float:
    """Return by what times of an idle machine are to be multiplied here and now.

    The guest's CPUs are those of this machine, and whatever else runs on it takes its share.
    """
    return box.machine.time_factor * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def memory(box: Box, pid: int, field: str) -> float:
    """Return a field of a process's status, in MB."""
    line = next(line for line in box.read(f"/proc/{pid}/status").splitlines() if field in line)
    return int(line.split()[1]) * 1024 / 1e6


def percentile(samples: list[float], part: float) -> float:
    """Return the sample below which that part of them lies."""
    return sorted(samples)[min(int(len(samples) * part), len(samples) - 1)]


def _run(command: str) -> dict[str, Any]:
    return {"do": "run", "command": command}


def _pause(box: Box, seconds: float) -> dict[str, Any]:
    return _run(f"sleep {seconds * box.machine.time_factor:g}")
