"""Measurements of webhooks, in the container guest.

AGENT_BOX_TEST_PLUGIN names a checkout of the local-webhook plugin; its receiver is then measured
beside ours, in the same guest with the same client.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness.bench.measure import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

CLIENT = Path(__file__).with_name("webhook_client.py")
CLIENT_PATH = "/opt/agent-box-stub/webhook_client.py"
REFERENCE_PATH = "/opt/agent-box-stub/webhook.py"
SECRET = "0123456789abcdef0123456789abcdef"  # noqa: S105 - of nobody but this bench
PEERS, SENDERS = 20, 8


def rows(box: Box, quick: bool) -> Iterator[Measurement]:
    """Measure our receiver, and the other one if there is a copy of it."""
    user = box.users[0]
    unit = f"agent-box-webhook-{user}.service"
    box.wait_session(user, "main", "running")
    box.machine.write_file(CLIENT_PATH, CLIENT.read_bytes(), mode=0o755)
    home = box.home(user)
    setup = "agent-box-webhook setup github --secret-stdin --json"
    box.as_user(user, setup, stdin=SECRET + "\n").check(setup)
    box.as_user(user, "agent-box-webhook subscribe acme/widgets --session main").check("subscribe")
    box.wait_for_unit(unit)
    pid = int(box.succeed(f"systemctl show -P MainPID {unit}"))
    tmux = ["env", f"TMUX_TMPDIR=/run/agent-box-{user}", "tmux", "-L", "agent-box", "-N"]
    job: dict[str, Any] = {
        "directory": f"{home}/.local/state/local-webhook",
        "socket": f"/run/agent-box-webhook/{user}.sock",
        "secret": SECRET,
        "peers": PEERS,
        "senders": SENDERS,
        "count": 500 if quick else 5000,
        "single": 20 if quick else 200,
        "reference": None,
        "pid": pid,
        "pane": {"tmux": tmux, "target": "=main:"},
    }
    yield from _rows(_run(box, user, job), "", "webhook")
    checkout = os.environ.get("AGENT_BOX_TEST_PLUGIN")
    if not checkout:
        return
    script = Path(checkout) / "local-webhook/webhook.py"
    box.machine.write_file(REFERENCE_PATH, script.read_bytes(), mode=0o644)
    folder = f"{home}/w"
    job |= {"directory": folder, "socket": f"{home}/w.sock", "reference": REFERENCE_PATH,
            "pane": None}  # fmt: skip
    yield from _rows(_run(box, user, job), "the plugin's receiver: ", "webhook-other")


def _run(box: Box, user: str, job: dict[str, Any]) -> dict[str, Any]:
    done = box.as_user(user, f"python3 {CLIENT_PATH}", 300, stdin=json.dumps(job))
    found: dict[str, Any] = json.loads(done.check("webhook_client").out)
    return found


def _rows(found: dict[str, Any], who: str, key: str) -> Iterator[Measurement]:
    method = (
        f"{SENDERS} senders at full speed, 4 KB each, until the last of {PEERS} sessions has all"
    )
    yield Measurement(f"{key}-rate", f"{who}deliveries a second", "/s", method, [found["rate"]])
    method = f"lines that the {PEERS} sessions together missed of that"
    yield Measurement(f"{key}-lost", f"{who}lost meanwhile", "lines", method, [found["lost"]])
    method = f"from the request until the last of {PEERS} sessions has it, one at a time"
    yield Measurement(f"{key}-arrival", f"{who}a delivery", "ms", method, found["arrival"])
    p99 = "99th percentile of the same"
    yield Measurement(
        f"{key}-arrival-p99", f"{who}a delivery, p99", "ms", p99, [_p99(found["arrival"])]
    )
    if found["pane"]:
        method = "from the request until the text is in the pane of a shell session"
        yield Measurement(f"{key}-pane", f"{who}a delivery to a pane", "ms", method, found["pane"])
        yield Measurement(
            f"{key}-pane-p99", f"{who}a delivery to a pane, p99", "ms", p99, [_p99(found["pane"])]
        )
    method = "VmHWM of the receiver after all of that"
    yield Measurement(f"{key}-memory", f"{who}memory", "MB", method, [found["memory"]])


def _p99(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=100)[98] if len(samples) > 1 else samples[0]
