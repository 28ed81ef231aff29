"""What `scripts/try` says about the browser."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_box_harness import trial

STATUS = "agent: {}, 0 logins\nother: password set, 0 logins\n"


class Machine:
    def __init__(self, status):
        self.status = status
        self.asked = []

    def run(self, command):
        self.asked.append(command)
        if command.endswith("status"):
            return SimpleNamespace(rc=0, out=self.status)
        return SimpleNamespace(rc=0, out="set-up code of agent, good for one use: AAAA-BBBB\n")


@pytest.mark.parametrize("status", ["no password", "no password, set-up code waiting"])
def test_the_code_is_told_while_there_is_no_password(status):
    assert trial.first_code(Machine(STATUS.format(status))) == "AAAA-BBBB"


def test_no_code_is_made_once_there_is_a_password():
    machine = Machine(STATUS.format("password set"))
    assert trial.first_code(machine) == ""
    assert machine.asked == ["agent-box-gate status"]
