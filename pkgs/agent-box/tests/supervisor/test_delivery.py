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


@pytest.mark.parametrize("name", AGENTS)
def test_the_evidence_is_on_the_disk_before_the_record(stub, tmp_path, monkeypatch, name):
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
    agent = agents.get(name)
    assert not lifecycle.note_delivery(session, agent)

    ident = f"ses_{uuid.uuid4().hex}" if name == "opencode" else launch_id
    stamped = name in ("codex", "opencode")
    conversation = stub.Conversation(name, ident)
    conversation.add(f"{stamp(launch_id)} the task" if stamped else "the task")

    synced, real = [], os.fsync

    def spy(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    assert lifecycle.note_delivery(session, agent)
    assert record.delivered
    evidence = conversation.path()
    written = next(at for at, path in enumerate(synced) if path.is_relative_to(records.directory))
    assert evidence in synced[:written]
    # A file whose name is lost is lost itself.
    below_home = [path for path in evidence.parents if path.is_relative_to(tmp_path)]
    assert set(below_home) <= set(synced[:written])
