"""A kickoff prompt that was held until somebody signed in, and then meets a conversation."""

from __future__ import annotations

import json

import pytest

PROMPT = 'prompt do the "thing"'


@pytest.fixture
def held(box):
    """A session whose user has talked with a signed-out agent; the kickoff prompt waits."""
    (box.registry.parent / "env").write_text("")
    view = box.call("add", name="one", prompt=PROMPT)["session"]
    box.ready(view["id"])
    box.say("one", "say hello")
    box.until(lambda: transcript(box))
    assert box.view("one")["promptPending"]
    return box


def transcript(box):
    return [
        json.loads(line)
        for path in box.home.glob(".claude/projects/x/*.jsonl")
        for line in path.read_text().splitlines()
    ]


def said(box):
    return [item.get("said") for item in transcript(box)].count(PROMPT)


def sign_in(box):
    (box.home / ".claude").mkdir(exist_ok=True)
    (box.home / ".claude/.credentials.json").write_text('{"claudeAiOauth": {"accessToken": "x"}}')


def test_it_is_pasted_once(held):
    sign_in(held)
    held.until(lambda: said(held) and not held.view("one")["promptPending"])
    held.kill_supervisor()
    held.start_supervisor()
    held.say("one", "say again")
    held.until(lambda: any(item.get("said") == "again" for item in transcript(held)))
    assert said(held) == 1


def test_a_supervisor_killed_before_the_paste(held):
    held.say("one", "work 6")
    sign_in(held)
    held.kill_supervisor()
    held.start_supervisor()
    held.until(lambda: said(held) and not held.view("one")["promptPending"], 30)
    assert said(held) == 1


def test_a_supervisor_killed_after_the_paste(held):
    # The agent reads the paste, and stores it, only when it is done with what it does.
    held.say("one", "later 9 say done")
    sign_in(held)
    held.until(lambda: PROMPT in held.call("logs", name="one")["text"])
    held.kill_supervisor()
    held.until(lambda: said(held) == 1)
    held.start_supervisor()
    held.until(lambda: not held.view("one")["promptPending"])
    held.say("one", "say at last")
    held.until(lambda: any(item.get("said") == "at last" for item in transcript(held)))
    assert said(held) == 1
