"""What a session learns about webhooks, and what it keeps to itself."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace

import pytest

from agent_box import config
from agent_box.agents.base import Launch
from agent_box.subscriptions import place
from agent_box.supervisor.launch import _environment
from agent_box.supervisor.lifecycle import Lifecycle


@pytest.fixture
def environment(tmp_path):
    """Return what a session of alice gets, with or without webhooks."""
    user = SimpleNamespace(
        name="alice",
        home=tmp_path,
        runtime_dir=tmp_path,
        env_path=tmp_path / "env",
        session_env_path=tmp_path.joinpath,
    )
    session = SimpleNamespace(
        name="main", id=str(uuid.uuid4()), entry=SimpleNamespace(working_directory="/")
    )

    def get(*users: str):
        mine = config.WebhookUser(url="https://box.test/alice/webhook", socket="/x")
        webhook = config.Webhook(users=dict.fromkeys(users, mine)) if users else None
        lifecycle = Lifecycle(SimpleNamespace(webhook=webhook), user, None, None)
        launch = Launch(["/bin/true"], {"A": "1"}, delivers_prompt=False, resumes=False)
        spec = json.loads(lifecycle._write_spec(session, launch, "key", None).read_text())
        return _environment(spec), session

    return get


def test_a_session_is_led_to_its_own_subscriptions(environment, tmp_path):
    env, session = environment("alice")
    assert env["LOCAL_WEBHOOK_SESSION"] == place.key_of(session.id)
    assert env["LOCAL_WEBHOOK_STATE_DIR"] == str(place.state_dir(tmp_path))
    assert env["LOCAL_WEBHOOK_PORT"] == "0"
    assert env["AGENT_BOX_WEBHOOK_URL"] == "https://box.test/alice/webhook"
    assert "LOCAL_WEBHOOK_SELF" not in env


def test_the_env_file_knows_best_who_the_box_is(environment, tmp_path):
    directory = place.state_dir(tmp_path)
    directory.mkdir(parents=True)
    (directory / "self.env").write_text("# x\nLOCAL_WEBHOOK_SELF=boxbot\n")
    assert environment("alice")[0]["LOCAL_WEBHOOK_SELF"] == "boxbot"
    (tmp_path / "env").write_text("LOCAL_WEBHOOK_SELF=other\nLOCAL_WEBHOOK_SESSION=forged\n")
    env, session = environment("alice")
    assert env["LOCAL_WEBHOOK_SELF"] == "other"
    assert env["LOCAL_WEBHOOK_SESSION"] == place.key_of(session.id)


@pytest.mark.parametrize("users", [(), ("bob",)])
def test_without_a_receiver_nothing_is_said(environment, users):
    env, _ = environment(*users)
    assert not [name for name in env if name.startswith("LOCAL_WEBHOOK")]
