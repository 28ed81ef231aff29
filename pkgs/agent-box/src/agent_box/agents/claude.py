"""Claude Code: argv, first-run state, transcripts, sign-in.

Observed with 2.1.332 and 2.1.197. A transcript `projects/<directory>/<id>.jsonl` appears with
the first message that is submitted, also with one that goes nowhere for want of a sign-in.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box import guides
from agent_box.agents.base import Agent, Context, Launch, state_directory, valid_uuid
from agent_box.agents.jsonfile import (
    Member,
    Setting,
    Unfit,
    holds_something,
    merge_json,
    messages,
    read_json,
)
from agent_box.agents.prompts import choose, knobs
from agent_box.agents.screen import has, last_words, tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CREDENTIALS = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PROVIDERS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_KEY = "ANTHROPIC_API_KEY"
# Claude remembers its verdict on an API key by the end of the key only.
_KEY_TAIL = 20
_APPROVED = ("customApiKeyResponses", "approved")
_REJECTED = ("customApiKeyResponses", "rejected")
_ROTATIONS = 64
# Lines of a transcript that are read in search of words: they stand near the beginning.
_SCAN_LINES = 400
_COMMANDS = ("<local-command-", "<command-name>", "<command-message>")
_MARKETPLACE, _PLUGIN = "local-channels", "local-webhook"
_BARE_WORD = re.compile(r"[A-Za-z][A-Za-z-]*\Z")
_RULE = re.compile("\N{BOX DRAWINGS LIGHT HORIZONTAL}{10}")
# Behind the sign in front of a result, or of the line about the next attempt.
_REFUSED = re.compile(
    r"[^\w\s]\s+(API Error: 401|401\s|API Error: 403\b.*(auth|token)|Invalid API key|Your OAuth)"
)
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
        state += [
            (("projects", directory, "hasTrustDialogAccepted"), True)
            for directory in (here, *_added_directories(ctx.entry.extra_args, here))
        ]
        settings: list[Setting] = []
        if ctx.entry.skip_permissions:
            settings.append((("skipDangerousModePermissionPrompt",), True))
        if (plugin := _plugin(ctx)) is not None:
            source = {"source": {"source": "directory", "path": plugin}}
            settings += [
                (("extraKnownMarketplaces", _MARKETPLACE), source),
                (("enabledPlugins", f"{_PLUGIN}@{_MARKETPLACE}"), True),
            ]
            # Of what it remembers from its account only half survives a restart: without this
            # it would drop what the plugin tells.
            with contextlib.suppress(OSError):
                (_config_directory(ctx) / "remote-settings.json").unlink(missing_ok=True)
        key = ctx.env.get(_KEY, "")[-_KEY_TAIL:]
        # The user put the key into the env file to have it used; the dialog that asks again has
        # "No" preselected. An explicit earlier "No" stands.
        members: list[Member] = [(key, _APPROVED, _REJECTED)] if key else []
        # Where a file cannot be edited the session starts anyway and shows its dialog, which
        # `attention` reports; the other file is no worse for it.
        with contextlib.suppress(OSError, Unfit):
            merge_json(_state_file(ctx), state, members=members)
        with contextlib.suppress(OSError, Unfit):
            merge_json(_config_directory(ctx) / "settings.json", settings, [(("theme",), "dark")])
        guides.link(_config_directory(ctx) / "CLAUDE.md", ctx.user.name)
        # What a power cut has left of a conversation that had just begun: without a message claude
        # neither resumes it nor begins it.
        place = _config_directory(ctx) / "projects", ctx.entry.working_directory
        transcript = _usual(*place, ctx.record.launch_id)
        with contextlib.suppress(OSError):
            if next(_messages(transcript, None), None) is None:
                transcript.unlink()

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Build claude's argv, resuming the conversation that this session was last in."""
        entry = ctx.entry
        conversation, transcripts = _chain(ctx)
        # A transcript that holds commands only (/login, /clear) takes the id but leaves nothing
        # to continue.
        resumes = conversation is not None and _spoken(transcripts[-1])
        argv = [ctx.box.agents[self.name].command]
        if entry.skip_permissions:
            argv.append("--dangerously-skip-permissions")
        if entry.remote_control:
            argv += ["--remote-control", remote_control_name(ctx)]
        if _plugin(ctx) is not None:
            # Without it the plugin's tools work, and what it tells is dropped. It takes several
            # values, so another option has to follow.
            argv += ["--channels", f"plugin:{_PLUGIN}@{_MARKETPLACE}"]
        argv += ["--settings", json.dumps(_HOOKS, separators=(",", ":"))]
        env = knobs(ctx, {"DISABLE_AUTOUPDATER": "1"})
        if conversation is not None:
            argv += ["--resume", conversation]
            env["AGENT_BOX_SESSION_ID"] = conversation
        else:
            argv += ["--session-id", ctx.record.launch_id]
        argv += entry.extra_args
        text, delivers = choose(ctx, prompt, resumes=resumes)
        if text:
            # A lone word is looked up among claude's sub-commands even behind "--": the prompt
            # "doctor" would run `claude doctor`. The blank is trimmed from the message later.
            argv += ["--", text + " " if _BARE_WORD.match(text) else text]
        return Launch(
            argv,
            env,
            delivers_prompt=delivers,
            resumes=resumes,
            launch_id=env["AGENT_BOX_SESSION_ID"],
        )

    def conversation(self, ctx: Context) -> str | None:
        """Return the newest id of this session's conversations, once one of them has words."""
        newest, transcripts = _chain(ctx)
        return newest if any(_spoken(path) for path in reversed(transcripts)) else None

    def transcript(self, ctx: Context) -> Path | None:
        """Return the transcript of the newest conversation."""
        return next(iter(reversed(_chain(ctx)[1])), None)

    def stored(self, ctx: Context) -> list[Path]:
        """Return the transcripts from the oldest to the newest."""
        return _chain(ctx)[1]

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
        if has(foot, "Not logged in"):
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

    def refusal(self, ctx: Context, screen: str) -> str | None:
        """Recognise what stands below a turn that came to nothing for want of a login."""
        words = last_words(screen, _RULE, 2, ("\N{TEARDROP-SPOKED ASTERISK}",))
        if any(_REFUSED.match(line) for line in words) or has(words, "Please run /login"):
            return "sign-in needed: claude's login was refused; attach and run /login"
        return None


# Transcripts only ever grow, so one with words keeps them.
_known_spoken: set[Path] = set()

_EVENTS = (
    *("SessionStart", "UserPromptSubmit", "PermissionRequest", "Notification"),
    *("Stop", "StopFailure"),
)
_HOOK = [{"hooks": [{"type": "command", "command": "agent-box-hook", "timeout": 10}]}]
_HOOKS = {"hooks": dict.fromkeys(_EVENTS, _HOOK)}


def _plugin(ctx: Context) -> str | None:
    """Return where the plugin for webhooks is, if it is on this box."""
    directory = ctx.box.plugin_of(ctx.user.name)
    return directory if directory and Path(directory).is_dir() else None


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


def _chain(ctx: Context) -> tuple[str | None, list[Path]]:
    """Follow the session from conversation to conversation.

    Returns the newest id with a transcript, and the transcripts from the oldest to the newest.
    """
    projects = _config_directory(ctx) / "projects"
    live = state_directory(ctx.user) / "live"
    newest: str | None = None
    transcripts: list[Path] = []
    seen: set[str] = set()
    for start in (ctx.record.launch_id, ctx.record.conversation or ""):
        current = start
        while valid_uuid(current) and current not in seen and len(seen) < _ROTATIONS:
            seen.add(current)
            path = _transcript(projects, ctx.entry.working_directory, current)
            if path is not None:
                newest = current
                transcripts.append(path)
            current = _read_short(live / current)
        if newest is not None:
            break
    return newest, transcripts


def _transcript(projects: Path, directory: str, conversation: str) -> Path | None:
    """Return `<conversation>.jsonl` from whatever project (claude may have changed its cwd)."""
    # Where it nearly always is, before looking through every project.
    usual = _usual(projects, directory, conversation)
    if holds_something(usual):
        return usual
    try:
        with os.scandir(projects) as entries:
            paths = (Path(entry.path, usual.name) for entry in entries)
            return next(filter(holds_something, paths), None)
    except OSError:
        return None


def _usual(projects: Path, directory: str, conversation: str) -> Path:
    return projects / re.sub(r"[^A-Za-z0-9]", "-", directory) / f"{conversation}.jsonl"


def _spoken(transcript: Path) -> bool:
    """Return whether a transcript holds words, not only commands that claude ran by itself."""
    if transcript in _known_spoken:
        return True
    with contextlib.suppress(OSError):
        if not all(map(_is_command, _messages(transcript, _SCAN_LINES))):
            _known_spoken.add(transcript)
            return True
    return False


def _messages(transcript: Path, lines: int | None) -> Iterator[dict[str, Any]]:
    """Yield the messages in a transcript, or in that many lines of it.

    What stands in front of the first is none, and may be all that a power cut has left.
    """
    return messages(transcript, ("assistant", "user"), lines)


def _is_command(record: dict[str, Any]) -> bool:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return record["type"] == "user" and isinstance(content, str) and content.startswith(_COMMANDS)


def _read_short(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


AGENT = Claude()
