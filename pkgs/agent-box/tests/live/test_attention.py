"""Who needs a person, who works and who is idle: told without anybody asking."""

from __future__ import annotations

import time

from .conftest import Listener

MARK = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
QUESTION = f"print Do you want to proceed?\\n{MARK} 1. Yes\\n  2. No\\n\\nEsc to cancel"


def test_a_question_long_after_the_start(box):
    added = time.time()
    box.call("add", name="one")
    started = time.monotonic()
    listener = Listener(box)
    idle = listener.until(lambda view: view["idleSince"] is not None)
    assert idle["state"] == "running"
    assert added - 1 <= idle["idleSince"] <= time.time()
    # The looks that follow a start are over until 45 s after it.
    time.sleep(max(0.0, 21 - (time.monotonic() - started)))
    # Nobody sends anything: the agent asks by itself.
    box.tmux_run("send-keys", "-t", "=one:", "-l", "later 1 " + QUESTION)
    box.tmux_run("send-keys", "-t", "=one:", "Enter")
    asks = listener.until(lambda view: view["state"] == "waiting")
    assert asks["reason"] == "permission question: attach and answer"
    assert asks["idleSince"] is None
    box.say("one", "print " + "\\n".join(["all right"] * 60))
    answered = listener.until(lambda view: view["state"] == "running")
    assert answered["reason"] is None


def hook(box, *words: str) -> str:
    """Return a command for the stub: what an agent runs when something happens to it."""
    program = box.program("hook", "agent_box.agents.hook")
    return f"run {program} {' '.join(words)}"


def test_the_word_of_an_agent_is_heard_at_once(box):
    box.call("add", name="one")
    listener = Listener(box)
    listener.until(lambda view: view["idleSince"] is not None)
    # Its screen shows nothing that is known, and it goes on putting out for a while.
    box.tmux_run("send-keys", "-t", "=one:", "-l", hook(box, "asks"))
    box.tmux_run("send-keys", "-t", "=one:", "Enter")
    asks = listener.until(lambda view: view["state"] == "waiting")
    assert asks["reason"] == "claude asks a question: attach and answer"
    box.say("one", "work 7")
    listener.until(lambda view: view["state"] == "running")
    said = time.time()
    box.say("one", hook(box, "idle"))
    idle = listener.until(lambda view: view["idleSince"] is not None)
    assert idle["lastCall"] == "worked"
    assert idle["idleSince"] >= said - 1
    # A turn that came to nothing leaves it idle as well, and nobody takes that for an answer.
    box.say("one", hook(box, "failed"))
    failed = listener.until(lambda view: view["lastCall"] == "failed")
    assert failed["state"] == "running"


def test_a_question_that_is_put_away_at_once(box):
    """claude tells that it asks; whoever presses Escape hears nothing more of it."""
    box.call("add", name="one")
    listener = Listener(box)
    listener.until(lambda view: view["idleSince"] is not None)
    box.say("one", hook(box, "asks"))
    box.tmux_run("send-keys", "-t", "=one:", "-l", QUESTION)
    box.tmux_run("send-keys", "-t", "=one:", "Enter")
    listener.until(lambda view: view["reason"] == "permission question: attach and answer")
    box.say("one", "print " + "\\n".join(["all right"] * 60))
    assert listener.until(lambda view: view["state"] == "running")["reason"] is None


def test_a_dead_login_is_not_called_running(box):
    """A credential is in its place, and the vendor refuses it: the two are told apart."""
    box.call("add", name="one")
    view = box.wait("one", "running")
    listener = Listener(box)
    rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 40
    box.say("one", f"print   -  API Error: 401 expired\\n\\n{rule}\\n> \\n{rule}\\n  help")
    refused = listener.until(lambda view: view["state"] == "waiting")
    assert refused["reason"].startswith("sign-in needed: claude's login was refused")
    assert (refused["credential"], refused["lastCall"]) == (True, "refused")
    box.say("one", f"print Done.\\n\\n{rule}\\n> \\n{rule}\\n  help")
    box.say("one", hook(box, "idle"))
    assert listener.until(lambda view: view["lastCall"] == "worked")["state"] == "running"
    # The same by the agent's own word, whatever its screen shows.
    box.say("one", hook(box, "refused"))
    refused = listener.until(lambda view: view["state"] == "waiting")
    assert refused["lastCall"] == "refused"
    box.say("one", hook(box, "working"))
    assert listener.until(lambda v: v["state"] == "running")["pid"] == view["pid"]


def test_work_is_not_idle(box):
    box.call("add", name="one")
    listener = Listener(box)
    listener.until(lambda view: view["idleSince"] is not None)
    box.say("one", "work 7")
    busy = listener.until(lambda view: view["idleSince"] is None)
    assert busy["state"] == "running"
    began = time.monotonic()
    # Whoever asks has the screen read, and what is known of its output may be a while old.
    while time.monotonic() - began < 4:
        assert box.call("ls")["sessions"][0]["idleSince"] is None
        time.sleep(0.05)
    listener.until(lambda view: view["idleSince"] is not None, 20)


def test_who_asks_too_early_does_not_keep_it_from_being_idle(box):
    box.call("add", name="one")
    listener = Listener(box)
    listener.until(lambda view: view["idleSince"] is not None)
    # The looks that follow a start would find it out as well.
    for _ in range(2):
        box.say("one", "print on it")
        time.sleep(1.2)
        for _ in range(8):
            assert box.view("one")["state"] == "running"
            time.sleep(0.2)
        listener.until(lambda view: view["idleSince"] is None, 1)
        listener.until(lambda view: view["idleSince"] is not None, 7)
