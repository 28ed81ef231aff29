"""The plugins of opencode and pi, run by node: which events they make which words of."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import agent_box.agents

PLUGINS = Path(agent_box.agents.__file__).parent / "plugins"
TELL = """\
export { ending } from "./real.js";
export const tell = (word) => console.log(word);
"""
OPENCODE = """\
import { AgentBox } from "./opencode.js";
const { event } = await AgentBox();
for (const [type, properties] of JSON.parse(process.argv[2])) {
  console.log("after " + type);
  await event({ event: { type, properties } });
}
"""
PI = """\
import plugin from "./pi.js";
const handlers = {};
plugin({ on: (type, handler) => (handlers[type] = handler) });
for (const [type, event] of JSON.parse(process.argv[2])) {
  console.log("after " + type);
  handlers[type](event);
}
"""


@pytest.fixture
def told(tmp_path):
    """Return what a plugin tells at each of a list of events: one word or None."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for source in PLUGINS.glob("*.js"):
        shutil.copy(source, tmp_path)
    (tmp_path / "tell.js").rename(tmp_path / "real.js")
    (tmp_path / "tell.js").write_text(TELL)
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def tell(program, *events):
        (tmp_path / "main.js").write_text(program)
        run = subprocess.run(
            ["node", str(tmp_path / "main.js"), json.dumps(events)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        words = []
        for line in run.stdout.splitlines():
            if line.startswith("after "):
                words.append(None)
            else:
                assert words[-1] is None, "two words for one event"
                words[-1] = line
        return words

    return tell


def busy(session):
    return ["session.status", {"sessionID": session, "status": {"type": "busy"}}]


def idle(session):
    return ["session.idle", {"sessionID": session}]


def test_opencode_is_idle_when_its_last_conversation_is(told):
    """Sub-agents work in conversations of their own, and end before the whole does."""
    assert told(
        OPENCODE,
        busy("parent"),
        busy("child-1"),
        busy("child-2"),
        busy("child-1"),
        idle("child-1"),
        idle("child-1"),
        idle("child-2"),
        busy("parent"),
        idle("parent"),
        # Told twice, or by one that nobody knows: nothing new.
        idle("parent"),
        idle("stranger"),
        busy("parent"),
        idle("parent"),
    ) == ["working", *[None] * 7, "idle", None, None, "working", "idle"]


def test_opencode_is_idle_in_any_order_of_the_ends(told):
    assert told(
        OPENCODE, busy("parent"), busy("child"), idle("parent"), idle("child")
    ) == ["working", None, None, "idle"]  # fmt: skip


def test_opencode_tells_of_errors_and_questions(told):
    def error(**fields):
        return ["session.error", {"sessionID": "a", "error": fields}]

    assert told(
        OPENCODE,
        busy("a"),
        ["permission.asked", {}],
        ["permission.replied", {}],
        error(name="APIError", data={"statusCode": 401}),
        idle("a"),
        busy("a"),
        error(name="APIError", data={"statusCode": 500}),
        idle("a"),
        busy("a"),
        error(name="MessageAbortedError"),
        idle("a"),
        busy("a"),
        error(name="ProviderAuthError"),
        idle("a"),
        busy("a"),
        idle("a"),
        ["file.edited", {}],
        ["session.idle"],
    ) == [
        *("working", "asks", "working", None, "refused"),
        *("working", None, "failed"),
        # Whoever interrupts it knows that.
        *("working", None, "idle"),
        *("working", None, "refused"),
        *("working", "idle", None, None),
    ]


def test_pi(told):
    def end(reason, message=None):
        return ["message_end", {"message": {"stopReason": reason, "errorMessage": message}}]

    assert told(
        PI,
        ["agent_start", {}],
        ["ui_prompt_start", {}],
        ["ui_prompt_end", {}],
        end("stop"),
        ["agent_settled", {}],
        ["agent_start", {}],
        end("error", "403 {}"),
        ["agent_settled", {}],
        ["agent_start", {}],
        end("error", "overloaded"),
        ["message_end", {}],
        ["agent_settled", {}],
    ) == [
        *("working", "asks", "working", None, "idle"),
        *("working", None, "refused"),
        *("working", None, None, "idle"),
    ]
