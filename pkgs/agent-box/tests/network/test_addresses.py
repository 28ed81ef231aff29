"""Each user's addresses follow from the uid, and never collide."""

from __future__ import annotations

import pwd
from types import SimpleNamespace

import pytest

from agent_box.errors import NotFoundError, UsageError
from agent_box.network.addresses import host_address, place_of

RANGE, RANGE6 = "198.18.0.0/15", "fd5a:7e2c:91b0::/64"


@pytest.fixture
def uid(monkeypatch):
    def be(number):
        monkeypatch.setattr(pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=number))

    return be


def test_a_place(uid):
    uid(1001)
    place = place_of("alice", RANGE, RANGE6)
    assert place.address == "198.18.3.235"
    assert place.address6 == "fd5a:7e2c:91b0::3eb"
    assert place.interface == "ab-1001"
    assert place.namespace == "agent-box-alice"
    assert host_address(RANGE) == "198.18.0.1"


def test_the_largest_uid_of_people_has_an_interface_name_that_fits(uid):
    uid(65533)
    place = place_of("alice", RANGE, RANGE6)
    assert len(place.interface) <= 15
    assert place.address != host_address(RANGE)


def test_a_uid_that_is_too_large_is_refused_with_the_remedy(uid):
    uid(200_000)
    with pytest.raises(UsageError, match=r"network\.private"):
        place_of("alice", RANGE, RANGE6)


def test_an_account_that_is_missing(monkeypatch):
    def nobody(name):
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", nobody)
    with pytest.raises(NotFoundError, match="no account alice"):
        place_of("alice", RANGE, RANGE6)
