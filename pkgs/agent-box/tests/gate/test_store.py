"""What the gate keeps: logins, set-up codes, files of live logins, wishes to unban."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box import locking
from agent_box.errors import ConflictError, InternalError
from agent_box.gate import addresses, setup
from agent_box.gate.known import Known
from agent_box.gate.live import Live
from agent_box.gate.store import MAX_LOGINS, Login, Store
from agent_box.gate.unbans import Allowance, Unbans

from .conftest import Clock

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_setup_code_is_told_again(tmp_path: Path):
    """Of a later process, too, and its terms do not get worse."""
    clock = Clock()
    store = Store(tmp_path, clock=clock)
    code = setup.current(store, "alice", lifetime=None)
    store.close()
    store = Store(tmp_path, clock=clock)
    assert setup.current(store, "alice") == code
    assert store.setups["alice"].expires is None
    other = setup.current(store, "bob")
    clock.now += setup.LIFETIME - 1
    assert setup.current(store, "bob") == other
    clock.now += setup.LIFETIME - 1
    assert "bob" in store.setups
    clock.now += 2
    assert setup.current(store, "bob") != other
    # Of one that an earlier version made only the digest is there.
    store.set_setup("carol", "OLD", None)
    assert setup.current(store, "carol") != "OLD"


@given(st.text(max_size=40))
def test_typed_codes_have_one_form(text):
    once = setup.normalise(text)
    assert setup.normalise(once) == once


def test_live_files_follow(tmp_path: Path):
    live = Live(tmp_path / "live")

    def there() -> set[str]:
        files = (path for path in live.directory.rglob("*") if path.is_file())
        return {path.relative_to(live.directory).as_posix() for path in files}

    live.add("alice", "a")
    live.add("alice", "a")
    # What a version without directories of users has left.
    (live.directory / "b").touch()
    live.match([("alice", "b"), ("bob", "c"), ("bob", "d")])
    assert there() == {"alice/b", "bob/c", "bob/d"}
    live.remove(["b", "d", "nobody"])
    assert there() == {"bob/c"}


def test_unban_requests(tmp_path: Path):
    unbans = Unbans(tmp_path / "unban")
    assert list(unbans.take()) == []
    unbans.directory.mkdir()
    wanted = [addresses.parse("192.0.2.1"), addresses.parse("2001:db8::1")]
    for address in wanted:
        unbans.request(address)
    (tmp_path / "unban" / "nonsense").touch()
    # What stayed would have the helper started for ever.
    (tmp_path / "unban" / "folder" / "more").mkdir(parents=True)
    assert sorted(map(str, unbans.take())) == sorted(map(str, wanted))
    assert list((tmp_path / "unban").iterdir()) == []


def test_a_wish_is_there_until_it_is_carried_out(tmp_path: Path):
    unbans = Unbans(tmp_path)
    path = unbans.request(addresses.parse("192.0.2.1"))
    for _ in unbans.take():
        assert path.exists()
    assert not path.exists()


def test_wishes_have_an_end():
    clock = Clock()
    allowance = Allowance(clock)
    assert [allowance.take("bob") for _ in range(10)] == [0.0] * 10
    assert allowance.take("bob") > 0
    assert allowance.take("alice") == 0.0
    clock.now += 3600
    assert allowance.take("bob") == 0.0


def test_files_of_known_cookies_follow_the_logins(tmp_path: Path):
    place = tmp_path / "known"
    known = Known(place)
    known.add("a" * 16 + "b" * 27, "login-1")
    known.add("c" * 16 + "d" * 27, "login-2")
    assert {path.name for path in place.iterdir()} == {"a" * 16, "c" * 16}
    after = Known(place)  # of the next process
    after.match(["login-2"])
    assert {path.name for path in place.iterdir()} == {"c" * 16}
    after.add("../../../../../../etc/passwd", "login-3")
    assert {path.name for path in tmp_path.iterdir()} == {"known"}
