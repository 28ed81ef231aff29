"""An agent without hooks: what it needs is told by its terminal, which nobody has to trust.

The agent is a fifth one that the box does not know: its adapter is laid over the package.
"""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed(touches=("alice",))

USER = "alice"
DOCUMENT = "/etc/agent-box/box.json"
PROGRAM = "/opt/agent-box-stub/aider"
LAYER = "/run/agent-box-fifth-agent"
ADAPTER = """\
from agent_box.agents.base import Agent, Context, Launch
from agent_box.agents.hook import ASKS, IDLE, WORKING
from agent_box.agents.terminal import Terminal
class Aider(Agent):
    name = "aider"
    terminal = Terminal(
        notices=[("finished", IDLE), ("", ASKS)],
        titles=[("action required", ASKS), ("working", WORKING)],
        bell=IDLE,
    )
    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        return Launch([ctx.box.agents[self.name].command], {}, delivers_prompt=False, resumes=False)
AGENT = Aider()
"""
AIDER = """\
#!/bin/sh
stty -echo
echo ready
while read -r line; do
  case $line in "run "*) eval "${line#run }" ;; *) printf "$line" ;; esac
done
"""
"""Runs, or puts out with its escapes interpreted, what it is told."""

PIECES = (
    r"""run for part in '\033' ']9;m' 'ay I go on?' '\033' '\\'; do """
    r"""printf "$part"; sleep 0.2; done"""
)

FIND = """\
for place in /usr/lib/python3/dist-packages \
  "$(dirname "$(readlink -f "$(command -v agent-box-session)")")"/../lib/python3*/site-packages
do [ -d "$place/agent_box/agents" ] && readlink -f "$place/agent_box/agents" && break
done
"""


@pytest.fixture
def aider(box: Box) -> Iterator[Box]:
    """Teach the box its fifth agent, add a session `work` of it, and make it forget all that."""
    place = box.succeed(FIND).strip()
    box.write_file(PROGRAM, AIDER.encode(), mode=0o755)
    box.succeed(f"mkdir -p {LAYER} && cp -r {place}/. {LAYER}/ && mount --bind {LAYER} {place}")
    before = box.read(DOCUMENT)
    document = json.loads(before)
    document["agents"]["aider"] = {"command": PROGRAM}
    try:
        box.write_file(f"{LAYER}/aider.py", ADAPTER.encode())
        _write(box, json.dumps(document))
        box.ctl(USER, "add work --agent aider").check()
        box.wait_for("the agent", lambda: "ready" in box.pane_text(USER, "work"))
        yield box
    finally:
        box.ctl(USER, "rm work")
        box.succeed(f"umount -l {place}; rm -rf {LAYER}")
        _write(box, before)


def test_what_it_needs(aider: Box) -> None:
    """Notifications in each form (OSC 9, 777, 99; wrapped for the terminal beyond tmux; cut into
    pieces), a title and the bell say that it waits and for what, and that it is done.
    """
    for sequence in (
        r"\033]9;may I go on?\007",
        r"\033]777;notify;;may I go on?\033\\",
        r"\033]99;i=1:d=0;may I\033\\\033]99;i=1:p=body;go on?\033\\",
        r"\033Ptmux;\033\033]9;may I go on?\007\033\\",
        PIECES,
    ):
        _say(aider, sequence)
        view = _until(aider, f"the question {sequence}", state="waiting")
        assert view["reason"] == "aider asks: may I go on?; attach and answer", sequence
        _say(aider, r"\033]9;aider has finished\007")
        _until(aider, "the end of the turn", state="running", idle=True)

    # The progress of a task is no notification.
    _say(aider, r"\033]9;4;1;50\007")
    time.sleep(1)
    assert aider.session(USER, "work")["state"] == "running"
    _say(aider, r"\033]2;action required\007")
    view = _until(aider, "the title", state="waiting")
    assert view["reason"] == "aider asks a question: attach and answer"
    _say(aider, r"\033]2;working\007")
    _until(aider, "the other title", state="running")

    _say(aider, r"\033]9;and now?\007")
    _until(aider, "the question before the bell", state="waiting")
    _say(aider, r"done\007")
    _until(aider, "the bell", state="running", idle=True)

    # Another supervisor listens again.
    aider.succeed(f"systemctl restart {outside.supervisor(USER)}")
    aider.wait_session(USER, "work", "running")
    _say(aider, r"\033]9;may I go on?\007")
    _until(aider, "the question to the successor", state="waiting")


def test_its_words_are_not_trusted(aider: Box, measured: Callable[[str, float], None]) -> None:
    """What a terminal is sent is shown on one bounded line, without controls, and executed by
    nobody; a flood of it neither stops the answers nor fills the memory.
    """
    words = r"$(touch /tmp/harm)`touch /tmp/harm`; touch /tmp/harm #{l:x} #(touch /tmp/harm)"
    _say(aider, rf"\033]9;\342\200\256a\rb\tc\302\233 {words}" + "x" * 500 + r"\007")
    view = _until(aider, "the question", state="waiting")
    shown = view["reason"].removeprefix("aider asks: ").removesuffix("; attach and answer")
    assert shown.startswith(f"a b c {words}"), shown
    assert shown.isprintable()
    assert len(shown) <= 160
    listing = aider.ctl(USER, "ls").check().out
    assert all(line.isprintable() for line in listing.splitlines()), listing
    _say(aider, rf"\033]2;action required {words}\007")
    _until(aider, "the title", reason="aider asks a question: attach and answer")
    assert aider.in_session(USER, "ls /tmp/harm").rc != 0
    assert aider.run("ls /tmp/harm").rc != 0

    supervisor = outside.main_pid(aider, outside.supervisor(USER))
    server = outside.main_pid(aider, outside.sandbox(USER))
    memory, used = _memory(aider, server), _processor(aider, supervisor)
    _say(
        aider,
        r"run yes $(printf '\033]9;flood\007\007\033]9;open') | head -c 20000000;"
        r" printf '\007\033]9;at its end\007'",
    )
    began = time.monotonic()
    _until(aider, "the last words", reason="aider asks: at its end; attach and answer")
    took = time.monotonic() - began
    measured("20 MB of notifications", took)
    measured("processor time for them", _processor(aider, supervisor) - used)
    assert _processor(aider, supervisor) - used < 2 + took / 2
    assert _memory(aider, server) - memory < 64 << 10


def _say(box: Box, line: str) -> None:
    box.ctl(USER, f"send work {shlex.quote(line)}").check("send")


def _until(box: Box, what: str, **wanted: Any) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        view = box.session(USER, "work")
        seen = {**view, "idle": view["idleSince"] is not None}
        return view if all(seen[key] == value for key, value in wanted.items()) else None

    found: dict[str, Any] = box.wait_for(f"{what}: {wanted}", look, 20)
    return found


def _write(box: Box, document: str) -> None:
    """Replace the description of the box, and have it read."""
    box.succeed(f"cat >/run/box.json && mv /run/box.json {DOCUMENT}", stdin=document)
    box.succeed(f"systemctl restart {outside.supervisor(USER)}")
    box.wait_for("the supervisor", lambda: box.ctl(USER, "status").rc == 0)


def _processor(box: Box, pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = box.succeed(f"cat /proc/{pid}/stat; getconf CLK_TCK").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / int(fields[-1])


def _memory(box: Box, pid: int) -> int:
    """Return the memory that a process has, in KiB."""
    return int(box.succeed(f"sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/{pid}/status"))
