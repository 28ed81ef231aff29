"""Waiting, and ending what we started."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from agent_box_harness import guard
from agent_box_harness.errors import RequestFailedError, WaitTimeoutError
from agent_box_harness.netns import unified_root
from agent_box_harness.wait import Deadline, poll


def test_poll_returns_the_value_of_the_successful_try():
    tries = iter([(False, 1), (False, 2), (True, 3)])
    assert poll("x", lambda: next(tries), timeout=5) == 3


def test_a_failed_wait_tells_what_it_saw_last():
    with pytest.raises(WaitTimeoutError, match=r"gave up on a unit after .*'inactive'\nwhy"):
        poll("a unit", lambda: (False, "inactive"), timeout=0.05, explain=lambda: "why")
    assert issubclass(WaitTimeoutError, RequestFailedError)


def test_the_condition_is_tried_once_more_after_the_deadline():
    calls = []

    def slow():
        calls.append(1)
        time.sleep(0.05)
        return len(calls) == 2, None

    poll("x", slow, timeout=0.01)
    assert len(calls) == 2


def test_deadlines():
    assert Deadline(None).remaining is None
    assert not Deadline(None).passed
    assert Deadline(0).passed
    assert 0 < (Deadline(5).remaining or 0) <= 5


PARENT = """
import subprocess, sys, time
from agent_box_harness import guard
child = subprocess.Popen(["sleep", "600"])
other = subprocess.Popen(["sleep", "600"])
guard.protect(child)
guard.protect(other)
guard.end(other)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_harness_takes_its_machines_with_it():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert guard.alive(child)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 5
    while guard.alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not guard.alive(child)


GROUP_PARENT = """
import os, subprocess, sys, time
from pathlib import Path
from agent_box_harness import guard
group = Path(sys.argv[1])
guard.protect_group(group)
below = group / "below"
below.mkdir()
# Not a child of ours: what a container's processes are like.
script = "echo $$ >$0/cgroup.procs; setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null'"
print(subprocess.check_output(["sh", "-c", script, str(below)], text=True).strip(), flush=True)
time.sleep(600)
"""


def test_a_killed_harness_takes_its_control_groups_with_it():
    root = unified_root()
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("needs root and the unified control groups")
    group = root / f"agent-box-test-{os.getpid()}"
    group.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", GROUP_PARENT, str(group)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    stranger = int(parent.stdout.readline())
    assert str(stranger) in (group / "below/cgroup.procs").read_text().split()
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 8
    while group.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not guard.alive(stranger)
    assert not group.exists()


def test_end_asks_first_when_it_may_be_patient():
    child = subprocess.Popen(["sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.05; done"])
    guard.protect(child)
    time.sleep(0.2)
    guard.end(child, patience=5)
    assert child.returncode == 7
    assert not guard.alive(child.pid)


def test_what_takes_too_long_is_cut_short_with_all_that_it_started(monkeypatch):
    monkeypatch.setattr(guard, "_LAST_WORDS", 0.3)
    stubborn = "trap '' TERM; sleep 600 & echo $!; while :; do sleep 600; done"
    child = subprocess.Popen(
        ["sh", "-c", f"sh -c {shlex.quote(stubborn)}; exit"],
        stdout=subprocess.PIPE, process_group=0,
    )  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired):
        child.communicate(timeout=0.3)
    inner = int(guard.cut_short(child, stubborn))
    assert child.returncode == -signal.SIGTERM
    assert not guard.alive(inner)
