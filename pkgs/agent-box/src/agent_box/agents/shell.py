"""The login shell as an agent: nothing to install, no prompt, no memory."""

from __future__ import annotations

from agent_box.agents.base import Agent, Context, Launch


class Shell(Agent):
    """The user's login shell, started with the extra arguments of the entry."""

    name = "shell"

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Return the shell's argv; a prompt is never delivered to a shell."""
        return Launch(
            argv=[ctx.user.shell, *ctx.entry.extra_args],
            env={"AGENT_BOX_SESSION_ID": ctx.record.launch_id},
            delivers_prompt=False,
            resumes=False,
            launch_id=ctx.record.launch_id,
        )


AGENT = Shell()
