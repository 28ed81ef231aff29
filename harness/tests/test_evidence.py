"""The bundle that a failed scenario leaves."""

from __future__ import annotations

from agent_box_harness import evidence
from agent_box_harness.box import Box
from agent_box_harness.errors import MachineError

from .fakes import FakeMachine
from .test_box import DOCUMENT, answer

ANSWERS = {
    "/etc/agent-box/box.json": answer(DOCUMENT),
    "list-panes": answer("%1 main 12 0  claude\n%2 two 13 1 3 sh"),
    "capture-pane": answer("what was on the screen"),
    "ls --json": answer('{"sessions": []}'),
    "sessions.json": (0, '{"version": 1}'),
    "journalctl -b --no-pager": (0, "journal lines\n"),
    "systemctl --failed": (0, "0 loaded units\n"),
}


def test_everything_worth_knowing_is_there(tmp_path):
    machine = FakeMachine(tmp_path, ANSWERS)
    machine.execute("echo hello; exit 5")
    evidence.collect(Box(machine), tmp_path / "bundle")
    bundle = tmp_path / "bundle"
    assert "status 5  echo hello; exit 5\n    | hello" in (bundle / "commands.txt").read_text()
    assert (bundle / "journal.txt").read_text() == "journal lines\n"
    assert (bundle / "alice/registry.json").read_text() == '{"version": 1}'
    panes = (bundle / "alice/panes.txt").read_text()
    assert panes.count("what was on the screen") == 2
    assert "==== %2 two 13" in panes


def test_a_guest_that_is_down_still_leaves_what_the_host_knows(tmp_path):
    machine = FakeMachine(tmp_path)
    machine.power_cut()
    evidence.collect(Box(machine), tmp_path / "bundle")
    names = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert names == {"commands.txt", "machine.txt", "serial.log", "guest-is-down.txt"}


def test_a_guest_that_does_not_answer_does_not_raise(tmp_path):
    class Deaf(FakeMachine):
        def _execute(self, command, timeout, stdin):
            raise MachineError("no shell")

    evidence.collect(Box(Deaf(tmp_path)), tmp_path / "bundle")
    assert (tmp_path / "bundle/guest-is-deaf.txt").exists()
