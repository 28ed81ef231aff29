from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box.agents import jsonfile
from agent_box.agents.jsonfile import Unfit, append_toml_table, edit, merge_json, toml_string

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text(), VALUES, max_size=5)
KEYS = st.lists(st.text(min_size=1), min_size=1, max_size=3).map(tuple)


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.endswith(".tmp")]


@given(DOCUMENTS, KEYS, VALUES)
def test_a_merge_sets_one_value_and_keeps_every_other(document, keys, value):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "file.json")
        original = json.dumps(document).encode()
        path.write_bytes(original)
        try:
            merge_json(path, [(keys, value)])
        except Unfit:
            assert path.read_bytes() == original
            return
        after = json.loads(path.read_bytes())
        inner = after
        for key in keys[:-1]:
            inner = inner[key]
        assert inner[keys[-1]] == value
        for key, kept in document.items():
            if key != keys[0]:
                assert after[key] == kept
        assert list(after)[: len(document)] == list(document)
        # Nothing left to do: not even the time of the file changes.
        before = path.stat().st_mtime_ns
        assert merge_json(path, [(keys, value)]) is False
        assert path.stat().st_mtime_ns == before
        assert leftovers(path.parent) == []


@given(st.binary(max_size=200))
def test_what_is_no_json_object_is_never_touched(content):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "file.json")
        path.write_bytes(content)
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError):
            parsed = None
        try:
            merge_json(path, [(("a", "b"), True)])
        except Unfit:
            assert path.read_bytes() == content
        else:
            assert isinstance(parsed, dict)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": NaN}', b'{"b": 3}', b"\xff{}"])
def test_unfit_documents(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(Unfit):
        merge_json(path, [(("b", "c"), 1)])
    assert path.read_bytes() == content
    assert leftovers(tmp_path) == []


def test_half_a_surrogate_pair_survives(tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(b'{"odd": "\\ud800", "name": "\xc3\xa9"}')
    merge_json(path, [(("a",), 1)])
    assert json.loads(path.read_bytes()) == {"odd": "\ud800", "name": "é", "a": 1}


def test_true_is_not_one(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    assert merge_json(path, [(("a",), True)])
    assert json.loads(path.read_text()) == {"a": True}


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ("{}", "dark"),
        ('{"theme": null}', "dark"),
        ('{"theme": false}', "dark"),
        ('{"theme": "light"}', "light"),
    ],
)
def test_defaults_yield_to_the_user(tmp_path, present, expected):
    path = tmp_path / "file.json"
    path.write_text(present)
    merge_json(path, [], [(("theme",), "dark")])
    assert json.loads(path.read_text())["theme"] == expected


def test_members_join_once_and_respect_the_veto(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"r": {"no": ["b"]}}')
    for _ in range(2):
        merge_json(path, [], members=[("a", ("r", "yes"), ("r", "no"))])
        merge_json(path, [], members=[("b", ("r", "yes"), ("r", "no"))])
    assert json.loads(path.read_text()) == {"r": {"no": ["b"], "yes": ["a"]}}


def test_mode_and_symlink_stay(tmp_path):
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to("dotfiles/settings.json")
    merge_json(link, [(("a",), 1)])
    assert link.is_symlink()
    assert json.loads(real.read_text()) == {"a": 1}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert leftovers(tmp_path) == leftovers(real.parent) == []


def test_a_new_file_is_private_and_so_is_its_directory(tmp_path):
    path = tmp_path / "new" / "file.json"
    merge_json(path, [(("a",), 1)])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_named_pipe_neither_hangs_nor_changes(tmp_path):
    path = tmp_path / "file.json"
    os.mkfifo(path)
    with pytest.raises(Unfit):
        merge_json(path, [(("a",), 1)])
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_change_between_reading_and_renaming_is_not_lost(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    original = jsonfile._write_beside
    calls = []

    def interfering(target, content, mode):
        calls.append(1)
        if len(calls) == 1:
            path.write_text('{"a": 2, "theirs": true}')
        return original(target, content, mode)

    monkeypatch.setattr(jsonfile, "_write_beside", interfering)
    assert merge_json(path, [(("ours",), True)])
    assert json.loads(path.read_text()) == {"a": 2, "theirs": True, "ours": True}
    assert leftovers(tmp_path) == []


def test_a_change_right_after_the_rename_is_repaired(tmp_path):
    path = tmp_path / "file.json"
    reads = []

    def change(content):
        reads.append(content)
        if len(reads) == 2:  # the check after the rename: somebody wrote an older copy back
            path.write_bytes(b"theirs")
            content = b"theirs"
        return None if content and b"ours" in content else (content or b"") + b"ours"

    path.write_bytes(b"")
    edit(path, change)
    assert b"ours" in path.read_bytes()


def test_many_writers_lose_nothing_of_ours(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("{}")
    failures = []

    def work(name):
        for number in range(5):
            key = f"{name}-{number}"
            for _ in range(50):
                merge_json(path, [((key,), True)])
                if key in json.loads(path.read_bytes()):
                    break
            else:
                failures.append(key)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert leftovers(tmp_path) == []


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_toml_strings_round_trip(text):
    assert tomllib.loads(f"a = {toml_string(text)}")["a"] == text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_toml_table_is_appended_once(directory):
    with tempfile.TemporaryDirectory() as base:
        path = Path(base, "config.toml")
        head = b'# mine\nmodel = "x"   # kept\n[projects."/else"]\ntrust_level = "untrusted"'
        path.write_bytes(head)
        for _ in range(2):
            append_toml_table(path, ("projects", directory), {"trust_level": "trusted"})
        content = path.read_bytes()
        assert content.startswith(head)
        projects = tomllib.loads(content.decode())["projects"]
        if directory != "/else":
            assert projects[directory] == {"trust_level": "trusted"}
        assert projects["/else"] == {"trust_level": "untrusted"}


@pytest.mark.parametrize(
    "content",
    [
        "projects = {}\n",
        "projects = 3\n",
        "not toml at all",
        'a = "x\n',
        "\ufeff[",
    ],
)
def test_toml_that_cannot_take_the_table_is_left_alone(tmp_path, content):
    path = tmp_path / "config.toml"
    path.write_text(content)
    with pytest.raises(Unfit):
        append_toml_table(path, ("projects", "/w"), {"trust_level": "trusted"})
    assert path.read_text() == content


@pytest.mark.parametrize(
    "content",
    [
        '[projects."/w"]\n',
        "[projects.'/w']\ntrust_level = \"untrusted\"\n",
        'projects."/w".trust_level = "untrusted"\n',
        '[projects]\n"/w" = {}\n',
    ],
)
def test_an_answer_of_the_user_stands(tmp_path, content):
    path = tmp_path / "config.toml"
    path.write_text(content)
    assert append_toml_table(path, ("projects", "/w"), {"trust_level": "trusted"}) is False
    assert path.read_text() == content
