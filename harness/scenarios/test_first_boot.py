"""The end of a launch from a template: the password that came with it, and word to who waits.

CloudFormation's side is played inside the guest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_box_harness import launch
from agent_box_harness.edge import PASSWORDS, Edge
from agent_box_harness.launch import FOLDER, UNIT

if TYPE_CHECKING:
    from agent_box_harness.box import Box


def test_launch(box: Box) -> None:
    """Until the box answers the launch hears nothing; then its address, however often that takes.
    The password opens the box; its file, which no user could read, is gone.
    """
    edge = Edge(box)
    box.wait_for_unit("caddy.service")
    assert box.machine.get_unit_property(UNIT, "ConditionResult") == "no"
    launch.leave(box, PASSWORDS["alice"])
    for user in box.users:
        assert box.as_user(user, f"cat {FOLDER}/password").rc != 0
        assert box.in_session(user, f"cat {FOLDER}/password").rc != 0
    box.succeed("systemctl stop caddy.service")
    box.succeed(f"systemctl start {UNIT}")
    launch.wait_for_word(box, "does not answer")
    assert launch.told(box) == []
    box.succeed("systemctl start caddy.service")
    launch.wait_for_end(box)
    attempts = launch.told(box)
    assert [each["Status"] for each in attempts] == ["SUCCESS", "SUCCESS"]
    assert attempts[0]["Data"] == "https://box.test/alice/"
    assert box.succeed(f"ls {FOLDER}") == ""
    assert edge.ask([edge.form("alice", PASSWORDS["alice"])])[0].status == 303
    assert PASSWORDS["alice"] not in box.succeed("journalctl -b -o cat")
    box.wait_for("it to end", lambda: box.machine.get_unit_property(UNIT, "SubState") == "dead")
    assert box.machine.get_unit_property(UNIT, "Result") == "success"


def test_refused_password(box: Box) -> None:
    """A password that is too easy to guess is not set, and the launch hears why at once."""
    edge = Edge(box)
    box.wait_for_unit("caddy.service")
    launch.leave(box, "password12345678")
    box.succeed(f"systemctl start {UNIT}")
    launch.wait_for_end(box)
    assert {each["Status"] for each in launch.told(box)} == {"FAILURE"}
    assert "the password of the launch is refused" in launch.told(box)[0]["Reason"]
    assert box.succeed(f"ls {FOLDER}") == ""
    assert edge.ask([edge.form("alice", "password12345678")])[0].status == 401
