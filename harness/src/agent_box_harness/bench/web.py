"""Measurements of the browser side, in the container guest."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness import browser, outside, web_figures
from agent_box_harness.bench.measure import Measurement
from agent_box_harness.edge import CROWD, PASSWORDS, Edge, with_cookie

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

_FIRST = """new MutationObserver(() => {
  if (!window.usable && document.getElementById('tab-main')) window.usable = performance.now();
}).observe(document, {subtree: true, childList: true});"""
_WEIGHT = """() => [...performance.getEntriesByType('navigation'),
  ...performance.getEntriesByType('resource').filter(entry => entry.initiatorType !== 'iframe')]
  .map(entry => entry.transferSize)
  .reduce((sum, size) => sum + size, 0)"""


def rows(box: Box, quick: bool) -> Iterator[Measurement]:
    """Measure one row after the other; alice has 30 sessions in the end."""
    edge = Edge(box)
    for user in box.users:
        edge.set_password(user)
    yield from _requests(edge, 10 if quick else 50)
    if browser.missing() is None:
        yield from _pages(box, 3 if quick else 10)
    yield from _guessers(edge)
    yield from _memory(edge)
    waits = web_figures.wake(edge, 3 if quick else 10)
    method = "stopped before each sample; request through the edge, until the whole page is there"
    yield Measurement("web-wake", "settings service, from nothing to its page", "ms", method, waits)
    yield from _following(edge, 5 if quick else 15)


def _requests(edge: Edge, count: int) -> Iterator[Measurement]:
    cookie = with_cookie(edge.sign_in("alice"))
    form = {**edge.form("bob", PASSWORDS["bob"]).step(), "do": "repeat", "count": min(count, 20)}
    page = {"do": "repeat", "target": "/alice/", "headers": cookie, "count": count}
    headers = [("X-Agent-Box-User", "alice")]
    direct = {**page, "headers": headers, "socket": "/run/agent-box-settings/alice.sock"}
    sign_in, warm, through, alone = edge.steps([form, page, page, direct], program=CROWD)
    for result, status in ((sign_in, 303), (warm, 200), (through, 200), (alone, 200)):
        if set(result["statuses"]) != {status}:
            raise ValueError(f"answers are {result['statuses']}, not {status}")
    method = "POST of the login form on an open connection, until the answer with the cookie"
    yield Measurement("web-login", "sign in", "ms", method, sign_in["milliseconds"])
    method = "workspace page on an open connection through edge and gate, each sample less the"
    method += " median of asking the service itself"
    base = statistics.median(alone["milliseconds"])
    extra = [sample - base for sample in through["milliseconds"]]
    yield Measurement("web-request", "what edge and gate add to a request", "ms", method, extra)


def _pages(box: Box, count: int) -> Iterator[Measurement]:
    method = (
        "chromium beside the guest, nothing cached; from navigation until the first tab is there"
    )
    usable = Measurement("web-usable", "workspace, until it can be used", "ms", method)
    method = "bytes of page, scripts and styles as transferred, without the terminal in the tab"
    weight = Measurement("web-weight", "workspace, all of it", "KB", method)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(browser.running),
        browser.visit(box, Path(folder)) as visitor,
    ):
        for _ in range(count):
            context = visitor.somebody()
            page = context.new_page()
            visitor.sign_in(page, "alice")
            page.locator("#tab-main").wait_for()
            state: Any = context.storage_state()
            fresh = visitor.somebody(storage_state=state).new_page()
            fresh.add_init_script(_FIRST)
            fresh.goto(f"{visitor.origin}/alice/")
            fresh.wait_for_function("() => window.usable")
            usable.samples.append(float(fresh.evaluate("window.usable")))
            weight.samples.append(float(fresh.evaluate(_WEIGHT)) / 1000)
            context.close()
            fresh.context.close()
    yield usable
    yield weight


def _guessers(edge: Edge) -> Iterator[Measurement]:
    found = web_figures.guess(edge)
    edge.box.tmux("alice", "send-keys -t main C-u").check()
    edge.box.succeed("agent-box-gate unban --all")
    method = "a letter through the terminal's WebSocket until it comes back, a shell in the session"
    yield Measurement("web-echo", "keystroke echo", "ms", method, found.calm)
    method = "the same, during 4 rounds of 40 wrong passwords at once from 40 addresses"
    yield Measurement("web-echo-guessed", "keystroke echo meanwhile", "ms", method, found.meanwhile)
    method = "VmHWM of the gate afterwards less VmRSS before"
    what = "memory that 40 wrong passwords at once cost"
    yield Measurement("web-guessers", what, "MB", method, [found.growth])


def _memory(edge: Edge) -> Iterator[Measurement]:
    box = edge.box
    headers = [*with_cookie(edge.sign_in("alice")), ("Origin", edge.origin)]
    parts = {
        "settings": "$(systemctl show -P MainPID agent-box-settings-alice)",
        "terminal": "$(systemctl show -P MainPID agent-box-terminal-alice)",
        "gate": f"$(systemctl show -P MainPID {web_figures.GATE})",
        "edge": "$(systemctl show -P MainPID caddy)",
    }
    opened = "$(pgrep -u alice -f 'agent_box/terminal|tmux .*[a]ttach')"
    look = (
        "for p in {}; do grep ^Pss: /proc/$p/smaps_rollup; done | awk '{{n += $2}} END {{print n}}'"
    )
    steps: list[dict[str, Any]] = [
        {"do": "ask", "target": "/alice/", "headers": headers},
        {"do": "open", "as": "a", "target": "/alice/t/main/ws", "headers": headers},
        {"do": "read", "as": "a", "until": "$"},
        *({"do": "run", "command": look.format(pids)} for pids in (*parts.values(), opened)),
    ]
    *sizes, one = [int(result["output"]) * 1024 / 1e6 for result in edge.steps(steps)[3:]]
    found = dict(zip(parts, sizes, strict=True))
    method = "Pss in /proc/PID/smaps_rollup"
    per_user = [found["settings"] + found["terminal"]]
    what = "memory per user, page open (settings and terminal service)"
    yield Measurement("web-memory-user", what, "MB", method, per_user)
    yield Measurement("web-memory-terminal", "memory per open terminal", "MB", method, [one])
    yield Measurement("web-memory-gate", "memory of the gate", "MB", method, [found["gate"]])
    yield Measurement("web-memory-edge", "memory of the edge", "MB", method, [found["edge"]])
    outside.main_pid(box, web_figures.GATE)  # still there


def _following(edge: Edge, changes: int) -> Iterator[Measurement]:
    found = web_figures.follow(edge, changes)
    method = (
        f"rename of one of {web_figures.SESSIONS} sessions on an open connection, until the new"
    )
    method += f" state is in the stream of events of each of {web_figures.PAGES} pages"
    delays = [delay for delay in found.delays if delay is not None]
    yield Measurement("web-event", "change, until in every open page", "ms", method, delays)
    method = "bytes of the stream that belong to one change"
    sizes = [size / 1000 for size in found.sizes]
    yield Measurement("web-event-size", "what a change costs a page", "KB", method, sizes)
    method = f"all services of the user and the edge over {web_figures.WATCHED} s,"
    method += f" {web_figures.PAGES} pages and a terminal open, {web_figures.SESSIONS} sessions"
    yield Measurement(
        "web-idle", "CPU of open pages while nothing happens", "%", method, [found.idle]
    )
