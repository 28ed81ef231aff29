"""Another agent is one file: with it in the package, everything else knows it."""

from __future__ import annotations

import json
import shutil

ADAPTER = '''
"""Aider: an argv, and nothing that outlives a run."""

from agent_box.agents.base import Agent, Context, Launch
from agent_box.agents.screen import has, tail


class Aider(Agent):
    """The adapter for `aider`."""

    name = "aider"

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Start it, with the first message if there is one."""
        argv = [ctx.box.agents[self.name].command, *ctx.entry.extra_args]
        argv += ["--message", prompt] if prompt else []
        return Launch(argv, {}, delivers_prompt=bool(prompt), resumes=False)

    def attention(self, ctx: Context, screen: str) -> str | None:
        """Recognise its yes-or-no questions."""
        asks = has(tail(screen, 2), "(Y)es/(N)o")
        return "aider asks a question: attach and answer" if asks else None


AGENT = Aider()
'''
PROGRAM = """\
#!/bin/sh
echo "aider was told: $*"
read line
echo "Add file to the chat? (Y)es/(N)o [Yes]: "
read line
"""


def test_one_file_makes_an_agent(make_box):
    box = make_box({})
    package = box.root / "package"
    shutil.copytree(box.package / "src", package / "src")
    (package / "src/agent_box/agents/aider.py").write_text(ADAPTER)
    program = box.root / "aider"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    document = json.loads(box.config_path.read_text())
    document["agents"]["aider"] = {"command": str(program)}
    box.config_path.write_text(json.dumps(document))
    box.use_package(package)
    box.start()
    view = box.call("add", agent="aider", prompt="fix the bug")["session"]
    assert (view["name"], view["agent"], view["state"]) == ("aider", "aider", "running")
    box.until(lambda: "told: --message fix the bug" in box.call("logs", name="aider")["text"])
    box.say("aider", "go on")
    waits = box.wait("aider", "waiting")
    assert waits["reason"] == "aider asks a question: attach and answer"
