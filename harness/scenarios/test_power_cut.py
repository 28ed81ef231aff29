"""Power cuts at random moments while sessions come and go: 20 of them.

What is proven after each cut:

* the registry parses, as it lies on the disk, before anything of the box has touched it again;
* every session whose `add` was acknowledged is listed, with the id that the answer told;
* no session whose `rm` was acknowledged is listed, or lives;
* the kickoff prompt of each session that there ever was has at most one receipt, that of a listed
  one has it if the supervisor calls it delivered, and each has once the box has settled.

An **acknowledgement** is the supervisor's answer to a request, and it counts once this process has
it: workers in the guest (`churn.py`) tell each step over a connection to the host and wait for an
echo, before a request goes to the supervisor and after its answer has come. A request that was
announced and not answered may have been carried out or not; what the disk says after the cut is
the truth about it from then on.

A **receipt** is the prompt in what its agent keeps of a conversation: claude's transcript, codex's
rollout, opencode's database, pi's session file. The agent writes it and leaves it to the kernel
when it reaches the disk, as the real one does: that nothing is told to be delivered whose receipt
a cut can still take back is up to agent-box. The agents here are a few lines of shell, since Python
takes seconds to start under emulation; like the real ones and like the stub they refuse to resume
what they do not know, and claude to begin what is there already, be it empty.

Eighteen cuts end QEMU (QMP quit) while alice's home is on a `LossyDisk`: of what was not flushed, a
random part is lost, which a disk of QEMU's own would keep. The next life is a frozen guest once
more, one in which nothing of agent-box runs, with that disk mounted and alice's /run as empty as
after a boot: the kernel replays the journal, and every process of alice starts anew. That is all of
a boot that concerns what agent-box left behind, without the half a minute that the rest takes under
emulation. After two more cuts the same disk really boots, for alice's units alone.

The seed is printed. AGENT_BOX_SEED=N repeats the choices; how far the guest gets meanwhile is
never quite the same.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import brief_agents, churn, outside, plugin
from agent_box_harness.boots import boot_for
from agent_box_harness.box import Box
from agent_box_harness.guest.initrd import GATEWAY
from agent_box_harness.lossy_disk import AWAIT_COMMAND, LossyDisk
from agent_box_harness.witness import Ledger, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent_box_harness.machine import Machine

USER = "alice"
DISK = 48 << 20
"""Bytes; a home with a few transcripts needs little."""
SEEDED = {"main"}
CUTS, EARLY, CALM = 18, 9, 3
"""Cuts of one disk; how many of them come while the box only recovers from the one before, and
before how many of the others all has come to rest first: sessions come and go while it does.
"""

LEAST, MOST = 4, 7
"""Steps of the workers before a cut: with four, one of the two has had an answer."""
CHURN, ORDERS = "/opt/churn.py", "/run/churn"
"""The program that obeys the witness, and where it waits to be told who that is."""


@pytest.fixture
def lives(
    box: Box, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], Machine]]:
    """Call it for a fresh clone of the guest, in the place of the one before, which has ended."""
    item = request.node
    guests = item.config.stash[plugin.guests_key]
    box.machine.power_cut()
    where = plugin._host(item), plugin._needs(item)
    clone = guests.prepared(*where, tmp_path, lambda machine: _prepare(Box(machine)))
    machines = [box.machine]

    def next_life() -> Machine:
        machines[-1].close()
        folder = tmp_path / f"life-{len(machines)}"
        folder.mkdir()
        machine: Machine = clone(folder)
        machines.append(machine)
        item.stash[plugin.machine_key] = machine  # evidence comes from the living one
        return machine

    yield next_life
    machines[-1].close()


@pytest.mark.needs("power-cut", "kernel", "network")
@pytest.mark.limit(600)
def test_power_cuts(
    lives: Callable[[], Machine],
    measured: Callable[[str, float], None],
) -> None:
    """Eighteen cuts, one after the other, each with what the ones before have left."""
    rng = _random(1)
    # The first life has nothing to recover from.
    early = rng.sample(range(2, CUTS + 1), EARLY)
    calm = rng.sample(sorted({*range(2, CUTS + 1)} - {*early}), CALM)
    ledger = Ledger()
    with LossyDisk.formatted(DISK) as disk, Witness(ledger) as witness:
        box = Box(lives())
        _first_life(box, disk, witness)
        began = time.monotonic()
        for cut in range(1, CUTS + 1):
            start = time.monotonic()
            if cut in early:
                time.sleep(rng.uniform(0.0, 0.5) * box.time_factor)
                moment = "while the box recovers"
            else:
                if cut in calm:
                    _settled(box, witness)
                steps = rng.randint(LEAST, MOST)
                witness.churn(f"c{cut}", rng.randrange(1 << 32), box.time_factor * 30)
                assert witness.wait(steps, box.time_factor * 30), "the workers are stuck"
                # Whoever looks has what was delivered noted, and that has to stay so.
                seen = witness.ask("ls", box.time_factor * 30)["sessions"]
                _check_receipts(box, witness, seen)
                time.sleep(rng.uniform(0.0, 0.06) * box.time_factor)
                moment = f"{steps} steps into the churn{', from rest' if cut in calm else ''}"
            box.power_cut()
            witness.settle()
            loss = disk.cut(rng)
            assert ledger.refused == []
            box = Box(lives(), box.document)
            _check_registry(_next_life(box, disk, witness), ledger)
            print(
                f"cut {cut}, {moment}: {loss.lost} of {loss.unflushed} unflushed blocks lost; "
                f"{len(ledger.listed)} sessions, {time.monotonic() - start:.1f} s"
            )
        _settled(box, witness)
        measured("a cut and what follows", (time.monotonic() - began) / CUTS)
        print(f"{ledger.answers} acknowledged operations; prompts proven: {_proven(ledger)}")
        assert ledger.answers >= CUTS - EARLY
        assert all(ledger.proven.values())


@pytest.mark.needs("power-cut", "network")
@pytest.mark.limit(240)
def test_power_cuts_and_real_boots(box: Box, measured: Callable[[str, float], None]) -> None:
    """Two cuts, and after each the same disk boots as a machine does when the power is back."""
    rng = _random(2)
    ledger = Ledger()
    _install(box)
    _furnish(box)
    boot_for(box, outside.sandbox(USER), outside.supervisor(USER))
    with Witness(ledger) as witness:
        _await_orders(box)
        box.succeed(_attend(box, witness))
        for cut in (1, 2):
            witness.churn(f"b{cut}", rng.randrange(1 << 32), box.time_factor * 30)
            assert witness.wait(rng.randint(LEAST, MOST), box.time_factor * 30), (
                "the workers are stuck"
            )
            time.sleep(rng.uniform(0.0, 0.06) * box.time_factor)
            box.power_cut()
            witness.settle()
            assert ledger.refused == []
            began = time.monotonic()
            box.start()
            box.connect()
            _check_registry(json.dumps(box.registry(USER)), ledger)
            _await_orders(box)
            box.succeed(_attend(box, witness))
            _settled(box, witness)
            measured(f"cut {cut}: power-on to all sessions at work", time.monotonic() - began)
        print(f"prompts proven: {_proven(ledger)}")
    assert box.wait_ready() == "running"


# -- lives -----------------------------------------------------------------------------------


def _prepare(box: Box) -> None:
    """End all of agent-box, and start what a life needs at once."""
    box.succeed("systemctl stop 'agent-box-*.service' caddy.service fail2ban.service")
    _install(box)
    # The kernel would write down by itself what is older than 30 s, which a life lasts on a busy
    # machine only: what nobody has flushed is to be lost there, too.
    box.succeed(f"echo 60000 >/proc/sys/vm/dirty_expire_centisecs; {AWAIT_COMMAND}")
    _await_orders(box)


def _first_life(box: Box, disk: LossyDisk, witness: Witness) -> None:
    """Move alice's home to the disk and start her anew."""
    home = box.home(USER)
    _furnish(box)
    box.succeed(
        f"{disk.attach_command()}; "
        f"mount /dev/nbd0 /mnt; cp -a {home}/. /mnt/; chown --reference={home} /mnt; "
        f"chmod --reference={home} /mnt; umount /mnt; mount /dev/nbd0 {home}; {_power_on(box)}; "
        f"{_attend(box, witness)}"
    )


def _next_life(box: Box, disk: LossyDisk, witness: Witness) -> str:
    """Make a clone continue with what is on the disk; return the registry as it lay there."""
    home = box.home(USER)
    found: str = box.succeed(
        f"{disk.attach_command()}; mount /dev/nbd0 {home}; "
        f"cat {home}/.config/agent-box/sessions.json; {_power_on(box)}; {_attend(box, witness)}"
    )
    return found


def _furnish(box: Box) -> None:
    """Put into alice's home, for good, what the scenario needs there."""
    brief_agents.furnish(box, USER)
    box.succeed("sync")


def _install(box: Box) -> None:
    """Put the agents into the places of the real ones, and the program that obeys the witness."""
    brief_agents.install(box)
    box.write_file(CHURN, Path(churn.__file__).read_bytes(), mode=0o755)


def _power_on(box: Box) -> str:
    """Commands that start alice's units as a boot does: with nothing in /run."""
    run = box.document["users"][USER]["runtimeDirectory"]
    return f"find {run} -mindepth 1 -delete; systemctl start {outside.sandbox(USER)}"


def _await_orders(box: Box) -> None:
    """Start what will obey the witness; until the next cut, it stays."""
    box.succeed(f"mkfifo {ORDERS}; setsid -f runuser -u {USER} -- {CHURN} <>{ORDERS} >/dev/null")


def _attend(box: Box, witness: Witness) -> str:
    """A command that tells it who the witness is."""
    control = f"{box.document['users'][USER]['runtimeDirectory']}/control.sock"
    return f"echo {GATEWAY} {witness.port} {control} >{ORDERS}"


# -- what must hold --------------------------------------------------------------------------


def _check_registry(text: str, ledger: Ledger) -> None:
    """Hold a registry against what was acknowledged."""
    sessions: dict[str, dict[str, Any]] = json.loads(text)["sessions"]
    assert sessions.keys() >= SEEDED
    found = {name: entry["boxSessionId"] for name, entry in sessions.items() if name not in SEEDED}
    assert ledger.compare(found) == []


def _check_receipts(box: Box, witness: Witness, views: Iterable[dict[str, Any]]) -> None:
    """Look for too many receipts, and for missing ones that the supervisor believes in."""
    told = [view["name"] for view in views if not view["promptPending"]]
    receipts = witness.receipts(box.time_factor * 30)
    assert witness.ledger.compare_receipts(receipts, told) == []


def _settled(box: Box, witness: Witness) -> None:
    """Wait until every listed session works at its task, and look for too many receipts."""
    ledger = witness.ledger
    names = ledger.listed.keys() | SEEDED

    def running() -> bool:
        views = witness.views
        return views.keys() == names and {v["state"] for v in views.values()} == {"running"}

    box.wait_for("all sessions to run", running, timeout=20)

    def delivered() -> bool:
        _check_receipts(box, witness, witness.views.values())
        return not ledger.missing

    box.wait_for("a receipt of each kickoff prompt", delivered, timeout=20)

    def told() -> bool:
        views = witness.ask("ls", box.time_factor * 30)["sessions"]
        found = {view["name"]: view for view in views}
        assert found.keys() == names
        assert {name: found[name]["id"] for name in ledger.listed} == ledger.listed
        assert {view["state"] for view in views} == {"running"}
        return not any(view["promptPending"] for view in views)

    # Asked only now: an answer costs half a second of work. It tells what is delivered, which has
    # to stay so from then on.
    box.wait_for("the word that all is delivered", told, timeout=20)
    assert outside.panes(box, USER).keys() == names


def _proven(ledger: Ledger) -> str:
    return ", ".join(f"{agent} {len(names)}" for agent, names in ledger.proven.items())


def _random(part: int) -> random.Random:
    seed = int(os.environ.get("AGENT_BOX_SEED") or secrets.randbits(32))
    print(f"AGENT_BOX_SEED={seed}")
    return random.Random(f"{seed}-{part}")
