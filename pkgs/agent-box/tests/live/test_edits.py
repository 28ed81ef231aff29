"""The registry as a file that people edit, damage and restore."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from agent_box.errors import ConflictError


@pytest.fixture
def busy(box):
    """Return a box with one running session."""
    box.ready(box.call("add", name="one", prompt="go")["session"]["id"])
    box.until(lambda: not box.view("one")["promptPending"])
    return box


def replace(box, data: bytes) -> None:
    temporary = box.registry.with_name("edited")
    temporary.write_bytes(data)
    temporary.replace(box.registry)


def in_place(box, data: bytes) -> None:
    box.registry.write_bytes(data)


@pytest.mark.parametrize("write", [replace, in_place])
def test_hand_edits_are_taken_up(busy, write):
    document = busy.raw()
    document["note"] = "mine"
    document["sessions"]["hand"] = {"agent": "shell", "colour": "blue"}
    write(busy, json.dumps(document).encode())
    hand = busy.until(lambda: busy.sessions().get("hand"))
    busy.wait("hand", "running")
    raw = busy.raw()
    assert raw["note"] == "mine"
    assert raw["sessions"]["hand"] == {
        "agent": "shell",
        "colour": "blue",
        "boxSessionId": busy.view("hand")["id"],
    }
    assert hand["id"]
    document = busy.raw()
    document["sessions"]["hand"]["stopped"] = True
    write(busy, json.dumps(document).encode())
    busy.wait("hand", "stopped")
    busy.until(lambda: busy.view("hand")["pid"] is None)
    del document["sessions"]["hand"]
    write(busy, json.dumps(document).encode())
    busy.until(lambda: "hand" not in busy.sessions())
    busy.until(lambda: not busy.traces(raw["sessions"]["hand"]["boxSessionId"]))


BROKEN = {
    "comma": b'{"version": 1, "sessions": {,}}',
    "empty": b"",
    "blank": b" \n",
    "list": b"[]",
    "no sessions": b'{"version": 1}',
    "binary": b"\xff\xfe\x00{",
    "half": b'{"version": 1, "sessions": {"one": {"agent": "cl',
    "twice": b'{"sessions": {"a": {"agent": "shell"}, "a": {"agent": "shell"}}}',
    "deep": b'{"sessions": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    "NaN": b'{"sessions": {}, "x": NaN}',
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_registry_that_does_not_parse_changes_nothing(busy, kind):
    good = busy.registry.read_bytes()
    pid = busy.view("one")["pid"]
    busy.registry.write_bytes(BROKEN[kind])
    problem = busy.until(lambda: busy.call("ls")["problems"])[0]
    assert "does not parse" in problem
    assert str(busy.registry) in problem
    check_in_force(busy, pid)
    assert busy.registry.read_bytes() == BROKEN[kind]
    # It holds over a new supervisor as well.
    if kind in ("comma", "empty"):
        busy.kill_supervisor()
        busy.start_supervisor()
        assert busy.call("ls")["problems"]
        check_in_force(busy, pid)
        assert busy.registry.read_bytes() == BROKEN[kind]
    busy.registry.write_bytes(good)
    busy.until(lambda: not busy.call("ls")["problems"])
    assert busy.view("one")["pid"] == pid


def check_in_force(box, pid: int) -> None:
    assert box.view("one")["pid"] == pid
    for op, args in (
        ("add", {"name": "new", "agent": "shell"}),
        ("rm", {"name": "one"}),
        ("stop", {"name": "one"}),
        ("rename", {"name": "one", "newName": "two"}),
    ):
        with pytest.raises(ConflictError, match=r"does not parse|not a regular file|belongs to"):
            box.call(op, **args)
    assert box.view("one")["pid"] == pid


def test_a_registry_that_is_a_directory(busy):
    pid = busy.view("one")["pid"]
    good = busy.registry.read_bytes()
    busy.registry.unlink()
    busy.registry.mkdir()
    busy.until(lambda: any("not a regular file" in text for text in busy.call("ls")["problems"]))
    check_in_force(busy, pid)
    busy.registry.rmdir()
    busy.registry.write_bytes(good)
    busy.until(lambda: not busy.call("ls")["problems"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_registry_of_somebody_else(busy):
    pid = busy.view("one")["pid"]
    os.chown(busy.registry, 65534, 65534)
    busy.until(lambda: any("belongs to uid 65534" in text for text in busy.call("ls")["problems"]))
    check_in_force(busy, pid)
    os.chown(busy.registry, os.getuid(), os.getgid())
    busy.until(lambda: not busy.call("ls")["problems"])


def test_a_missing_registry_is_reported_and_rewritten_by_the_next_change(busy):
    pid = busy.view("one")["pid"]
    busy.registry.unlink()
    busy.until(lambda: any("is missing" in text for text in busy.call("ls")["problems"]))
    assert busy.view("one")["pid"] == pid
    busy.call("add", name="two", agent="shell")
    assert list(busy.raw()["sessions"]) == ["one", "two"]
    assert not busy.call("ls")["problems"]


def test_one_bad_entry_harms_no_other_and_not_its_own_process(busy):
    view = busy.view("one")
    document = busy.raw()
    document["sessions"]["one"]["skipPermissions"] = "yes"
    document["sessions"]["bad name"] = {"agent": "shell"}
    document["sessions"]["odd"] = 5
    document["sessions"]["fine"] = {"agent": "shell"}
    replace(busy, json.dumps(document).encode())
    busy.wait("fine", "running")
    problems = " ".join(busy.call("ls")["problems"])
    for name in ("one", "bad name", "odd"):
        assert f"session '{name}'" in problems
    assert busy.view("one")["pid"] == view["pid"]
    assert busy.view("odd")["state"] == "failed"
    # Over a new supervisor too: neither its process nor its record is lost.
    busy.kill_supervisor()
    busy.start_supervisor()
    assert busy.view("one")["state"] == "failed"
    os.kill(view["pid"], 0)
    document = busy.raw()
    document["sessions"]["one"]["skipPermissions"] = True
    replace(busy, json.dumps(document).encode())
    assert busy.wait("one", "running")["pid"] == view["pid"]
    assert not busy.view("one")["promptPending"]
    # Nonsense can be removed by name.
    busy.call("rm", name="odd")
    busy.call("rm", name="bad name")
    assert sorted(busy.raw()["sessions"]) == ["fine", "one"]


def test_rm_of_an_invalid_entry_ends_what_ran_for_it(busy):
    view = busy.view("one")
    document = busy.raw()
    document["sessions"]["one"]["agent"] = None
    replace(busy, json.dumps(document).encode())
    busy.until(lambda: busy.call("ls")["problems"])
    busy.kill_supervisor()
    busy.start_supervisor()
    busy.call("rm", name="one")
    busy.until(lambda: not busy.traces(view["id"]))
    busy.until(lambda: not busy.tmux_run("list-sessions", check=False))
    assert busy.raw()["sessions"] == {}


def test_the_directory_removed_and_made_again(busy):
    pid = busy.view("one")["pid"]
    saved = busy.root / "saved"
    shutil.copytree(busy.registry.parent, saved)
    shutil.rmtree(busy.registry.parent)
    busy.until(lambda: busy.call("ls")["problems"])
    assert busy.view("one")["pid"] == pid
    shutil.copytree(saved, busy.registry.parent)
    busy.until(lambda: not busy.call("ls")["problems"])
    document = busy.raw()
    document["sessions"]["two"] = {"agent": "shell"}
    replace(busy, json.dumps(document).encode())
    busy.wait("two", "running")
    assert busy.view("one")["pid"] == pid


def test_a_registry_behind_a_symbolic_link(busy):
    target = busy.root / "dotfiles.json"
    busy.registry.rename(target)
    busy.registry.symlink_to(target)
    busy.call("add", name="two", agent="shell")
    assert busy.registry.is_symlink()
    assert list(json.loads(target.read_text())["sessions"]) == ["one", "two"]
