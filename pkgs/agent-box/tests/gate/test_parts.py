"""The gate's parts, one by one."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from agent_box import locking
from agent_box.errors import ConflictError, InternalError
from agent_box.gate import addresses, device, pages, passwords, policy, rules, setup, wire
from agent_box.gate.errors import BusyError, PolicyError, ThrottledError
from agent_box.gate.live import Live
from agent_box.gate.store import MAX_LOGINS, Login, Store
from agent_box.gate.throttle import FREE, LONGEST_PAUSE, Throttle
from agent_box.gate.unbans import Unbans

if TYPE_CHECKING:
    from pathlib import Path

USERS = ("alice", "bob")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- passwords


def test_the_hash_is_what_caddy_reads():
    hashed = passwords.make("lantern orbit velvet mango")
    assert passwords.scheme(hashed) == passwords.OURS
    assert hashed.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert passwords.matches(hashed, "lantern orbit velvet mango")
    assert not passwords.matches(hashed, "lantern orbit velvet mangO")


def test_composed_and_decomposed_signs_are_the_same():
    hashed = passwords.make("zu\u0308rich is a nice city")
    assert passwords.matches(hashed, "z\u00fcrich is a nice city")


@pytest.mark.parametrize(
    "hashed",
    [
        "",
        "plain",
        "$argon2i$v=19$m=19456,t=2,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=9999999,t=2,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=19456,t=99,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=1,t=1,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=19456,t=2,p=1$GbS0kI5kqWTRDaw6qSbHu$" + "A" * 45,
        "$2b$31$" + "." * 53,
        "$2x$10$" + "." * 53,
        "$6$salt$hash",
    ],
)
def test_hashes_that_the_gate_does_not_take(hashed):
    with pytest.raises(ValueError, match=r"."):
        passwords.scheme(hashed)


@pytest.mark.parametrize("algorithm", ["argon2id", "bcrypt"])
def test_a_decoy_is_like_a_real_hash_and_nobody_has_its_password(algorithm):
    like = passwords.OURS if algorithm == "argon2id" else passwords.Scheme("bcrypt", (8,))
    decoy = passwords.decoy(like)
    assert passwords.scheme(decoy) == like
    assert not passwords.matches(decoy, "")
    assert not passwords.matches(decoy, "impossible")


def test_impossible_passwords_match_nothing():
    hashed = passwords.make("impossible")
    assert not passwords.matches(hashed, "x" * 1000)
    assert not passwords.matches(hashed, "a\0b")
    assert not passwords.matches(hashed, "\ud800")


async def test_one_check_at_a_time_and_few_waiting():
    worker = passwords.Worker(queue=2)
    running, most = 0, 0
    gate = threading.Event()

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        gate.wait(5)
        running -= 1

    tasks = [asyncio.create_task(worker.run(work)) for _ in range(3)]
    await asyncio.sleep(0.01)
    with pytest.raises(BusyError):
        await worker.run(work)
    gate.set()
    await asyncio.gather(*tasks)
    assert (most, worker.waiting) == (1, 0)
    worker.close()


# -- policy


@pytest.mark.parametrize(
    "common",
    [
        "passwordpassword",
        "Password12345678!",
        "P@ssw0rd12345678",
        "1234567890123456",
        "qwertyuiopasdfgh",
        "3edc4rfv5tgb6yhn7ujm",
        "correct horse battery staple",
        "alice-box-example-2026",
        "abcabcabcabcabcabc",
        "Summer2026Summer2026",
        "p-a-s-s-w-o-r-d-1-2-3-4",
        "letmeinletmein!!",
    ],
)
def test_common_passwords(common):
    with pytest.raises(PolicyError, match="guessers"):
        policy.check(common, ("alice", "box.example"))


@pytest.mark.parametrize(
    "good",
    [
        "lantern orbit velvet mango",
        "kX9#vLq2!mZ7pTw4",
        "пароль-зима-дерево-лист",
        "四季の風が窓を叩く静かな夜明け前",
        "password manager ate my lunch",
        "7f3c9a01e5b24d68",
    ],
)
def test_good_passwords(good):
    assert policy.check(good, ("alice", "box.example")) == good


@given(st.text(max_size=80))
def test_the_policy_answers_everything(text):
    try:
        assert 16 <= len(policy.check(text)) <= 64
    except PolicyError as error:
        assert str(error)


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


# -- store


def login(name: str, user: str = "alice", used: float = 1000.0) -> Login:
    return Login(
        id=name,
        user=user,
        token=name * 4,
        created=used,
        last_use=used,
        device="x",
        address="192.0.2.1",
    )


def test_one_process_at_a_time(tmp_path: Path, monkeypatch):
    store = Store(tmp_path)
    locked = locking.locked
    monkeypatch.setattr(locking, "locked", lambda path, timeout: locked(path, 0.05))
    with pytest.raises(ConflictError):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_failed_write_leaves_everything(tmp_path: Path, monkeypatch):
    store = Store(tmp_path, clock=Clock())
    store.set_password("alice", "old", "root")
    store.add(login("one"))

    def full(*_args, **_keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(locking, "atomic_write", full)
    with pytest.raises(InternalError, match="nothing was changed"):
        store.set_password("alice", "new", "root")
    assert store.passwords["alice"].hash == "old"
    assert store.login("one") is not None
    with pytest.raises(InternalError, match="may come back"):
        store.end(["one"])
    assert store.login("one") is None
    store.add(login("two"))
    assert store.login("two") is not None
    monkeypatch.undo()
    assert store.flush()
    store.close()
    assert [entry.id for entry in Store(tmp_path, clock=Clock()).logins()] == ["two"]


def test_the_oldest_login_makes_room(tmp_path: Path):
    store = Store(tmp_path, clock=Clock())
    for number in range(MAX_LOGINS):
        assert store.add(login(f"{number}", used=1000.0 + number)) == []
    assert store.add(login("more")) == ["0"]
    assert store.add(login("bobs", "bob")) == []
    assert len(store.logins("alice")) == MAX_LOGINS


def test_last_uses_are_written_seldom(tmp_path: Path):
    clock = Clock()
    store = Store(tmp_path, clock=clock)
    entry = login("one")
    store.add(entry)
    for _ in range(100):
        clock.now += 1
        store.touch(entry)
    assert not store.dirty
    clock.now += 300
    store.touch(entry)
    assert store.dirty
    assert entry.last_use == clock.now


def test_no_token_is_stored(tmp_path: Path):
    store = Store(tmp_path, clock=Clock())
    code = setup.create(store, "alice")
    assert len(setup.normalise(code)) == 16
    text = (tmp_path / "gate.json").read_text()
    assert setup.normalise(code) not in text
    assert code not in text


def test_setup_codes_run_out(tmp_path: Path):
    clock = Clock()
    store = Store(tmp_path, clock=clock)
    setup.create(store, "alice")
    setup.create(store, "bob", lifetime=None)
    clock.now += setup.LIFETIME + 1
    assert set(store.setups) == {"bob"}


@given(st.text(max_size=40))
def test_typed_codes_have_one_form(text):
    once = setup.normalise(text)
    assert setup.normalise(once) == once


def test_live_files_follow(tmp_path: Path):
    live = Live(tmp_path / "live")
    live.add("a")
    live.add("a")
    live.match(["b", "c"])
    assert {path.name for path in live.directory.iterdir()} == {"b", "c"}
    live.remove(["b", "nobody"])
    assert {path.name for path in live.directory.iterdir()} == {"c"}


def test_unban_requests(tmp_path: Path):
    unbans = Unbans(tmp_path / "unban")
    assert unbans.take() == []
    wanted = [addresses.parse("192.0.2.1"), addresses.parse("2001:db8::1")]
    for address in wanted:
        unbans.request(address)
    (tmp_path / "unban" / "nonsense").touch()
    assert sorted(map(str, unbans.take())) == sorted(map(str, wanted))
    assert list((tmp_path / "unban").iterdir()) == []
