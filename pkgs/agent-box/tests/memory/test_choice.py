"""Who pays for memory: on made-up groups and processes, and with real ones to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent_box.config import Limits
from agent_box.memory import groups
from agent_box.memory.choice import Judge, Owner
from agent_box.memory.groups import Group, Process
from agent_box.memory.machine import Look, look
from agent_box.supervisor.cgroups import Groups

MIB, GIB = 1 << 20, 1 << 30
TOTAL = 16 * GIB
BOB = "agent.slice/agent-box.slice/agent-box-bob.slice"
SANDBOX = f"{BOB}/agent-box-bob.service"
ALICE = "agent.slice/agent-box.slice/agent-box-alice.slice"


class Machine:
    """A tree of groups and a /proc to choose from."""

    def __init__(self, root: Path, *, counts: bool = True) -> None:
        self.mount, self.proc = root / "cgroup", root / "proc"
        self.mount.mkdir()
        self.proc.mkdir()
        (self.mount / "cgroup.controllers").write_text("cpu memory pids" if counts else "cpu")
        self.counts = counts
        self.pids: dict[str, list[int]] = {}

    def group(self, path: str, weight: int, *, cache: int = 0, swap: int = 0) -> Path:
        """Make a group that weighs so much together with all below it."""
        group = self.mount / path
        group.mkdir(parents=True, exist_ok=True)
        if self.counts:
            (group / "memory.current").write_text(str(weight + cache))
            (group / "memory.stat").write_text(f"anon {weight}\ninactive_file {cache}\n")
            (group / "memory.swap.current").write_text(str(swap))
        (group / "cgroup.events").write_text("populated 1\nfrozen 0\n")
        (group / "cgroup.procs").write_text("")
        (group / "cgroup.kill").write_text("")
        return group

    def process(
        self,
        pid: int,
        path: str,
        weight: int,
        *,
        name: str = "x",
        uid: int = 1001,
        score: int = 500,
    ) -> None:
        folder = self.proc / str(pid)
        folder.mkdir()
        kib = weight >> 10
        (folder / "status").write_text(
            f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmSize:\t{kib} kB\n"
            f"RssAnon:\t{kib} kB\nRssFile:\t9 kB\nRssShmem:\t0 kB\nVmSwap:\t0 kB\n"
        )
        (folder / "stat").write_text(f"{pid} ({name}) S {' '.join(['0'] * 40)}\n")
        (folder / "oom_score_adj").write_text(f"{score}\n")
        (folder / "cgroup").write_text(f"0::/{path}\n")
        (self.mount / path).mkdir(parents=True, exist_ok=True)
        with (self.mount / path / "cgroup.procs").open("a") as stream:
            stream.write(f"{pid}\n")

    def judge(self) -> Judge:
        owners = [
            Owner("alice", 1000, [Path(ALICE), Path("user.slice/user-1000.slice")]),
            Owner("bob", 1001, [Path(BOB), Path("user.slice/user-1001.slice")]),
        ]
        return Judge(owners, self.mount, self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def names(found: list[Group] | Process | None) -> list[str]:
    assert isinstance(found, list)
    return [group.path.name for group in found]


def test_a_slice_is_below_those_of_its_name() -> None:
    assert str(groups.of_slice("agent-box-bob.slice")) == BOB
    assert groups.of_slice("agent-box-a\\x2db.slice").name == "agent-box-a\\x2db.slice"


def test_who_spreads_over_many_groups_pays_all_the_same(machine: Machine) -> None:
    """alice's one agent is bigger than anything of bob's, who uses more altogether."""
    machine.group(ALICE, 3 * GIB)
    machine.group(f"{ALICE}/agent-box-alice.service", 3 * GIB)
    machine.group(BOB, 6 * GIB)
    machine.group(SANDBOX, 6 * GIB)
    for number in range(100):
        weight = (60 + (number == 42)) * MIB
        machine.group(f"{SANDBOX}/session-{number}", weight)
        machine.process(100 + number, f"{SANDBOX}/session-{number}", 20 * MIB, name="agent-box-x")
    victim = machine.judge().choose(TOTAL, 0)
    assert victim is not None
    assert victim.owner == "bob"
    assert names(victim.what) == ["session-42"]


def test_groups_below_a_session_are_part_of_it(machine: Machine) -> None:
    for path in (BOB, SANDBOX, f"{SANDBOX}/session-a"):
        machine.group(path, 6 * GIB)
    for number in range(60):
        machine.group(f"{SANDBOX}/session-a/hidden-{number}", 100 * MIB)
    victim = machine.judge().choose(TOTAL, 0)
    assert victim is not None
    assert names(victim.what) == ["session-a"]


def test_a_program_that_ran_away_goes_alone_then_its_session_then_all(machine: Machine) -> None:
    for path in (BOB, SANDBOX, f"{SANDBOX}/session-a"):
        machine.group(path, 6 * GIB)
    machine.group(ALICE, GIB)
    machine.process(10, f"{SANDBOX}/session-a", 200 * MIB, name="claude")
    machine.process(11, f"{SANDBOX}/session-a", 5 * GIB, name="tmux: server")
    judge = machine.judge()
    first, second, third = (judge.choose(TOTAL, float(at)) for at in range(3))
    assert first and second and third
    assert isinstance(first.what, Process)
    assert first.what.pid == 11
    assert names(second.what) == ["session-a"]
    assert names(third.what) == ["agent-box-bob.slice", "user-1001.slice"]
    later = judge.choose(TOTAL, 100.0)
    assert later
    assert isinstance(later.what, Process)


def test_logins_and_swap_count_and_files_that_can_be_read_again_do_not(machine: Machine) -> None:
    machine.group(ALICE, 3 * GIB, cache=9 * GIB)
    machine.group(BOB, 2 * GIB, swap=GIB)
    machine.group("user.slice/user-1001.slice", 2 * GIB)
    victim = machine.judge().choose(TOTAL, 0)
    assert victim is not None
    assert victim.owner == "bob"


def test_what_a_dead_writer_left_goes_with_the_whole_unit(machine: Machine) -> None:
    """Files in /dev/shm of the sandbox count for it, and for no session any more."""
    machine.group(BOB, 6 * GIB)
    machine.group(SANDBOX, 6 * GIB)
    machine.group(f"{SANDBOX}/session-a", 50 * MIB)
    victim = machine.judge().choose(TOTAL, 0)
    assert victim is not None
    assert names(victim.what) == ["agent-box-bob.service"]


def test_the_supervisor_hears_why(machine: Machine) -> None:
    """With an attribute of the group, which it reads beside what the kernel counts."""
    of_bob = Groups(0, Limits())
    of_bob.root = machine.group(SANDBOX, 6 * GIB)
    session = machine.group(f"{SANDBOX}/{of_bob.name('a')}", 6 * GIB)
    (session / "memory.events").write_text("oom 0\noom_kill 2\n")
    assert of_bob.oom_kills("a") == 2
    Group(session).kill()
    assert (session / "cgroup.kill").read_text() == "1"
    assert of_bob.oom_kills("a") == 3


def test_nobody_else_pays_for_files_in_memory_of_who_has_no_process(machine: Machine) -> None:
    machine.group(ALICE, 5 * GIB)
    machine.process(10, ALICE, 5 * GIB, uid=1000)
    (machine.group(BOB, 6 * GIB) / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert machine.judge().choose(TOTAL, 0) is None


def test_nobody_pays_for_what_the_system_itself_uses(machine: Machine) -> None:
    machine.group(ALICE, GIB)
    machine.process(10, ALICE, GIB, uid=1000)
    machine.process(20, "system.slice/builder.service", 12 * GIB, name="builder", uid=30001)
    machine.process(21, "system.slice/journal.service", 13 * GIB, uid=0, score=-250)
    victim = machine.judge().choose(TOTAL, 0)
    assert victim is not None
    assert isinstance(victim.what, Process)
    assert victim.what.name == "builder"


def test_without_a_controller_processes_are_summed_up_by_user(tmp_path: Path) -> None:
    """As root by sudo, too, which changes the number of the user and not the group."""
    machine = Machine(tmp_path, counts=False)
    machine.group(BOB, 0)
    machine.process(10, ALICE, 2 * GIB, uid=1000)
    for number in range(30):
        machine.process(100 + number, SANDBOX, 50 * MIB)
    machine.process(200, SANDBOX, GIB, name="as-root", uid=0)
    machine.process(300, "system.slice/cron.service", 300 * MIB, score=0)
    judge = machine.judge()
    victim = judge.choose(TOTAL, 0)
    assert victim is not None
    assert victim.owner == "bob"
    assert isinstance(victim.what, Process)
    assert victim.what.name == "as-root"
    judge.choose(TOTAL, 1)
    third = judge.choose(TOTAL, 2)
    assert third is not None
    assert "agent-box-bob.slice" in names(third.what)


def test_a_number_that_is_somebody_elses_by_now_is_spared() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        real = groups.process(sleeper.pid)
        assert real is not None
        replace(real, started="another").kill()
        assert sleeper.poll() is None
        real.kill()
        assert sleeper.wait(10) == -signal.SIGKILL
        assert groups.process(os.getpid()) is not None
    finally:
        sleeper.kill()


def at(
    available: float, *, swap: float = 0, free: float = 0, stuck: float | None = 0,
    waited: float = 0, now: float = 1,
) -> Look:  # fmt: skip
    return Look(
        total=TOTAL, available=int(TOTAL * available), swap_total=int(TOTAL * swap),
        swap_free=int(TOTAL * free), stuck=stuck, waited=int(waited * 1e6), at=now,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("now", "short"),
    [
        (at(0.5), False),
        (at(0.09), True),
        (at(0.09, swap=1, free=0.5), False),
        (at(0.09, swap=1, free=0.05), True),
        (at(0.09, swap=1, free=0.5, stuck=60), True),  # it does nothing else any more
        (at(0.02, swap=1, free=0.5, waited=0.9), True),  # swap in memory, and no memory
        (at(0.02, swap=1, free=0.5, waited=0.1), False),
        (at(0.5, stuck=90), False),  # somebody at a limit of their own
        (at(0.02, swap=1, free=0.5, stuck=None), True),
        (at(0.05, swap=1, free=0.5, stuck=None), False),
    ],
)
def test_when_it_is_short(now: Look, short: bool) -> None:
    assert now.short(at(0.5, now=0)) is short


def test_it_looks_before_anybody_can_have_taken_the_rest() -> None:
    assert at(0.9).pause == 1.0
    assert at(0.12).pause < 0.06
    assert at(0.01).pause == 0.05


def test_the_kernel_is_understood() -> None:
    now = look(0.0)
    assert 0 < now.available < now.total
    assert now.swap_free <= now.swap_total
