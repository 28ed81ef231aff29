"""Codex as a terminal program: argv, folder trust, rollouts, sign-in.

Observed with 0.171.0 and 0.142.3. A conversation ("rollout") is a file
`sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, written with the first submitted message. Its
first line describes it; what the user typed stands in event records, apart from what codex adds
in the user's name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box import guides
from agent_box.agents.base import Agent, Context, Launch, valid_uuid
from agent_box.agents.hook import ASKS, WORKING
from agent_box.agents.jsonfile import Unfit, append_toml_table, read_json
from agent_box.agents.prompts import choose, knobs, stamp
from agent_box.agents.screen import has, last_words, tail
from agent_box.agents.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYPASS = ["--dangerously-bypass-approvals-and-sandbox"]
_RESTRICTED = ["-c", "approval_policy=on-request", "-c", "sandbox_mode=workspace-write"]
# Left alone, codex 0.171 copies itself into the home, starts a server shared by all sessions of
# the user (and an updater) as a child of whichever session came first, and dies with that session.
# As settings rather than as the flag for it: releases that know neither ignore a setting.
_OWN_PROCESS = ["-c", "features.daemon_auto_start=false", "-c", "check_for_update_on_startup=false"]
# Codex runs it at the end of each turn, with a JSON document as one more argument.
_NOTIFY = ["-c", 'notify=["agent-box-hook","codex"]']
_INPUT = re.compile("\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}")
_STATE = re.compile(r"^codex remote control: ([a-z-]+)$", re.MULTILINE)
_REMOTE_ASKS = {
    "signin": "sign-in needed: open the page that it shows and enter the code",
    "signed-out": "sign-in needed: attach and press Enter",
    "refused": "sign-in refused: attach, type login and press Enter",
    "down": "the codex app-server does not answer: attach and read why",
}
# Rollouts looked at, newest first, and how far into one.
_SCAN_FILES = 300
_SCAN_LINES = 200
_SCAN_LINE_BYTES = 4 << 20
# Clocks and file times are not exact to the millisecond.
_SLACK_SECONDS = 2.0


class Codex(Agent):
    """The adapter for `codex`."""

    name = "codex"
    # Its `notify` tells only that a turn has ended. While it works its title begins with a spinner.
    terminal = Terminal(
        titles=[
            (r"^\[ . \] Action Required", ASKS),
            ("^[\N{BRAILLE PATTERN DOTS-1}-\N{BRAILLE PATTERN DOTS-12345678}] ", WORKING),
        ]
    )

    def prepare(self, ctx: Context) -> None:
        """Trust the working directory, as its user did by naming it."""
        guides.link(_home(ctx) / "AGENTS.md", ctx.user.name)
        table = ("projects", ctx.entry.working_directory)
        try:
            append_toml_table(_home(ctx) / "config.toml", table, {"trust_level": "trusted"})
        except (OSError, Unfit):
            return  # the session shows the question, and `attention` reports it

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Build codex's argv; a first prompt carries the stamp that identifies the rollout."""
        config = ctx.box.agents[self.name]
        if _remote(ctx):
            return Launch(
                [str(config.remote_control)],
                knobs(ctx, {}),
                delivers_prompt=False,
                resumes=False,
                launch_id=ctx.record.launch_id,
            )
        conversation = self.conversation(ctx)
        if ctx.entry.skip_permissions:
            autonomy = _BYPASS
        else:
            # The box-wide configuration may have lifted the limits; this session wants them.
            autonomy = _RESTRICTED if config.full_access else []
        text, delivers = choose(ctx, prompt, resumes=conversation is not None)
        argv = [config.command, *(["resume"] if conversation else []), *autonomy, *_OWN_PROCESS]
        if "notify" not in _read_config(_home(ctx) / "config.toml", b"notify"):
            argv += _NOTIFY
        argv += ctx.entry.extra_args
        if conversation:
            argv += ["--", conversation, *([text] if text else [])]
        elif text:
            argv += ["--", f"{stamp(ctx.record.launch_id)} {text}"]
        return Launch(
            argv,
            knobs(ctx, {}),
            delivers_prompt=delivers,
            resumes=conversation is not None,
            launch_id=ctx.record.launch_id,
        )

    def conversation(self, ctx: Context) -> str | None:
        """Return the rollout of this session: recorded, else stamped, else the only candidate."""
        if _remote(ctx):
            return None
        recorded = ctx.record.conversation
        mine = stamp(ctx.record.launch_id)
        plain: list[str] = []
        for count, path in enumerate(_newest_first(_home(ctx) / "sessions")):
            identity = path.stem[-36:]
            if not valid_uuid(identity):
                continue
            if identity == recorded:
                return identity
            if count >= _SCAN_FILES:
                # Too old to be searched, yet a recorded id must be found at any age.
                if recorded is None:
                    break
                continue
            opening = _opening(path)
            if opening is None or opening.directory != ctx.entry.working_directory:
                continue
            if opening.words.startswith(mine):
                return identity
            after = ctx.record.started_at - _SLACK_SECONDS
            ours = ctx.record.launched and opening.created >= after
            if ours and not opening.words.startswith("[agent-box session "):
                plain.append(identity)
        # Without a stamp it may be a sibling's. With the kickoff prompt it has one.
        return plain[0] if len(plain) == 1 and not ctx.entry.initial_prompt else None

    def transcript(self, ctx: Context) -> Path | None:
        """Return the rollout of this session."""
        conversation = self.conversation(ctx) or ctx.record.conversation
        rollouts = _newest_first(_home(ctx) / "sessions")
        return next((path for path in rollouts if path.stem[-36:] == conversation), None)

    def signed_in(self, ctx: Context) -> bool | None:
        """Look for stored credentials, or for a model provider that needs none of OpenAI's."""
        stored = read_json(_home(ctx) / "auth.json") or {}
        if any(stored.get(key) for key in ("OPENAI_API_KEY", "tokens", "agent_identity")):
            return True
        config = _read_config(_home(ctx) / "config.toml", b"model_provider")
        if config.get("model_provider", "openai") != "openai":
            return True
        arguments = " ".join(ctx.entry.extra_args)
        return "--oss" in ctx.entry.extra_args or "model_provider=" in arguments

    def holds_prompt(self, ctx: Context) -> str | None:
        """Hold the prompt while signed out: codex shows its welcome instead of a conversation."""
        return None if self.signed_in(ctx) else "codex is not signed in yet"

    def takes_no_input(self, ctx: Context) -> str | None:
        """With remote control the pane is no prompt: the app-server takes tasks from the apps."""
        return "it is driven from the codex apps" if _remote(ctx) else None

    def attention(self, ctx: Context, screen: str) -> str | None:
        """Recognise sign-in, folder trust and approvals."""
        if _remote(ctx):
            state = _STATE.search(screen)
            return _REMOTE_ASKS.get(state.group(1)) if state else None
        bottom = tail(screen, 16)
        foot = bottom[-2:]
        if has(bottom, "Sign in with ChatGPT", "Sign in with Device Code"):
            return "sign-in needed: attach and choose how to sign in"
        if has(bottom, "Finish signing in", "Enter this one-time code"):
            return "sign-in needed: attach and finish the login"
        if has(bottom, "Trust this folder?", "Do you trust the contents of this directory"):
            return "folder trust question: attach and answer"
        if has(foot, "Press enter to confirm or esc to cancel"):
            if has(bottom, "Would you like to", "Do you want to", "needs your approval"):
                return "permission question: attach and answer"
            return "codex asks a question: attach and answer"
        if has(foot, "Press enter to continue"):
            return "a dialog is open: attach and answer"
        return None

    def refusal(self, ctx: Context, screen: str) -> str | None:
        """Recognise the error below a turn that came to nothing for want of a login."""
        if _remote(ctx):
            return None  # its own states tell
        words = last_words(screen, _INPUT)
        refused = has(words, "401 Unauthorized", "log out and sign in again", "sign in again.")
        if words[:1] and words[0].startswith("\N{BLACK SQUARE}") and refused:
            return "sign-in needed: codex's login was refused; attach and run /logout, then sign in"
        return None


def _remote(ctx: Context) -> bool:
    """Return whether this session is the pane of the app-server rather than codex's own screen.

    The app-server takes no prompt. A session that has one to deliver, or a conversation to go on
    with, gets codex itself.
    """
    config = ctx.box.agents.get("codex")
    if config is None or not config.remote_control or not ctx.entry.remote_control:
        return False
    return not ctx.entry.initial_prompt and not ctx.record.conversation


class _Opening:
    """How a rollout began: where, when, and with which words of the user ("" while none)."""

    __slots__ = ("created", "directory", "words")

    def __init__(self, directory: str, created: float, words: str) -> None:
        self.directory = directory
        self.created = created
        self.words = words


# Openings never change once the user spoke; they cost a few hundred bytes each.
_openings: dict[Path, _Opening] = {}


def _opening(path: Path) -> _Opening | None:
    known = _openings.get(path)
    if known is not None:
        return known
    opening = _read_opening(path)
    if opening is not None:
        while len(_openings) >= 2 * _SCAN_FILES:
            del _openings[next(iter(_openings))]
        _openings[path] = opening
    return opening


def _read_opening(path: Path) -> _Opening | None:
    """Return how the rollout began, or None for one of another kind or without user words."""
    try:
        with path.open("rb") as file:
            meta = _payload(file.readline(_SCAN_LINE_BYTES), "session_meta")
            directory = meta.get("cwd")
            # Sub-agents and `codex exec` write rollouts as well; those are not this terminal.
            if meta.get("id") != path.stem[-36:] or meta.get("source", "cli") != "cli":
                return None
            if not isinstance(directory, str):
                return None
            for _ in range(_SCAN_LINES):
                line = file.readline(_SCAN_LINE_BYTES)
                if not line:
                    return None
                words = _user_words(_payload(line, "event_msg"))
                if words is not None:
                    return _Opening(directory, _created(path.stem[-36:]), words[:200])
    except OSError:
        pass
    return None


def _payload(line: bytes, kind: str) -> dict[str, Any]:
    """Return the payload of a record if it is of this kind."""
    # Long tool output is not worth parsing to find out that it is something else.
    if kind.encode() not in line[:400]:
        return {}
    import json

    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    payload = record.get("payload") if isinstance(record, dict) else None
    return payload if isinstance(payload, dict) and record.get("type") == kind else {}


def _user_words(event: dict[str, Any]) -> str | None:
    if event.get("type") == "user_message":
        message = event.get("message")
        return message if isinstance(message, str) else None
    item = event.get("item")
    if event.get("type") != "item_completed" or not isinstance(item, dict):
        return None
    content = item.get("content")
    if item.get("type") != "UserMessage" or not isinstance(content, list):
        return None
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return next((text for text in texts if isinstance(text, str)), "")


def _created(identity: str) -> float:
    """Return when a rollout was made (unix seconds): its id is a version 7 uuid."""
    return int(identity.replace("-", "")[:12], 16) / 1000


def _newest_first(sessions: Path) -> Iterator[Path]:
    """Yield the rollouts, newest first; the names of directories and files sort by time."""
    for year in _descending(sessions):
        for month in _descending(year):
            for day in _descending(month):
                for file in _descending(day):
                    if file.name.startswith("rollout-") and file.suffix == ".jsonl":
                        yield file


def _descending(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir(), reverse=True)
    except OSError:
        return []


def _read_config(path: Path, word: bytes) -> dict[str, Any]:
    """Return the settings of a file that holds `word`; none of another one, which saves time."""
    try:
        content = path.read_bytes()
    except OSError:
        return {}
    if word not in content:
        return {}
    import tomllib

    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}


def _home(ctx: Context) -> Path:
    configured = ctx.env.get("CODEX_HOME")
    return Path(configured) if configured else ctx.user.home / ".codex"


AGENT = Codex()
