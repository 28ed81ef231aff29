"""What commands do to the registry."""

from __future__ import annotations

import json

import pytest

from agent_box import config, intent
from agent_box.errors import ConflictError, NotFoundError, UsageError
from agent_box.registry import is_uuid, parse


@pytest.fixture
def user(tmp_path):
    made = config.UserConfig(home=str(tmp_path), shell="/bin/sh", runtime_directory="/run/x")
    return config.User("alice", made)


@pytest.fixture
def box():
    return config.Box(
        version=1,
        default_agent="claude",
        programs=config.Programs(tmux="/t", launch="/l"),
        agents={"claude": config.AgentConfig(command="/c"), "pi": config.AgentConfig(command="/p")},
        users={},
    )


@pytest.fixture
def document():
    sessions = {
        "one": {"agent": "pi", "colour": "blue"},
        "two": {"agent": "pi", "stopped": True},
        "bad": {"agent": 5},
    }
    return parse(json.dumps({"sessions": sessions}).encode(), "/h")


def add(box, user, document, **args):
    change, name = intent.add(box, user, intent.Request.from_wire(args))
    change(document)
    return name()


def test_add_fills_in_and_resolves(box, user, document, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    name = add(
        box, user, document, workingDirectory=f"{tmp_path}/link/", prompt="p", extraArgs=["a\nb"]
    )
    assert name == "claude"
    item = document.sessions[name]
    assert is_uuid(item.pop("boxSessionId"))
    assert item == {
        "agent": "claude",
        "skipPermissions": True,
        "remoteControl": True,
        "remoteControlName": None,
        "workingDirectory": str(tmp_path / "real"),
        "extraArgs": ["a\nb"],
        "initialPrompt": "p",
        "resumePrompt": None,
    }
    assert name in parse(json.dumps(document.raw).encode(), "/h").entries


def test_add_makes_the_directory_when_asked(box, user, document, tmp_path):
    with pytest.raises(UsageError, match="--mkdir"):
        add(box, user, document, workingDirectory=f"{tmp_path}/a/b")
    add(box, user, document, workingDirectory=f"{tmp_path}/a/b", mkdir=True)
    assert (tmp_path / "a/b").is_dir()


def test_derived_names_differ(box, user, document):
    names = [add(box, user, document, agent="shell") for _ in range(12)]
    assert len(set(names)) == 12
    assert names[0] == "shell"


@pytest.mark.parametrize("name", ["one", "two", "bad"])
def test_add_never_takes_a_name_over(box, user, document, name):
    before = json.dumps(document.raw)
    with pytest.raises(ConflictError, match="exists already"):
        add(box, user, document, name=name)
    assert json.dumps(document.raw) == before


@pytest.mark.parametrize(
    "args",
    [
        {"name": "a b"},
        {"name": "_a"},
        {"name": 5},
        {"agent": "codex"},
        {"agent": ""[:0] or "x"},
        {"prompt": "p", "agent": "shell"},
        {"prompt": 5},
        {"prompt": "a\0"},
        {"extraArgs": "x"},
        {"extraArgs": [1]},
        {"extraArgs": ["\0"]},
        {"remoteControlName": " "},
        {"remoteControlName": "a\nb"},
        {"workingDirectory": "x"},
        {"workingDirectory": "/dev/null"},
        {"mkdir": "yes"},
        {"skipPermissions": 0},
        {"workingDirectory": "/dev/null/x", "mkdir": True},
    ],
)
def test_add_refuses_nonsense(box, user, document, args):
    with pytest.raises(UsageError):
        add(box, user, document, **args)


def test_remove(document):
    for name in ("one", "bad"):
        intent.remove(name)(document)
    assert list(document.sessions) == ["two"]
    with pytest.raises(NotFoundError):
        intent.remove("nobody")(document)


def test_stopped_is_there_or_absent(document):
    intent.set_stopped("one", stopped=True)(document)
    intent.set_stopped("two", stopped=False)(document)
    assert document.sessions["one"] == {"agent": "pi", "colour": "blue", "stopped": True}
    assert "stopped" not in document.sessions["two"]
    for name, error in (("bad", ConflictError), ("nobody", NotFoundError)):
        with pytest.raises(error):
            intent.set_stopped(name, stopped=True)(document)


def test_rename_keeps_place_and_fields(document):
    intent.rename("one", "uno")(document)
    assert list(document.sessions) == ["uno", "two", "bad"]
    assert document.sessions["uno"]["colour"] == "blue"
    for old, new, error in (
        ("two", "uno", ConflictError),
        ("two", "two", ConflictError),
        ("bad", "x", ConflictError),
        ("nobody", "x", NotFoundError),
    ):
        with pytest.raises(error):
            intent.rename(old, new)(document)
    with pytest.raises(UsageError):
        intent.rename("two", "a b")


def test_ids_for_hand_written_entries(document):
    intent.give_ids(document)
    assert is_uuid(document.sessions["one"]["boxSessionId"])
    assert "boxSessionId" not in document.sessions["bad"]
