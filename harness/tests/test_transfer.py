"""Files come over a root shell in pieces."""

from __future__ import annotations

import os
import subprocess

import pytest

from agent_box_harness.errors import RequestFailedError
from agent_box_harness.transfer import ShellTransfer


class Local(ShellTransfer):
    """A machine that is this one."""

    def __init__(self):
        self.largest = 0

    def scaled(self, seconds):
        return seconds

    def _execute(self, command, timeout, stdin):
        command = "set -euo pipefail; " + command.replace("/run/agent-box", "/tmp/agent-box")
        done = subprocess.run(
            ["bash", "-c", command], input=stdin, capture_output=True, timeout=timeout, check=False
        )
        self.largest = max(self.largest, len(done.stdout))
        return done.returncode, done.stdout


def test_a_file_that_is_larger_than_a_console_takes(tmp_path):
    content = os.urandom(400_000)
    (tmp_path / "large").write_bytes(content)
    machine = Local()
    copy = machine.copy_from_machine(str(tmp_path / "large"), str(tmp_path / "here"))
    assert copy.read_bytes() == content
    assert machine.largest <= 96 * 1024


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RequestFailedError, match="cannot copy"):
        Local().copy_from_machine(str(tmp_path / "nothing"), str(tmp_path / "here"))


def test_a_file_that_is_lost_on_the_way(tmp_path):
    class Lossy(Local):
        def _execute(self, command, timeout, stdin):
            if command.startswith("tail"):
                return 0, b""
            return super()._execute(command, timeout, stdin)

    (tmp_path / "small").write_bytes(b"some")
    with pytest.raises(RequestFailedError, match="ended after 0 of"):
        Lossy().copy_from_machine(str(tmp_path / "small"), str(tmp_path / "here"))
