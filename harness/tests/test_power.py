"""The parts that power cuts are proven with: they must see what is lost, and nothing else."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import lossy_disk
from agent_box_harness.lossy_disk import BLOCK, LossyDisk
from agent_box_harness.witness import Ledger, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READ, WRITE, FLUSH = 0, 1, 3


class Guest:
    """The kernel's side of the connection."""

    def __init__(self, disk: LossyDisk) -> None:
        self.sock = socket.create_connection(("127.0.0.1", disk.port))
        self.file = self.sock.makefile("rb")

    def ask(self, kind: int, block: int = 0, data: bytes = b"", length: int = 0) -> bytes:
        length = len(data) or length
        head = struct.pack(">IHHQQI", 0x25609513, 0, kind, 7, block * BLOCK, length)
        self.sock.sendall(head + data)
        magic, error, handle = struct.unpack(">IIQ", self.file.read(16))
        assert (magic, handle) == (0x67446698, 7)
        if error:
            raise OSError(error, "the disk refuses")
        return self.file.read(length) if kind == READ else b""

    def write(self, block: int, letter: bytes) -> None:
        self.ask(WRITE, block, letter * BLOCK)

    def blocks(self, count: int) -> bytes:
        data = self.ask(READ, length=count * BLOCK)
        return b"".join(data[number * BLOCK : number * BLOCK + 1] for number in range(count))


@pytest.fixture
def disk() -> Iterator[LossyDisk]:
    with LossyDisk(b"-" * (16 * BLOCK)) as made:
        yield made


def test_flushed_is_kept(disk: LossyDisk) -> None:
    guest = Guest(disk)
    for block in range(8):
        guest.write(block, b"a")
    guest.ask(FLUSH)
    for seed in range(20):
        loss = disk.cut(random.Random(seed))
        assert (loss.unflushed, loss.lost) == (0, 0)
        assert Guest(disk).blocks(9) == b"aaaaaaaa-"


def test_unflushed_is_old_or_new() -> None:
    kept = set()
    for seed in range(40):
        with LossyDisk(b"-" * (16 * BLOCK)) as disk:
            guest = Guest(disk)
            guest.write(0, b"a")
            guest.ask(FLUSH)
            for letter in (b"b", b"c"):
                for block in range(4):
                    guest.write(block, letter)
            assert guest.blocks(5) == b"cccc-"
            loss = disk.cut(random.Random(seed))
            after = Guest(disk).blocks(5)
            assert set(after[:1]) <= set(b"ac")
            assert set(after[1:]) <= set(b"-c")
            assert loss.unflushed == 4
            assert loss.lost == 4 - after.count(b"c")
            # A second cut takes nothing more.
            assert disk.cut(random.Random(seed)).unflushed == 0
            kept.add(after)
    assert {b"a----", b"cccc-"} < kept


def test_disk_refuses_what_it_does_not_have(disk: LossyDisk) -> None:
    guest = Guest(disk)
    for block, length in ((16, BLOCK), (0, 100)):
        with pytest.raises(OSError, match="refuses"):
            guest.ask(READ, block, length=length)
    assert guest.blocks(1) == b"-"


def test_formatted_disk_has_a_file_system() -> None:
    with LossyDisk.formatted(8 << 20) as disk:
        guest = Guest(disk)
        superblock = guest.ask(READ, length=BLOCK)[1024:]
        assert struct.unpack_from("<H", superblock, 56) == (0xEF53,)
        assert str(disk.port) in disk.attach_command()
        compile(lossy_disk._ATTACH, "attach", "exec")


def _ledger(*steps: tuple[str, str, str]) -> Ledger:
    ledger = Ledger()
    for step, op, name in steps:
        told = {"step": step, "op": op, "name": name, "id": f"id of {name}", "agent": "pi"}
        ledger.take({**told, "code": "conflict", "error": "no"})
    return ledger


ADDED = (("asks", "add", "one"), ("done", "add", "one"))
REMOVED = (*ADDED, ("asks", "rm", "one"), ("done", "rm", "one"))


def test_acknowledged_must_hold() -> None:
    assert _ledger(*ADDED).compare({"one": "id of one"}) == []
    assert _ledger(*REMOVED).compare({}) == []
    assert "is lost" in _ledger(*ADDED).compare({})[0]
    assert "is back" in _ledger(*REMOVED).compare({"one": "id of one"})[0]
    assert "listed as another" in _ledger(*ADDED).compare({"one": "another"})[0]
    assert "never asked for" in _ledger().compare({"one": "id of one"})[0]


@pytest.mark.parametrize("found", [{}, {"one": "id of one"}])
@pytest.mark.parametrize(
    "steps", [(("asks", "add", "one"),), (*ADDED, ("asks", "rm", "one"))], ids=["add", "rm"]
)
def test_unanswered_may_be_either_and_then_holds(
    steps: tuple[tuple[str, str, str], ...], found: dict[str, str]
) -> None:
    ledger = _ledger(*steps)
    assert ledger.compare(found) == []
    assert ledger.compare(found) == []
    other = {} if found else {"one": "id of one"}
    assert len(ledger.compare(other)) == 1


def test_refused_is_told_and_no_answer() -> None:
    ledger = _ledger(("asks", "add", "one"), ("refused", "add", "one"))
    assert ledger.refused == ["add one: no"]
    assert ledger.answers == 0
    assert ledger.listed == {}


@pytest.mark.parametrize("found", [{}, {"one": "id of one"}])
def test_an_internal_error_leaves_it_open(found: dict[str, str]) -> None:
    ledger = _ledger(*ADDED, ("asks", "rm", "one"))
    error = {"code": "internal", "error": "tmux does not answer"}
    ledger.take({"step": "refused", "op": "rm", "name": "one", **error})
    assert ledger.refused == []
    assert ledger.compare(found) == []


def test_receipts_are_held_against_what_is_listed() -> None:
    ledger = _ledger(*ADDED)
    assert ledger.compare_receipts([]) == []
    assert ledger.missing == {"one"}
    receipt = ("pi", "[agent-box session x] kickoff of one")
    assert ledger.compare_receipts([receipt]) == []
    assert ledger.missing == set()
    assert ledger.proven["pi"] == {"one"}
    assert "2 times" in ledger.compare_receipts([receipt] * 2)[0]
    assert "not for it" in ledger.compare_receipts([("codex", receipt[1])])[0]
    # What was there once and is not any more is missing.
    assert ledger.missing == {"one"}
    assert "pi is said to have the prompt of one" in ledger.compare_receipts([], ["one", "main"])[0]
    assert ledger.compare_receipts([receipt], ["one"]) == []


def test_what_is_told_unasked_is_of_this_life() -> None:
    with Witness(Ledger()) as witness:

        def seen(count: int) -> bool:
            return _soon(lambda: len(witness.views) == count)

        with socket.create_connection(("127.0.0.1", witness.port)) as sock:
            one, two = ({"name": name, "state": "running"} for name in ("one", "two"))
            for message in (
                {"step": "watch"},
                {"ok": True, "result": {"sessions": [one]}},
                {"event": "session", "session": two},
            ):
                sock.sendall(json.dumps(message).encode() + b"\n")
            assert seen(2)
            sock.sendall(b'{"event": "removed", "name": "one"}\n')
            assert seen(1)
        assert seen(0)


def _soon(condition: Callable[[], bool]) -> bool:
    for _ in range(100):
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_witness_answers_after_it_has_taken_note() -> None:
    ledger = Ledger()
    with Witness(ledger) as witness:
        with socket.create_connection(("127.0.0.1", witness.port)) as sock:
            lines = sock.makefile("r")
            step = {"step": "asks", "op": "add", "name": "one", "agent": "pi"}
            sock.sendall(json.dumps(step).encode() + b"\n")
            assert lines.readline() == "\n"
            assert ledger.unanswered == {"one": "add"}
            assert witness.steps == 1
            # Half a line was never told.
            sock.sendall(b'{"step": "done", "op": "add", "name": "one", "id": "x"}')
        witness.settle()
        assert ledger.listed == {}
        assert not witness.wait(1, 0.01)
