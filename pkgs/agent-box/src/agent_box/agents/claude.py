"""Claude Code: argv, first-run state, transcripts, sign-in.

Observed with 2.1.332 and 2.1.197. A transcript `projects/<directory>/<id>.jsonl` appears with
the first message that is submitted, also with one that goes nowhere for want of a sign-in.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box.agents.base import Agent, Context, Launch, state_directory, valid_uuid
from agent_box.agents.jsonfile import Member, Setting, Unfit, merge_json, read_json
from agent_box.agents.prompts import choose, knobs
from agent_box.agents.screen import has, tail

if TYPE_CHECKING:
    from collections.abc import Sequence

_CREDENTIALS = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PROVIDERS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_KEY = "ANTHROPIC_API_KEY"
# Claude remembers its verdict on an API key by the end of the key only.
_KEY_TAIL = 20
_APPROVED = ("customApiKeyResponses", "approved")
_REJECTED = ("customApiKeyResponses", "rejected")
_ROTATIONS = 64
_BARE_WORD = re.compile(r"[A-Za-z][A-Za-z-]*\Z")
_SELECTED = re.compile("\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} +\\d+\\. ")


class Claude(Agent):
    """The adapter for `claude`."""

    name = "claude"

    def prepare(self, ctx: Context) -> None:
        """Accept what would otherwise stop a session that nobody watches."""
        here = ctx.entry.working_directory
        state: list[Setting] = [
            (("hasCompletedOnboarding",), True),
            (("projects", here, "hasCompletedProjectOnboarding"), True),
        ]
        for directory in (here, *_added_directories(ctx.entry.extra_args, here)):
            state.append((("projects", directory, "hasTrustDialogAccepted"), True))
        settings: list[Setting] = []
        if ctx.entry.skip_permissions:
            settings.append((("skipDangerousModePermissionPrompt",), True))
        key = ctx.env.get(_KEY, "")[-_KEY_TAIL:]
        # The user put the key into the env file to have it used; the dialog that asks again has
        # "No" preselected. An explicit earlier "No" stands.
        members: list[Member] = [(key, _APPROVED, _REJECTED)] if key else []
        try:
            merge_json(_state_file(ctx), state, members=members)
            merge_json(_config_directory(ctx) / "settings.json", settings, [(("theme",), "dark")])
        except (OSError, Unfit):
            # The session starts anyway and shows its dialog; `attention` reports that.
            return

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Build claude's argv, resuming the conversation that this session was last in."""
        entry = ctx.entry
        conversation = self.conversation(ctx)
        argv = [ctx.box.agents[self.name].command]
        if entry.skip_permissions:
            argv.append("--dangerously-skip-permissions")
        if entry.remote_control:
            argv += ["--remote-control", remote_control_name(ctx)]
        argv += ["--settings", json.dumps(_HOOKS, separators=(",", ":"))]
        env = knobs(ctx, {"DISABLE_AUTOUPDATER": "1"})
        if conversation is not None:
            argv += ["--resume", conversation]
            env["AGENT_BOX_SESSION_ID"] = conversation
        else:
            argv += ["--session-id", ctx.record.launch_id]
        argv += entry.extra_args
        text, delivers = choose(ctx, prompt, resumes=conversation is not None)
        if text:
            # A lone word is looked up among claude's sub-commands even behind "--": the prompt
            # "doctor" would run `claude doctor`. The blank is trimmed from the message later.
            argv += ["--", text + " " if _BARE_WORD.match(text) else text]
        return Launch(
            argv,
            env,
            delivers_prompt=delivers,
            resumes=conversation is not None,
            launch_id=env["AGENT_BOX_SESSION_ID"],
        )

    def conversation(self, ctx: Context) -> str | None:
        """Return the newest id in this session's chain of conversations that has a transcript."""
        projects = _config_directory(ctx) / "projects"
        live = state_directory(ctx.user) / "live"
        current, found = ctx.record.launch_id, None
        seen: set[str] = set()
        while valid_uuid(current) and current not in seen and len(seen) < _ROTATIONS:
            seen.add(current)
            if _has_transcript(projects, ctx.entry.working_directory, current):
                found = current
            current = _read_short(live / current)
        if found is None and valid_uuid(ctx.record.conversation):
            recorded = str(ctx.record.conversation)
            if _has_transcript(projects, ctx.entry.working_directory, recorded):
                found = recorded
        return found

    def signed_in(self, ctx: Context) -> bool | None:
        """Look for credentials where claude does: environment, settings, its own store."""
        config = _config_directory(ctx)
        settings = read_json(config / "settings.json") or {}
        inner = settings.get("env")
        env = {**(inner if isinstance(inner, dict) else {}), **ctx.env}
        if any(env.get(key) for key in _CREDENTIALS) or settings.get("apiKeyHelper"):
            return True
        if any(str(env.get(key, "")).lower() in {"1", "true", "yes", "on"} for key in _PROVIDERS):
            return True
        stored = read_json(config / ".credentials.json") or {}
        if any(stored.values()):
            return True
        state = read_json(_state_file(ctx)) or {}
        if state.get("primaryApiKey"):
            return True
        answers = state.get("customApiKeyResponses")
        rejected = answers.get("rejected") if isinstance(answers, dict) else None
        key = str(env.get(_KEY) or "")
        return bool(key) and key[-_KEY_TAIL:] not in (rejected or [])

    def holds_prompt(self, ctx: Context) -> str | None:
        """Hold the prompt while signed out: claude would record it and answer nothing."""
        return None if self.signed_in(ctx) else "claude is not signed in yet"

    def attention(self, ctx: Context, screen: str) -> str | None:
        """Recognise sign-in, the dialogs of a first run, and questions of a running turn."""
        bottom = tail(screen, 16)
        foot = bottom[-3:]
        if has(bottom, "Select login method", "Paste code here if prompted"):
            return "sign-in needed: attach and finish the login"
        if has(foot, "Not logged in") or has(bottom[-10:], "Please run /login"):
            return "sign-in needed: attach and run /login"
        if has(foot, "Enter to confirm"):
            if has(bottom, "trust this folder", "Do you trust the files", "Adding a new directory"):
                return "folder trust question: attach and answer"
            if has(bottom, "Detected a custom API key"):
                return "API key question: attach and choose whether to use the key"
            if has(bottom, "Bypass Permissions mode"):
                return "permission mode warning: attach and accept it"
            return "a dialog is open: attach and answer"
        if not any(_SELECTED.match(line) for line in bottom):
            return None
        if has(foot, "Esc to cancel", "Enter to select"):
            if has(bottom, "Do you want to", "Would you like to"):
                return "permission question: attach and answer"
            return "claude asks a question: attach and answer"
        return None


_HOOKS = {
    "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "agent-box-hook"}]}]}
}


def remote_control_name(ctx: Context) -> str:
    """Return the session's name in the vendor's apps: `<user>-<session>@<host>` by default."""
    name = re.sub(r"[\r\n\0]+", " ", ctx.entry.remote_control_name or "").strip().lstrip("-")
    if name:
        return name
    host = ctx.box.host_label or os.uname().nodename
    return f"{ctx.user.name}-{ctx.name}" + (f"@{host}" if host else "")


def _added_directories(arguments: Sequence[str], base: str) -> list[str]:
    """Return the directories that the arguments open to claude, each with a dialog of its own."""
    found: list[str] = []
    listing = False
    for argument in arguments:
        if argument.startswith("--add-dir="):
            found.append(argument.partition("=")[2])
        elif argument.startswith("-"):
            listing = argument == "--add-dir"
        elif listing:
            found.append(argument)
    return [os.path.realpath(Path(base, directory)) for directory in found]


def _config_directory(ctx: Context) -> Path:
    configured = ctx.env.get("CLAUDE_CONFIG_DIR")
    return Path(configured) if configured else ctx.user.home / ".claude"


def _state_file(ctx: Context) -> Path:
    configured = ctx.env.get("CLAUDE_CONFIG_DIR")
    return (Path(configured) if configured else ctx.user.home) / ".claude.json"


def _has_transcript(projects: Path, directory: str, conversation: str) -> bool:
    """Return whether `<conversation>.jsonl` lies in any project (claude may have changed cwd)."""
    file = conversation + ".jsonl"
    # Where it nearly always is, before looking through every project.
    if (projects / re.sub(r"[^A-Za-z0-9]", "-", directory) / file).is_file():
        return True
    try:
        with os.scandir(projects) as entries:
            return any(Path(entry.path, file).is_file() for entry in entries)
    except OSError:
        return False


def _read_short(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


AGENT = Claude()
