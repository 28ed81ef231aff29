"""Which scenarios begin first, on which worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box_harness import turns


def parts(ordered, workers):
    """What pytest-xdist's worksteal gives to each worker at first."""
    found, left = [], list(ordered)
    for worker in range(workers):
        share = len(left) // (workers - worker)
        found.append(left[:share])
        left = left[share:]
    return found


@given(st.integers(0, 9), st.integers(0, 60), st.integers(1, 9), st.integers(1, 9))
def test_nothing_is_lost_and_the_light_ones_stay_in_order(heavy, others, workers, cores):
    first = [f"heavy {number}" for number in range(heavy)]
    light = [f"light {number}" for number in range(others)]
    ordered = turns.order(first, light, workers, cores)
    assert sorted(ordered) == sorted(first + light)
    assert [item for item in ordered if item in light] == light


@pytest.mark.parametrize(("workers", "cores"), [(4, 2), (3, 2), (1, 2), (2, 8), (6, 4)])
def test_each_worker_up_to_one_per_core_begins_with_its_share(workers, cores):
    heavy = list(range(7))
    lanes = min(workers, cores)
    expected = [heavy[lane::lanes] for lane in range(lanes)] + [[]] * (workers - lanes)
    found = parts(turns.order(heavy, ["light"] * 90, workers, cores), workers)
    for part, first in zip(found, expected, strict=True):
        assert part[: len(first)] == first
        assert set(part[len(first) :]) == {"light"}
