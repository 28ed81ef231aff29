"""What is recorded of a kickoff prompt is lost in a power cut rather than its evidence alone."""

from __future__ import annotations

import importlib.util
import os
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_box import agents
from agent_box.agents.prompts import stamp
from agent_box.supervisor.lifecycle import Lifecycle
from agent_box.supervisor.record import Record, Records

STUB = Path(__file__).parents[4] / "harness/src/agent_box_harness/stub_agent.py"
AGENTS = ("claude", "codex", "opencode", "pi")


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """The harness's stub as a module, at home in the directory of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("stub_agent", STUB)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=AGENTS)
def story(request, stub, tmp_path):
    """A session that was launched with its kickoff prompt, and what its agent stores of it."""
    name = request.param
    records = Records(tmp_path / "state")
    records.prepare()
    user = SimpleNamespace(
        name="alice",
        home=tmp_path,
        runtime_dir=tmp_path,
        env_path=tmp_path / "env",
        session_env_path=tmp_path.joinpath,
    )
    lifecycle = Lifecycle(SimpleNamespace(agents={}), user, None, records)
    launch_id = str(uuid.uuid4())
    record = Record(id=launch_id, launch_id=launch_id, launched=True, prompted=True)
    record.started_at = time.time()
    session = SimpleNamespace(
        name="main", id=launch_id, record=record, prompt_pending=True,
        entry=SimpleNamespace(
            agent=name, working_directory=str(tmp_path), initial_prompt="the task",
            remote_control=False, extra_args=[],
        ),
    )  # fmt: skip
    ident = f"ses_{uuid.uuid4().hex}" if name == "opencode" else launch_id
    stamped = name in ("codex", "opencode")
    conversation = stub.Conversation(name, ident)
    text = f"{stamp(launch_id)} the task" if stamped else "the task"
    return SimpleNamespace(
        agent=agents.get(name), lifecycle=lifecycle, session=session, record=record,
        records=records, conversation=conversation, text=text, home=tmp_path,
    )  # fmt: skip


def test_the_evidence_is_on_the_disk_before_the_record(story, monkeypatch):
    lifecycle, session, agent, record = story.lifecycle, story.session, story.agent, story.record
    assert not lifecycle.note_delivery(session, agent)
    story.conversation.add(story.text)
    synced, real = [], os.fsync

    def spy(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    assert lifecycle.note_delivery(session, agent)
    assert record.delivered
    evidence = story.conversation.path()
    written = next(
        at for at, path in enumerate(synced) if path.is_relative_to(story.records.directory)
    )
    assert evidence in synced[:written]
    # A file whose name is lost is lost itself.
    below_home = [path for path in evidence.parents if path.is_relative_to(story.home)]
    assert set(below_home) <= set(synced[:written])


def test_a_file_that_lost_its_content_is_no_evidence(story):
    """What a power cut leaves of a file that had just been made: its name, or zeros."""
    story.conversation.add(story.text)
    evidence = story.conversation.path()
    for left in (b"", b"\0" * 300):
        evidence.write_bytes(left)
        assert not story.lifecycle.note_delivery(story.session, story.agent)
        assert not story.record.delivered
        assert story.agent.conversation(story.lifecycle.context(story.session)) is None
