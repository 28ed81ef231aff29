"""The bench's table, and its probes of /proc."""

from __future__ import annotations

import os
import time

from agent_box_harness.bench import measure, table
from agent_box_harness.bench.measure import Measurement


def test_the_table_holds_ours_beside_the_target_and_the_reference():
    rows = [
        Measurement("respawn", "crash, until respawned", "ms", "how", [120.0, 90.0, 4000.0]),
        Measurement("idle-cpu-4", "idle CPU, 4 sessions", "%", "how", [0.25]),
        Measurement("unheard-of", "something else", "MB", "how", [1.25]),
    ]
    text = table.render(rows, ["a fact"])
    respawn, idle, other = text.splitlines()[1:4]
    assert " ".join(respawn.split()[3:]) == "120 ms 90.0 ms 4000 ms 3 < 300 ms ok 1.6-2.9 s"
    assert "MISSED" in idle
    assert "2.5 % of a core" in idle
    assert other.split()[-2:] == ["MB", "1"]
    assert "a fact" in text


def test_cpu_time_is_finer_than_a_tick():
    before = measure.cpu_seconds(os.getpid())
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    assert 0.005 < measure.cpu_seconds(os.getpid()) - before < 0.5


def test_memory_and_forks_can_be_read():
    assert 1 < measure.pss_megabytes(os.getpid()) < 2000
    assert measure.forks() > 0
