"""Another agent is one file: with it in the package, everything else knows it."""

from __future__ import annotations


def test_one_file_makes_an_agent(make_box):
    box = make_box()
    box.install_fifth_agent()
    box.start()
    view = box.call("add", agent="aider", prompt="fix the bug")["session"]
    assert (view["name"], view["agent"], view["state"]) == ("aider", "aider", "running")
    box.until(lambda: "told: --message fix the bug" in box.call("logs", name="aider")["text"])
    box.say("aider", "Add file to the chat? (Y)es/(N)o [Yes]: ")
    waits = box.wait("aider", "waiting")
    assert waits["reason"] == "aider asks a question: attach and answer"
