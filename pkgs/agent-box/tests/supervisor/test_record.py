"""Side state and the logs beside it."""

from __future__ import annotations

import threading
import uuid

import pytest

from agent_box.supervisor import record as module
from agent_box.supervisor.record import KEPT_LOGS, MAX_LOG, Exit, Record, Records, tidy

ID = str(uuid.uuid4())


@pytest.fixture
def records(tmp_path):
    made = Records(tmp_path)
    made.prepare()
    return made


def test_a_record_comes_back_as_it_was(records):
    record = Record(id=ID, launch_id=str(uuid.uuid4()), delivered=True, prompted=True)
    record.exits = [Exit(1.5, 3, None, "exit 3"), Exit(2.5, None, 9, "killed by SIGKILL")]
    records.save(record, durable=True)
    assert records.load(ID) == record
    assert (records.directory / f"{ID}.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"id": 5}', b"\xff"])
def test_a_damaged_record_is_a_fresh_one_of_a_session_that_was_launched(records, data):
    assert records.load(ID) == Record(id=ID, launch_id=ID)
    (records.directory / f"{ID}.json").write_bytes(data)
    assert records.load(ID) == Record(id=ID, launch_id=ID, prompted=True)


def test_an_odd_launch_id_never_becomes_a_path(records):
    records.save(Record(id=ID, launch_id="../../x"), durable=False)
    assert records.load(ID).launch_id == ID


def test_logs_are_numbered_and_bounded(records):
    record = Record(id=ID, launch_id=ID)
    assert records.log(ID, None) is None
    for number in range(1, KEPT_LOGS + 4):
        record.runs = number
        records.save_log(record, f"run {number}")
    assert records.log(ID, None) == (KEPT_LOGS + 3, f"run {KEPT_LOGS + 3}\n")
    assert records.log(ID, 1) is None
    assert records.log(ID, 5) == (5, "run 5\n")
    record.runs += 1
    records.save_log(record, "x" * (2 * MAX_LOG) + "\nlast")
    _, text = records.log(ID, None)
    assert len(text) <= MAX_LOG
    assert text.endswith("last\n")


def test_forgetting_leaves_nothing(records, tmp_path):
    launch_id, moved = str(uuid.uuid4()), str(uuid.uuid4())
    record = Record(id=ID, launch_id=launch_id, runs=1)
    records.save(record, durable=False)
    records.save_log(record, "x")
    live = tmp_path / "live"
    for path, text in (
        (records.prompts / f"{ID}.md", "x"),
        (records.prompts / f"{ID}-resume.md", "x"),
        (live / launch_id, moved + "\n"),
        (live / moved, "nonsense"),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    other = records.prompts / f"{uuid.uuid4()}.md"
    other.write_text("kept")
    assert records.known() == {ID}
    records.forget(ID)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    assert records.known() == set()
    records.forget("../..")
    records.forget(ID)
    assert other.exists()


def test_tidy():
    ended = "[agent-box] ended (exit 3). See: agent-box-session ls"
    assert tidy(f"\n\n a  \n\n\n\nb\n\n{ended}\n\n\n") == " a\n\nb\n"
    assert tidy("") == "\n"
    assert tidy("[agent-box] ended up fine\n") == "[agent-box] ended up fine\n"


def test_an_older_state_never_replaces_a_newer_one(records, monkeypatch):
    """One thread waits for the disk while another saves what happened since."""
    known = Record(id=ID, launch_id=ID)
    writing, going_on = threading.Event(), threading.Event()
    real = module.atomic_write

    def slow(path, data, **options):
        if options["durable"]:
            writing.set()
            going_on.wait(5)
        real(path, data, **options)

    monkeypatch.setattr(module, "atomic_write", slow)
    older = threading.Thread(target=records.save, args=[known], kwargs={"durable": True})
    older.start()
    writing.wait(5)
    known.delivered = True
    newer = threading.Thread(target=records.save, args=[known], kwargs={"durable": False})
    newer.start()
    newer.join(0.2)
    going_on.set()
    older.join()
    newer.join()
    assert records.load(ID).delivered
