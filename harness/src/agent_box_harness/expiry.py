"""Logins that end by themselves, in seconds instead of days.

The limits are the options `web.loginIdleDays` and `web.loginMaxDays`, which reach the gate through
box.json like every other one.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from agent_box_harness.edge import Ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.edge import Edge

DOCUMENT = "/etc/agent-box/box.json"
DAY = 86400.0


def _configure(edge: Edge, document: dict[str, Any]) -> None:
    box = edge.box
    box.succeed(f"rm -f {DOCUMENT}")  # on NixOS a link to what nobody can change
    box.machine.write_file(DOCUMENT, json.dumps(document).encode(), mode=0o444)
    box.succeed("systemctl restart agent-box-gate.service")


@contextlib.contextmanager
def limits(edge: Edge, *, idle: float = 7 * DAY, age: float = 30 * DAY) -> Iterator[None]:
    """Have logins end after seconds without use, and at a certain age; as before afterwards."""
    before = edge.box.document
    after = json.loads(json.dumps(before))
    after["web"]["gate"].update(idleDays=idle / DAY, absoluteDays=age / DAY)
    _configure(edge, after)
    try:
        yield
    finally:
        _configure(edge, before)


def expired(edge: Edge, user: str) -> dict[str, str]:
    """Return cookies that have ended without anybody's doing, by what ended them.

    A login in use outlives the limit of idleness, and not that of age.
    """
    second = edge.box.machine.time_factor
    pause = {"do": "run", "command": f"sleep {second}"}

    def ask(cookie: str) -> dict[str, Any]:
        return Ask("/gate/account", headers=(("Cookie", cookie),)).step()

    with limits(edge, idle=5 * second):
        used, unused = edge.sign_in(user), edge.sign_in(user)
        found = edge.steps(
            [*(step for _ in range(8) for step in (pause, ask(used))), ask(unused)],
            timeout=60 * second,
        )
        asked = [result["status"] for result in found if "status" in result]
    assert asked == [200] * 8 + [401], asked  # noqa: S101 - a scenario
    with limits(edge, age=5 * second):
        old = edge.sign_in(user)
        found = edge.steps(
            [step for _ in range(8) for step in (pause, ask(old))], timeout=60 * second
        )
        asked = [result["status"] for result in found if "status" in result]
    assert (asked[0], asked[-1]) == (200, 401), asked  # noqa: S101 - a scenario
    return {"idle": unused, "old": old}
