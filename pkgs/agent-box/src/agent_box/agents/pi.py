"""pi: argv, session files, providers.

Observed with 1.6.0 and 0.80.2. It takes our id for its conversation, so that the same argv starts
and resumes; the file `sessions/<directory>/<time>_<id>.jsonl` appears with the first message, which
is written behind a description of the session.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from agent_box import guides
from agent_box.agents.base import Agent, Context, Launch, valid_uuid
from agent_box.agents.jsonfile import messages, read_json
from agent_box.agents.prompts import choose, knobs
from agent_box.agents.providers import in_environment
from agent_box.agents.screen import has, last_words, tail

# The status line of a pi that knows no model: a context of 0 tokens.
_RULE = re.compile("\N{BOX DRAWINGS LIGHT HORIZONTAL}{10}")
_REFUSED = re.compile(r"Error: (401\b|403\b|No API key)")
_EXTENSION = Path(__file__).with_name("plugins") / "pi.js"
# Lines of a session file that are read in search of a message: it stands near the beginning.
_SCAN_LINES = 400
_NO_MODEL = re.compile(r"\d+\.\d%/0 \(auto\)\s")


class Pi(Agent):
    """The adapter for `pi`."""

    name = "pi"

    def prepare(self, ctx: Context) -> None:
        """Lead it to the guide about the box."""
        guides.link(_agent_directory(ctx) / "AGENTS.md", ctx.user.name)

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Build pi's argv. pi has no permission questions, so there is nothing to skip."""
        conversation = self.conversation(ctx)
        text, delivers = choose(ctx, prompt, resumes=conversation is not None)
        # Trusted as the other agents' folders are, and for their reason: its user named it.
        argv = [ctx.box.agents[self.name].command, "--approve", "--extension", str(_EXTENSION)]
        argv += ["--session-id", conversation or ctx.record.launch_id, *ctx.entry.extra_args]
        if text:
            # No "--": 0.80 refuses it. A word with a leading "@" names a file (even behind "--")
            # and one with "-" an option; behind a blank they are just words.
            argv.append(" " + text if text.startswith(("@", "-")) else text)
        note = None if ctx.entry.skip_permissions else "pi never asks before it acts"
        return Launch(
            argv,
            knobs(ctx, {"PI_SKIP_VERSION_CHECK": "1"}),
            delivers_prompt=delivers,
            resumes=conversation is not None,
            note=note,
            launch_id=ctx.record.launch_id,
        )

    def conversation(self, ctx: Context) -> str | None:
        """Return the id under which a session file of ours exists."""
        for identity in (ctx.record.conversation, ctx.record.launch_id):
            if identity and valid_uuid(identity) and _file(ctx, identity):
                return identity
        return None

    def transcript(self, ctx: Context) -> Path | None:
        """Return the session file of this session's conversation."""
        conversation = self.conversation(ctx)
        return None if conversation is None else _file(ctx, conversation)

    def signed_in(self, ctx: Context) -> bool | None:
        """Return whether pi knows any provider: stored login, environment, own models."""
        agent = _agent_directory(ctx)
        if read_json(agent / "auth.json") or in_environment(ctx.env):
            return True
        providers = (read_json(agent / "models.json") or {}).get("providers")
        return bool(providers) or "--api-key" in ctx.entry.extra_args

    def holds_prompt(self, ctx: Context) -> str | None:
        """Hold the prompt while there is no model to answer it."""
        return None if self.signed_in(ctx) else "pi has no AI provider yet"

    def attention(self, ctx: Context, screen: str) -> str | None:
        """Recognise folder trust and the missing provider."""
        bottom = tail(screen, 14)
        if has(bottom, "Trust project folder?"):
            return "folder trust question: attach and answer"
        if has(bottom, "No models available. Use /login") or any(
            _NO_MODEL.match(line) for line in bottom[-2:]
        ):
            return "sign-in needed: attach and run /login"
        if has(bottom[-2:], "enter select") and has(bottom[-2:], "escape/ctrl+c cancel"):
            return "a dialog is open: attach and answer"
        return None

    def refusal(self, ctx: Context, screen: str) -> str | None:
        """Recognise the error below a turn that came to nothing for want of a login."""
        words = last_words(screen, _RULE, 2)
        if any(_REFUSED.match(line) for line in words):
            return "sign-in needed: the provider refused pi's login; attach and run /login"
        return None


def _file(ctx: Context, identity: str) -> Path | None:
    configured = ctx.env.get("PI_CODING_AGENT_SESSION_DIR")
    sessions = Path(configured) if configured else _agent_directory(ctx) / "sessions"
    ending = f"_{identity}.jsonl"
    # pi looks the id up within the working directory's folder and writes there.
    folder = sessions / _folder(ctx.entry.working_directory)
    for directory in (folder, sessions):
        try:
            paths = (path for path in directory.iterdir() if path.name.endswith(ending))
            return next(filter(_spoken, paths))
        except (OSError, StopIteration):
            continue
    return None


def _spoken(path: Path) -> bool:
    """Return whether a session file holds more than what describes the session."""
    with contextlib.suppress(OSError):
        return any(messages(path, ("message",), _SCAN_LINES))
    return False


def _folder(directory: str) -> str:
    return "--" + re.sub(r"[/\\:]", "-", directory.removeprefix("/")) + "--"


def _agent_directory(ctx: Context) -> Path:
    configured = ctx.env.get("PI_CODING_AGENT_DIR")
    return Path(configured) if configured else ctx.user.home / ".pi" / "agent"


AGENT = Pi()
