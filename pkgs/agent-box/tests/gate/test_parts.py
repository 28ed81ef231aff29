"""The gate's parts, one by one: addresses, pauses, paths, requests, pages."""

from __future__ import annotations

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from agent_box.gate import addresses, device, pages, rules, wire
from agent_box.gate.errors import ThrottledError
from agent_box.gate.throttle import FREE, LONGEST_PAUSE, Throttle

from .conftest import Clock

USERS = ("alice", "bob")


# -- addresses and throttle


@given(st.ip_addresses(), st.text(max_size=20))
def test_only_the_last_address_counts(address, before):
    parsed = addresses.parse(f"{before}, {address}")
    mapped = getattr(address, "ipv4_mapped", None)
    assert parsed == (mapped or address)


@given(st.text())
def test_whatever_the_edge_says_is_an_address(text):
    assert str(ipaddress.ip_address(str(addresses.parse(text))))


def test_networks():
    parse, network = addresses.parse, addresses.network
    assert network(parse("2001:db8::1")) == network(parse("2001:db8::ffff:0:1"))
    assert network(parse("2001:db8::1")) != network(parse("2001:db8:0:1::1"))
    assert network(parse("192.0.2.1")) != network(parse("192.0.2.2"))
    assert parse("::ffff:192.0.2.1") == parse("192.0.2.1")
    assert parse("fe80::1%eth0") == parse("fe80::1")


def fail(throttle: Throttle, address: str) -> None:
    with throttle.attempt(addresses.parse(address)) as attempt:
        attempt.failed = True


def test_the_pause_doubles_and_is_forgotten():
    clock = Clock()
    throttle = Throttle(clock)
    for _ in range(FREE):
        fail(throttle, "192.0.2.1")
    pauses = []
    for _ in range(15):
        with pytest.raises(ThrottledError) as caught:
            fail(throttle, "192.0.2.1")
        pauses.append(caught.value.seconds)
        clock.now += caught.value.seconds
        fail(throttle, "192.0.2.1")
    assert pauses[:5] == [1, 2, 4, 8, 16]
    assert pauses[-1] == LONGEST_PAUSE
    clock.now += 3 * 3600
    for _ in range(FREE):
        fail(throttle, "192.0.2.1")


def test_attempts_under_way_count_too():
    throttle = Throttle(Clock())
    address = addresses.parse("192.0.2.1")
    open_ = [throttle.attempt(address) for _ in range(FREE)]
    for attempt in open_:
        attempt.__enter__()
    with pytest.raises(ThrottledError):
        fail(throttle, "192.0.2.1")
    fail(throttle, "192.0.2.2")
    for attempt in open_:
        attempt.__exit__(None, None, None)
    assert len(throttle) == 1
    assert throttle.forgive(addresses.parse("192.0.2.2"))
    assert len(throttle) == 0


@given(st.lists(st.integers(0, 40), max_size=200))
def test_memory_of_the_throttle_is_bounded(numbers):
    throttle = Throttle(Clock(), limit=8)
    for number in numbers:
        with contextlib.suppress(ThrottledError):
            fail(throttle, f"192.0.2.{number}")
        assert len(throttle) <= 8


# -- paths and origins


@given(st.text(max_size=60))
def test_paths_are_read_or_refused(text):
    try:
        whose = rules.owner("/" + text, USERS)
    except rules.BadPathError:
        return
    assert whose in (None, *USERS)
    if whose is None:
        assert not text.lower().startswith(("alice/", "bob/"))


@given(st.sampled_from(USERS), st.text(max_size=60))
def test_signing_in_never_leads_off_the_box(user, text):
    for wanted in (text, "/" + text, f"/{user}/{text}"):
        where = rules.landing(wanted, user, USERS)
        assert where.startswith("/")
        assert not where.startswith(("//", "/\\"))
        assert where.isascii()
        assert where.isprintable()
        assert rules.owner(where, USERS) in (None, user)


@given(
    method=st.sampled_from(["GET", "POST", "DELETE", "QUERY"]),
    upgrade=st.booleans(),
    origin=st.lists(st.sampled_from(["https://box.example", "null", "https://x"]), max_size=2),
    site=st.sampled_from([None, "same-origin", "same-site", "cross-site", "none", "x"]),
    mode=st.sampled_from([None, "navigate", "cors", "websocket"]),
    with_cookie=st.booleans(),
)
def test_foreign_pages_never_change_anything(method, upgrade, origin, site, mode, with_cookie):
    reason = rules.objection(
        method=method,
        upgrade=upgrade,
        origins=["https://box.example"],
        origin=origin,
        site=site,
        mode=mode,
        with_cookie=with_cookie,
    )
    if method == "GET" and not upgrade:
        return
    foreign = site in ("same-site", "cross-site", "x") or origin not in (
        [],
        ["https://box.example"],
    )
    if upgrade:
        assert (reason is None) == (origin == ["https://box.example"])
    elif foreign:
        assert reason is not None


# -- requests


def headers(*items: tuple[str, str]) -> Headers:
    return Headers(raw=[(key.encode(), value.encode("latin-1")) for key, value in items])


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=200))
def test_any_cookie_and_authorization_is_read(text):
    found = wire.cookie(headers(("cookie", text)))
    assert found is None or len(found) == 43
    basic = wire.basic(headers(("authorization", f"Basic {text}")))
    assert basic is None or isinstance(basic, wire.Basic)


def test_credentials_do_not_show_in_tracebacks():
    assert "secret" not in repr(wire.Basic("alice", "secret"))


@pytest.mark.parametrize(
    ("agent", "label"),
    [
        ("", "Unknown browser"),
        ("curl/8.5.0", "curl"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0",
            "Edge on Windows",
        ),
        ("Mozilla/5.0 (Linux; Android 15) Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("<script>alert(1)</script>", "Unknown browser"),
    ],
)
def test_devices(agent, label):
    assert device.label(agent) == label


@given(st.text())
def test_pages_escape_everything(text):
    page = pages.login("box.example", user=text, following=text, error=text)
    assert page.count("<input") == 3
    assert "<script" not in page
    assert page.count("<form") == 1
