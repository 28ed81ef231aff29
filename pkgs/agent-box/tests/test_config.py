"""box.json as the runtime reads it."""

from __future__ import annotations

import json
import os
import pwd

import pytest

from agent_box import config
from agent_box.errors import InternalError, UsageError


@pytest.fixture
def document():
    return {
        "version": 1,
        "defaultAgent": "pi",
        "programs": {"tmux": "/bin/tmux", "launch": "/bin/launch"},
        "agents": {"claude": {"command": "/bin/claude"}, "pi": {"command": "/bin/pi"}},
        "users": {
            "alice": {
                "home": "/home/alice",
                "shell": "/bin/sh",
                "runtimeDirectory": "/run/agent-box-alice",
                "seed": {"main": {"agent": "shell"}},
                "limits": {"memoryMax": "60%", "tasksMax": 20},
            }
        },
    }


def write(tmp_path, document):
    path = tmp_path / "box.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_document(tmp_path, document, monkeypatch):
    document["later"] = document["users"]["alice"]["later"] = 5
    monkeypatch.setenv("AGENT_BOX_CONFIG", str(write(tmp_path, document)))
    box = config.load()
    assert box.agent_names() == ["pi", "claude", "shell"]
    assert box.knows_agent("shell")
    assert not box.knows_agent("codex")
    assert box.host_label is None
    alice = box.user("alice")
    assert str(alice.registry_path) == "/home/alice/.config/agent-box/sessions.json"
    assert str(alice.control_path) == "/run/agent-box-alice/control.sock"
    assert alice.limits.tasks_max == 20
    with pytest.raises(UsageError, match="alice"):
        box.user("bob")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"version": "1"}, "version"),
        ({"version": 2}, "version 2"),
        ({"agents": []}, "agents"),
        ({"agents": {"pi": {"command": 5}}}, "command"),
        ({"users": {"alice": {}}}, "home"),
        ({"programs": None}, "programs"),
        ({"defaultAgent": None}, "defaultAgent"),
    ],
)
def test_a_wrong_document_names_the_place(tmp_path, document, change, word):
    path = write(tmp_path, {**document, **change})
    with pytest.raises(InternalError, match=word) as caught:
        config.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_no_document_at_all(tmp_path, text):
    with pytest.raises(InternalError):
        config.load(write(tmp_path, text))


def test_a_missing_document(tmp_path):
    with pytest.raises(InternalError, match=r"services\.agent-box\.enable"):
        config.load(tmp_path / "none")


def test_the_user_is_told_by_uid_and_not_by_environment(tmp_path, document, monkeypatch):
    name = pwd.getpwuid(os.getuid()).pw_name
    document["users"][name] = document["users"]["alice"]
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setenv("LOGNAME", "alice")
    assert config.current_user(config.load(write(tmp_path, document))).name == name
