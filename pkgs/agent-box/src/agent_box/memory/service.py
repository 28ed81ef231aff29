"""agent-box-memory: looks how much memory is left and ends what has to end."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import time

from agent_box import config
from agent_box.errors import AgentBoxError
from agent_box.memory import groups
from agent_box.memory.choice import Judge, Victim, owners
from agent_box.memory.groups import Process
from agent_box.memory.machine import LONGEST, Look, look
from agent_box.sdnotify import notify
from agent_box.supervisor.cgroups import MOUNT

log = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds until something else ends if what was ended does not go."""

SIGN_OF_LIFE = 10.0

_MIB = 1 << 20
_CURRENT, _FUTURE, _ON_FAULT = 1, 2, 4


def main() -> int:
    """Run until stopped."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        judge = Judge(owners(config.load()), MOUNT)
    except AgentBoxError as error:
        log.error("%s", error)
        return error.exit_code
    if not judge.counted:
        log.warning(
            "this kernel's control groups count no memory: users are told apart by their "
            "processes alone, and their limits of memory do not hold. Boot with cgroup v2 and its "
            "memory controller: no systemd.unified_cgroup_hierarchy=0 and no cgroup_disable=memory"
        )
    _stay_in_memory()
    notify("READY=1")
    before, alive = look(time.monotonic()), 0.0
    while True:
        time.sleep(before.pause)
        now = look(time.monotonic())
        if now.at - alive >= SIGN_OF_LIFE:
            notify("WATCHDOG=1")
            alive = now.at
        if now.short(before) and not _end(judge, now):
            time.sleep(LONGEST)
        before = now


def _end(judge: Judge, now: Look) -> bool:
    victim = judge.choose(now.total, now.at)
    if victim is None:
        return False
    _kill(victim)
    # Words come after the deed: to write them takes memory, too.
    log.warning(
        "out of memory (%d of %d MiB left, %d of %d MiB of swap): %s uses most, ended %s, %d MiB",
        now.available // _MIB, now.total // _MIB, now.swap_free // _MIB, now.swap_total // _MIB,
        victim.owner, victim.describe(), victim.weight // _MIB,
    )  # fmt: skip
    return True


def _kill(victim: Victim) -> None:
    if isinstance(victim.what, Process):
        victim.what.kill()
        groups.wait_for_end(None, victim.what.pid, PATIENCE)
        return
    for group in victim.what:
        group.kill()
    for group in victim.what:
        groups.wait_for_end(group, None, PATIENCE)


def _stay_in_memory() -> None:
    """Never wait for a page of its own: when it has to act there are none."""
    gc.collect()
    gc.freeze()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_CURRENT | _FUTURE | _ON_FAULT) != 0:
        log.warning("cannot lock its memory: errno %d", ctypes.get_errno())
