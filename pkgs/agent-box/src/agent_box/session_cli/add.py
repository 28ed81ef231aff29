"""`add`: everything about a new session is checked before anything is stored."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agent_box import naming
from agent_box.errors import InternalError, UsageError
from agent_box.session_cli import PROGRAM, render
from agent_box.session_cli.context import read_text, text_argument

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from agent_box.session_cli.context import Context

_PATIENCE = 90.0  # seconds; the supervisor itself answers earlier, whatever the agent does


def run(context: Context, arguments: argparse.Namespace) -> int:
    """Add a session and, unless told otherwise, wait until it lives."""
    wanted = request(context, arguments)
    result = context.call("add", call_timeout=_PATIENCE, **wanted)
    view = result["session"]
    name, state = view["name"], view["state"]
    failed = state in ("failed", "crashed") and not arguments.no_wait
    if context.json:
        context.print_json(view)
    elif arguments.quiet:
        print(name)
    else:
        if failed:
            outcome = "added, but it does not run"
        elif context.offline or arguments.no_wait:
            outcome = "added"
        else:
            outcome = "started"
        print(f"{name}: {outcome} ({view['agent']} in {render.line(view['workingDirectory'])})")
    if failed:
        context.note(
            f"{name} {state}: {view.get('reason') or 'no reason known'};"
            f" see {PROGRAM} logs {name}, then: {PROGRAM} restart {name}"
        )
        return InternalError.exit_code
    if state == "waiting" and view.get("reason"):
        context.note(f"{name} waits: {view['reason']}; go there with: {PROGRAM} attach {name}")
    return 0


def request(context: Context, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the supervisor's `add`; what was not given is left to it."""
    wanted: dict[str, Any] = {"wait": not arguments.no_wait}
    if arguments.name:
        wanted["name"] = naming.check_new(arguments.name)
    if arguments.agent is not None:
        wanted["agent"] = naming.check_agent(arguments.agent, context.box.agents)
    if arguments.cwd is not None:
        wanted |= directory(arguments.cwd, context.user.home, make=arguments.mkdir)
    elif arguments.mkdir:
        raise UsageError("--mkdir makes the directory of --cwd; give that too")
    prompt = _prompt(arguments)
    if prompt:
        wanted["prompt"] = prompt
    if arguments.resume_prompt:
        wanted["resumePrompt"] = text_argument(arguments.resume_prompt, "the resume prompt")
    if (arguments.agent or context.box.default_agent) == naming.SHELL and (
        prompt or arguments.resume_prompt
    ):
        raise UsageError(
            "a shell takes no prompt; leave it out, or send it commands: "
            f"{PROGRAM} send NAME COMMAND"
        )
    if arguments.extra_args is not None:
        wanted["extraArgs"] = [text_argument(word, "an argument") for word in arguments.extra_args]
    if arguments.no_skip_permissions:
        wanted["skipPermissions"] = False
    if arguments.no_remote_control:
        wanted["remoteControl"] = False
    if arguments.remote_control_name is not None:
        wanted["remoteControlName"] = text_argument(arguments.remote_control_name, "the name")
    return wanted


def directory(given: str, home: Path, *, make: bool) -> dict[str, Any]:
    """Return the working directory as the absolute real path that agents know it by.

    Agents key their trust and their transcripts by that path, so links and `..` must be gone.
    """
    text = text_argument(given, "the directory")
    if not text:
        raise UsageError("the directory of --cwd is empty")
    if text == "~" or text.startswith("~/"):  # quoted, so that no shell expanded it
        text = f"{home}{text[1:]}"
    try:
        path = os.path.realpath(text)
        exists = os.path.isdir(path)  # noqa: PTH112 - a CLI that does without pathlib here
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot use {text!r} as a directory: {error}") from error
    if os.path.lexists(path) and not exists:
        raise UsageError(f"{path} is not a directory")
    if not exists and not make:
        raise UsageError(f"the directory {path} does not exist; add --mkdir to make it")
    if exists and not os.access(path, os.X_OK):
        raise UsageError(f"you may not enter {path}; choose a directory of yours")
    return {"workingDirectory": path, **({} if exists else {"mkdir": True})}


def _prompt(arguments: argparse.Namespace) -> str | None:
    if arguments.prompt is not None and arguments.prompt != "-":
        return text_argument(arguments.prompt, "the prompt")
    if arguments.prompt is None and arguments.prompt_file is None:
        return None
    source = (
        None if arguments.prompt == "-" or arguments.prompt_file == "-" else arguments.prompt_file
    )
    prompt = read_text(source, "the prompt")
    if not prompt.strip():
        raise UsageError(f"the prompt in {source or 'standard input'} is empty")
    return prompt
