"""What follows from the end of a run."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box.supervisor import policy
from agent_box.supervisor.launch import EXIT_FAILED


def judge(**args):
    base = {
        "agent": "claude",
        "code": None,
        "signo": None,
        "out_of_memory": False,
        "lived": 5.0,
        "failures": 0,
        "failed_reason": None,
    }
    return policy.judge(**{**base, **args})


def test_exit_0_parks_an_agent_and_not_a_shell():
    assert judge(code=0).action == "park"
    verdict = judge(code=0, agent="shell")
    assert (verdict.action, verdict.delay, verdict.failures) == ("retry", 0.0, 0)


def test_a_shell_that_dies_at_once_is_a_failure():
    assert judge(code=0, agent="shell", lived=0.1, failures=3).failures == 4
    assert judge(code=1, agent="shell", lived=0.1, failures=3).delay > 0


@pytest.mark.parametrize(
    ("args", "cause"),
    [
        ({"code": 3}, "exit 3"),
        ({"signo": signal.SIGKILL}, "killed by SIGKILL"),
        ({"signo": signal.SIGKILL, "out_of_memory": True}, "out of memory"),
        ({"signo": signal.SIGTERM, "out_of_memory": True}, "killed by SIGTERM"),
        ({"code": 1, "out_of_memory": True}, "exit 1"),
        ({"signo": 200}, "killed by signal 200"),
        ({}, "vanished"),
    ],
)
def test_a_crash_retries_with_its_cause(args, cause):
    verdict = judge(**args)
    assert (verdict.action, verdict.cause, verdict.failures) == ("retry", cause, 1)
    assert verdict.delay == 0.0


def test_a_permanent_error_needs_both_the_status_and_the_word():
    assert judge(code=EXIT_FAILED, failed_reason="gone").action == "fail"
    assert judge(code=EXIT_FAILED, failed_reason="gone").cause == "gone"
    assert judge(code=EXIT_FAILED).action == "retry"
    assert judge(code=1, failed_reason="an old word").action == "retry"


def test_a_long_run_forgives():
    assert judge(code=1, failures=9, lived=policy.STABLE).failures == 1
    assert judge(code=1, failures=9, lived=policy.STABLE - 1).failures == 10


def test_delays_grow_to_the_cap():
    delays = [policy.delay(count, jitter=0) for count in range(1, 14)]
    assert delays[:5] == [0.0, 1.0, 2.0, 4.0, 8.0]
    assert delays == sorted(delays)
    assert delays[-1] == policy.MAX_DELAY


@given(st.integers(-5, 10**6))
def test_delays_stay_in_bounds(failures):
    exact = policy.delay(failures, jitter=0)
    assert 0 <= exact <= policy.MAX_DELAY
    assert exact * 0.9 - 1e-9 <= policy.delay(failures) <= exact * 1.1 + 1e-9
