"""The registry's file: strict to read, safe to write, and kept whole."""

from __future__ import annotations

import json
import os
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box import config, intent
from agent_box.errors import ConflictError, NotFoundError
from agent_box.registry import RegistryError, Store, is_uuid, parse, serialize

ID = "f47ac10b-58cc-4372-a567-0e02b2c3d479"


def document(**sessions):
    return json.dumps({"version": 1, "sessions": sessions}).encode()


@pytest.fixture
def user(tmp_path):
    seed = {"main": config.Seed(agent="claude", initial_prompt="hi")}
    made = config.UserConfig(
        home=str(tmp_path / "home"), shell="/bin/sh", runtime_directory=str(tmp_path), seed=seed
    )
    return config.User("alice", made)


@pytest.fixture
def store(user):
    made = Store(user)
    made.prepare(SimpleNamespace(default_agent="claude"))
    return made


def test_an_entry_with_defaults():
    entry = parse(document(one={"agent": "claude"}), "/home/a").entries["one"]
    assert entry.working_directory == "/home/a"
    assert entry.skip_permissions is True
    assert entry.remote_control is True
    assert entry.extra_args == []
    assert entry.initial_prompt is None
    assert entry.id is None
    assert entry.stopped is False


def test_null_means_the_default_and_an_empty_prompt_none():
    item = {"agent": "pi", "skipPermissions": None, "extraArgs": None, "initialPrompt": ""}
    entry = parse(document(one=item), "/h").entries["one"]
    assert entry.skip_permissions is True
    assert entry.extra_args == []
    assert entry.initial_prompt is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b"{}",
        b'{"sessions": []}',
        b'{"sessions": {}',
        b"{'a': 1}",
        b'\xef\xbb\xbf{"sessions": {}}',
        b'{"sessions": {}, "sessions": {}}',
        b'{"sessions": {"a": {"agent": "pi", "agent": "pi"}}}',
        b'{"sessions": {}, "x": Infinity}',
        b'{"sessions": {}} x',
        b'{"sessions": \xff}',
        b'{"sessions": ' + b"[" * 200000,
        b'{"sessions": {}, "x": ' + b"[" * 150 + b"]" * 150 + b"}",
        b'{"sessions": {},}',
        b'{"x": ' + b"1" * 5000 + b"}",
    ],
)
def test_what_is_no_registry_is_refused(data):
    with pytest.raises(ValueError, match=r".+"):
        parse(data, "/h")


@pytest.mark.parametrize(
    ("name", "item", "word"),
    [
        ("a b", {"agent": "pi"}, "name"),
        ("", {"agent": "pi"}, "name"),
        ("-a", {"agent": "pi"}, "name"),
        ("_a", {"agent": "pi"}, "name"),
        ("../a", {"agent": "pi"}, "name"),
        ("a" * 151, {"agent": "pi"}, "name"),
        ("a", {}, "agent"),
        ("a", 5, "not valid"),
        ("a", None, "not valid"),
        ("a", {"agent": 5}, "agent"),
        ("a", {"agent": "pi", "skipPermissions": "yes"}, "skipPermissions"),
        ("a", {"agent": "pi", "extraArgs": ["x", 1]}, "extraArgs"),
        ("a", {"agent": "pi", "stopped": 1}, "stopped"),
        ("a", {"agent": "pi", "boxSessionId": "../../etc"}, "boxSessionId"),
        ("a", {"agent": "pi", "boxSessionId": ""}, "boxSessionId"),
        ("a", {"agent": "pi", "workingDirectory": "rel"}, "workingDirectory"),
        ("a", {"agent": "pi", "workingDirectory": "/a\0b"}, "NUL"),
        ("a", {"agent": "pi", "initialPrompt": "\0"}, "NUL"),
        ("a", {"agent": "pi", "extraArgs": ["\0"]}, "NUL"),
    ],
)
def test_a_bad_entry_is_named_and_alone(name, item, word):
    parsed = parse(document(**{name: item, "fine": {"agent": "pi"}}), "/h")
    assert list(parsed.entries) == ["fine"]
    assert word in parsed.invalid[name]
    if name:
        with pytest.raises(ConflictError):
            parsed.entry(name)
    with pytest.raises(NotFoundError):
        parsed.entry("nobody")


def test_two_entries_with_one_id():
    item = {"agent": "pi", "boxSessionId": ID}
    parsed = parse(document(a=item, b=item), "/h")
    assert list(parsed.entries) == ["a"]
    assert "'a'" in parsed.invalid["b"]


def test_uuids():
    assert is_uuid(ID)
    assert is_uuid(ID.upper())
    for text in ("", ID[:-1], ID.replace("-", ""), "{" + ID + "}", "urn:uuid:" + ID, "../" + ID):
        assert not is_uuid(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("agent", "initialPrompt", "extraArgs", "stopped", "boxSessionId", "workingDirectory")


@given(
    st.dictionaries(st.text(), JSON, max_size=3),
    st.dictionaries(
        st.text() | st.sampled_from(["main", "a"]),
        st.dictionaries(st.text() | st.sampled_from(FIELDS), JSON, max_size=5) | JSON,
        max_size=4,
    ),
)
def test_any_json_is_kept_as_it_is(extra, sessions):
    raw = {**extra, "sessions": sessions}
    parsed = parse(json.dumps(raw).encode(), "/h")
    assert set(parsed.entries) | set(parsed.invalid) == set(sessions)
    again = parse(serialize(parsed.raw), "/h")
    assert again.raw == raw
    assert again.entries == parsed.entries
    assert again.invalid == parsed.invalid


def test_half_a_surrogate_pair_survives():
    data = b'{"sessions": {"a": {"agent": "pi", "\\ud800": "\\udfff", "initialPrompt": "\\udc80"}}}'
    parsed = parse(data, "/h")
    assert parsed.entries["a"].initial_prompt == "\udc80"
    assert parse(serialize(parsed.raw), "/h").raw == json.loads(data)


@given(st.binary(max_size=60))
def test_any_bytes_parse_or_are_refused(data):
    try:
        parsed = parse(data, "/h")
    except ValueError:
        return
    assert isinstance(parsed.sessions, dict)


def test_seeded_once(store, user):
    first = store.path.read_bytes()
    assert list(store.read().entries) == ["main"]
    assert is_uuid(store.read().entries["main"].id)
    store.prepare(SimpleNamespace(default_agent="claude"))
    assert store.path.read_bytes() == first
    store.path.unlink()
    store.prepare(SimpleNamespace(default_agent="claude"))
    assert not store.path.exists()
    assert store.path.parent.stat().st_mode & 0o777 == 0o700
    assert store.last_good_path.stat().st_mode & 0o777 == 0o600


def test_a_change_is_whole_or_not_at_all(store):
    before = store.path.read_bytes()

    def fail(document):
        document.sessions.clear()
        raise ConflictError("no")

    with pytest.raises(ConflictError):
        store.mutate(fail)
    assert store.path.read_bytes() == before

    def unwritable(document):
        document.raw["sessions"] = []

    with pytest.raises(RegistryError):
        store.mutate(unwritable)
    assert store.path.read_bytes() == before
    assert not list(store.path.parent.glob(".sessions*"))


def test_unknown_fields_survive_a_change(store):
    raw = json.loads(store.path.read_bytes())
    raw["future"] = {"x": [1, 2.5, None]}
    raw["sessions"]["main"]["colour"] = "blue"
    store.path.write_text(json.dumps(raw))
    store.mutate(intent.set_stopped("main", stopped=True))
    raw["sessions"]["main"]["stopped"] = True
    assert json.loads(store.path.read_bytes()) == raw
    assert store.path.stat().st_mode & 0o777 == 0o600


def test_nothing_to_change_writes_nothing(store):
    before = store.path.stat().st_ino
    store.mutate(lambda document: None)
    assert store.path.stat().st_ino == before


def broken_directory(path):
    path.unlink()
    path.mkdir()


def broken_link(path):
    path.unlink()
    path.symlink_to("/nonexistent/target")


def broken_fifo(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"{"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\n\n"),
        broken_directory,
        broken_fifo,
    ],
)
def test_damage_is_reported_and_left_alone(store, damage):
    good = store.read()
    damage(store.path)
    for attempt in (store.read, lambda: store.mutate(intent.remove("main"))):
        with pytest.raises(RegistryError) as caught:
            attempt()
        assert str(store.path) in str(caught.value)
    assert store.last_good().entries == good.entries
    if store.path.is_file():
        assert len(store.path.read_bytes()) < 3


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_trusted(store):
    os.chown(store.path, 65534, 65534)
    with pytest.raises(RegistryError, match="belongs to uid 65534"):
        store.read()


def test_a_missing_file_is_made_from_the_last_good_one(store):
    store.path.unlink()
    with pytest.raises(RegistryError, match="is missing"):
        store.read()
    store.mutate(intent.set_stopped("main", stopped=True))
    assert store.read().entries["main"].stopped


def test_a_full_disk_does_not_refuse_what_the_registry_says(store, monkeypatch):
    raw = json.loads(store.path.read_bytes())
    raw["note"] = 1
    store.path.write_text(json.dumps(raw))

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agent_box.registry.atomic_write", full)
    assert store.read().raw == raw
    with pytest.raises(OSError, match="No space"):
        store.mutate(intent.remove("main"))
    assert json.loads(store.path.read_bytes()) == raw


def test_parallel_changes_lose_nothing(store):
    def add(number):
        def change(document):
            document.sessions[f"s{number}"] = {"agent": "pi"}

        Store(store.user).mutate(change)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.read().entries) == 17


def test_a_seed_of_the_own_user_comes_before_one_in_the_document(user, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_BOX_CONFIG", str(tmp_path / "box.json"))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "seeds").mkdir()
    seeds = {"a": {"agent": "pi"}, "b": {"agent": "pi", "initialPromptCredential": "prompt-b"}}
    (tmp_path / "seeds/alice.json").write_text(json.dumps(seeds))
    (tmp_path / "prompt-b").write_text("do it\n")
    made = Store(user)
    made.prepare(SimpleNamespace(default_agent="claude"))
    sessions = json.loads(user.registry_path.read_bytes())["sessions"]
    assert sessions["a"]["initialPrompt"] is None
    assert sessions["b"]["initialPrompt"] == "do it"
    assert "initialPromptCredential" not in sessions["b"]


def test_a_prompt_that_cannot_be_read_does_not_keep_the_sessions_away(user, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_BOX_CONFIG", str(tmp_path / "box.json"))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds/alice.json").write_text(
        '{"a": {"agent": "pi", "initialPromptCredential": "x"}}'
    )
    made = Store(user)
    made.prepare(SimpleNamespace(default_agent="claude"))
    assert json.loads(user.registry_path.read_bytes())["sessions"]["a"]["initialPrompt"] is None
