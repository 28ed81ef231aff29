"""The power goes right after a sender was told "ok": what it delivered arrives in the next life.

The receiver's own directory is on a `LossyDisk`, of which the cut keeps only what was flushed. The
next life is the frozen guest once more with that disk in its place, and its receiver starts as one
does after a boot (see test_webhook.py). Nobody delivers anything before the news are there.

The rest of alice's home is the same in both lives, so that neither needs anything started anew.
"""

from __future__ import annotations

import json
import random
import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import plugin
from agent_box_harness.box import Box
from agent_box_harness.lossy_disk import AWAIT_COMMAND, LossyDisk
from agent_box_harness.sender import Sender, issue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent_box_harness.machine import Machine

USER = "alice"
UNIT = f"agent-box-webhook-{USER}.service"
DISK = 16 << 20
SECRET = "0123456789abcdef0123456789abcdef"
BURST, LATER = (101, 102, 103), 104


@pytest.fixture
def next_life(
    box: Box, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], Machine]]:
    """Call it for a fresh clone of the guest, in the place of the one that lost its power."""
    item = request.node
    machines: list[Machine] = []

    def clone() -> Machine:
        box.machine.close()
        guests = item.config.stash[plugin.guests_key]
        machine: Machine = guests.fresh(
            plugin._host(item), plugin._needs(item), tmp_path / "next-life", cold=False
        )
        machines.append(machine)
        item.stash[plugin.machine_key] = machine  # evidence comes from the living one
        return machine

    yield clone
    for machine in machines:
        machine.close()


@pytest.mark.needs("power-cut", "kernel", "network")
@pytest.mark.limit(60)
def test_acknowledged_deliveries_survive(box: Box, next_life: Callable[[], Machine]) -> None:
    """Deliveries that were answered with 200 and had not reached their session, since a program
    ran in its terminal, are shown there after a power cut that loses whatever was not flushed;
    once, although their sender repeats them.
    """
    registry = box.registry(USER)
    key = "s-" + registry["sessions"]["main"]["boxSessionId"].replace("-", "")[:12]
    with LossyDisk.formatted(DISK) as disk:
        _furnish(box, disk, key)
        box.tmux(USER, "send-keys -t =main: cat Enter").check("a program")
        box.wait_for("the program", lambda: _program(box) == "cat")
        sender = Sender(box, USER)
        sender.secret = SECRET
        asks = [sender.ask(issue(number), "issues") for number in BURST]
        statuses = sender.past_the_edge(asks)
        box.power_cut()
        assert statuses == [200] * len(BURST)
        loss = disk.cut(random.Random(1), share=1.0)
        print(f"{loss.lost} of {loss.unflushed} unflushed blocks lost")

        after = Box(next_life())
        _furnish(after, disk, key)
        after.wait_for("the news", lambda: _shown(after) >= set(BURST), timeout=15)
        asks.append(sender.ask(issue(LATER), "issues"))
        assert Sender(after, USER).past_the_edge(asks) == [200] * len(asks)
        # What comes after the repetitions has come: they have not.
        after.wait_for("a new one", lambda: LATER in _shown(after))
        text = _text(after)
        assert [text.count(_title(number)) for number in BURST] == [1] * len(BURST)


def _furnish(box: Box, disk: LossyDisk, key: str) -> None:
    """Subscribe the session of `key`, put the disk where the receiver keeps what it accepts, and
    start it.
    """
    home = f"/home/{USER}"
    files = {
        "sources.json": {"sources": {"github": {"secret": SECRET}}},
        f"filter.{key}.json": {"topics": [{"topic": "github:acme/widgets", "ttlHours": 0}]},
    }
    lists, spool = f"{home}/.local/state/local-webhook", f"{home}/.local/state/agent-box/webhook"
    write = "".join(
        f"echo {shlex.quote(json.dumps(content))} >{lists}/{name}; "
        for name, content in files.items()
    )
    # What is not flushed shall not reach the disk by itself either, however long a step takes.
    box.succeed(
        f"{AWAIT_COMMAND}; umask 077; mkdir -p {lists} {spool}; {write} {disk.attach_command()}; "
        f"mount -o commit=900 /dev/nbd0 {spool} && chmod 700 {spool} && "
        f"chown -R {USER}:{USER} {lists} {spool} && systemctl start --no-block {UNIT}"
    )


def _program(box: Box) -> str:
    shown = box.tmux(USER, "display-message -p -t =main: '#{pane_current_command}'")
    return shown.out.strip()


def _text(box: Box) -> str:
    return box.tmux(USER, "capture-pane -p -J -S - -t =main:").check("capture-pane").out


def _title(number: int) -> str:
    return f"Broken {number}\N{MATHEMATICAL RIGHT DOUBLE ANGLE BRACKET}"


def _shown(box: Box) -> set[int]:
    text = _text(box)
    return {number for number in (*BURST, LATER) if _title(number) in text}
