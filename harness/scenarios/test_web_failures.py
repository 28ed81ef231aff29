"""Where a part of the browser side is down, nobody gets in, and a page says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from agent_box_harness.edge import Ask, Edge, with_cookie
from agent_box_harness.routes import paths

pytestmark = pytest.mark.limit(180)


def test_gate_down(edge: Edge) -> None:
    """Without the gate nobody gets in, and everybody is told what to do; back it lets in whom it
    did before, and open terminals have stayed.
    """
    box = edge.box
    cookie = with_cookie(edge.sign_in("alice"))
    units = "agent-box-gate.service agent-box-gate.socket agent-box-gate-admin.socket"
    page = (*cookie, ("Accept", "text/html"))
    shut = [
        Ask(path, headers=cookie) for route, path in paths("alice") if route.path != "/USER/webhook"
    ]
    asks = [*(ask for ask in shut if "webhook" not in ask.target), Ask("/alice/", headers=page)]
    steps: list[dict[str, Any]] = [
        {"do": "open", "as": "a", "target": "/alice/t/main/ws",
         "headers": [*cookie, ("Origin", edge.origin)]},
        {"do": "read", "as": "a", "until": "$"},
        {"do": "run", "command": f"systemctl stop {units}"},
        *(ask.step() for ask in asks),
        {"do": "run", "command": f"systemctl start {units}"},
        {"do": "type", "as": "a", "text": "echo =$((3+3))=\r"},
        {"do": "read", "as": "a", "until": "=6="},
        Ask("/alice/", headers=cookie).step(),
    ]  # fmt: skip
    found = edge.steps(steps, timeout=120)
    down = found[3 : 3 + len(asks)]
    assert {result["status"] for result in down} == {503}
    box.expect_in(down[-1]["body"], "<h1>Not answering</h1>")
    box.expect_in(down[-1]["body"], "systemctl status agent-box-gate")
    assert "=6=" in found[-2]["text"]
    assert found[-1]["status"] == 200


def test_service_down(edge: Edge) -> None:
    """Where a user's own service is down, a page says which and what to do; it comes back by
    itself when it was only killed.
    """
    box = edge.box
    cookie = (*with_cookie(edge.sign_in("alice")), ("Accept", "text/html"))
    box.succeed("systemctl kill --signal=KILL agent-box-terminal-alice.service")
    assert edge.ask([Ask("/alice/t/main/", headers=cookie)])[0].status == 200
    box.succeed("systemctl stop agent-box-terminal-alice.service agent-box-settings-alice.socket "
                "agent-box-settings-alice.service")  # fmt: skip
    for path, unit in (("t/main/", "terminal"), ("", "settings")):
        (answer,) = edge.ask([Ask(f"/alice/{path}", headers=cookie)])
        assert answer.status == 503
        box.expect_in(answer.body, f"systemctl status agent-box-{unit}-alice")
        assert answer.one("strict-transport-security")
