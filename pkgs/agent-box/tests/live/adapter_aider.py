"""Aider: an argv, words on its terminal, and nothing that outlives a run."""

from __future__ import annotations

from agent_box.agents.base import Agent, Context, Launch
from agent_box.agents.hook import ASKS, IDLE, WORKING
from agent_box.agents.screen import has, tail
from agent_box.agents.terminal import Terminal


class Aider(Agent):
    """The adapter for `aider`."""

    name = "aider"
    terminal = Terminal(
        notices=[("finished|waiting for your input", IDLE), ("", ASKS)],
        titles=[("action required", ASKS), ("ready", IDLE), ("working", WORKING)],
        bell=IDLE,
    )

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
