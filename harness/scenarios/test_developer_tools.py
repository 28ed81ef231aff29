"""The tools of developers work inside a session; what does not is listed, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import tools
from agent_box_harness.attack import attack_from_session
from agent_box_harness.internet import internet

if TYPE_CHECKING:
    from agent_box_harness.box import Box

NO_OPENAT2 = "Function not implemented"


@pytest.mark.renewed
@pytest.mark.limit(400)
def test_tools(box: Box):
    """Each tool of the table in docs/security.md works, or is blocked, as the table says."""
    with internet(box) as world:
        world.run("mkdir -p /run/sshd && $(command -v sshd || echo /usr/sbin/sshd)").check()
        wrong = [problem for user in box.users for problem in _wrong(box, user)]
    assert wrong == []


def _wrong(box: Box, user: str) -> list[str]:
    wrong = []
    table = {tool.name: tool for tool in tools.TOOLS if tool.user == user}
    scripts = {_slug(name): tool.script for name, tool in table.items()}
    outcomes = attack_from_session(box, user, scripts, {}, limit=60)
    for name, tool in table.items():
        outcome = outcomes[_slug(name)]
        # see the note of the table: the guest's bwrap is the kind that cannot do without
        if name == "bwrap" and NO_OPENAT2 in outcome.output and box.machine.kind != "nixos":
            continue
        if outcome.through != tool.works:
            wrong.append(f"{name} (rc {outcome.rc}): {outcome.output}")
    return wrong


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())
