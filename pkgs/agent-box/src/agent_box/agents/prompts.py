"""Which words an agent gets at its start, and in what form they fit into an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_box.agents.base import MAX_ARGUMENT, RESUME_STEER, state_directory

if TYPE_CHECKING:
    from agent_box.agents.base import Context


def choose(ctx: Context, prompt: str | None, *, resumes: bool) -> tuple[str | None, bool]:
    """Return what to tell the agent and whether that is the kickoff prompt.

    A start without a conversation is never told that it was resumed: it gets the kickoff prompt
    or nothing. An empty resume prompt means silence.
    """
    if prompt:
        return argument(ctx, prompt, "prompt"), True
    if not resumes:
        return None, False
    steer = ctx.entry.resume_prompt
    steer = RESUME_STEER if steer is None else steer
    return (argument(ctx, steer, "resume") if steer else None), False


def argument(ctx: Context, text: str, kind: str) -> str:
    """Return `text` in a form that the kernel takes as one argument.

    Longer than `MAX_ARGUMENT`, it goes to a file (0600) and the argument tells to read that file.
    Characters that no argument can hold (NUL, half surrogate pairs) are replaced. `kind` tells
    apart the files of one session.
    """
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    encoded = clean.encode("utf-8", "replace")
    if len(encoded) <= MAX_ARGUMENT:
        return encoded.decode("utf-8")
    from agent_box.agents.jsonfile import write_private

    suffix = "" if kind == "prompt" else f"-{kind}"
    path = state_directory(ctx.user) / "prompts" / f"{ctx.id}{suffix}.md"
    write_private(path, encoded.decode("utf-8"))
    return f"Your instructions are too long for one message. Read all of {path} and follow it."


def stamp(launch_id: str) -> str:
    """Return the mark in front of a first prompt by which a conversation is recognised."""
    return f"[agent-box session {launch_id}]"


def knobs(ctx: Context, settings: dict[str, str]) -> dict[str, str]:
    """Return the environment of a launch: our id, and `settings` unless the user set them."""
    env = {key: value for key, value in settings.items() if key not in ctx.env}
    env["AGENT_BOX_SESSION_ID"] = ctx.record.launch_id
    return env
