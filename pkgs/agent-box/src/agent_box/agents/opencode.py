"""opencode: argv, conversations in its database, providers.

Observed with 1.18.33. It has no first-run dialog, chooses its conversation ids itself (`ses_…`)
and keeps them in `opencode.db` (SQLite) from the first submitted message on.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box import guides
from agent_box.agents.base import Agent, Context, Launch
from agent_box.agents.jsonfile import read_json
from agent_box.agents.prompts import choose, knobs, stamp
from agent_box.agents.providers import in_environment
from agent_box.agents.screen import has, tail

if TYPE_CHECKING:
    import sqlite3

_ID = re.compile(r"ses_[A-Za-z0-9]{8,64}\Z")
_PLUGIN = Path(__file__).with_name("plugins") / "opencode.js"
_SLACK_MS = 2000
_SCAN = 200
_PROVIDER = re.compile(rb'"(provider|model)"\s*:')

# The first thing that was said in each of the newest conversations of a directory. Sub-agents
# have a parent.
_QUERY = """
SELECT s.id, s.time_created, (
    SELECT json_extract(p.data, '$.text') FROM message m JOIN part p ON p.message_id = m.id
    WHERE m.session_id = s.id AND json_extract(m.data, '$.role') = 'user'
      AND json_extract(p.data, '$.type') = 'text'
    ORDER BY m.time_created, p.time_created LIMIT 1)
FROM session s WHERE s.directory = ? AND s.parent_id IS NULL
ORDER BY s.time_created DESC LIMIT ?
"""


class OpenCode(Agent):
    """The adapter for `opencode`."""

    name = "opencode"

    def prepare(self, ctx: Context) -> None:
        """Lead it to the guide about the box."""
        guides.link(_config_directory(ctx) / "AGENTS.md", ctx.user.name)

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Build opencode's argv; a first prompt carries the stamp that identifies it later."""
        # With --session, --prompt is ignored without a word. A kickoff prompt therefore always
        # opens a conversation; what else is to be said on a resume has to be typed.
        conversation = None if prompt else self.conversation(ctx)
        text, delivers = choose(ctx, prompt, resumes=conversation is not None)
        argv = [ctx.box.agents[self.name].command]
        if ctx.entry.skip_permissions:
            argv.append("--auto")
        if conversation:
            argv += ["--session", conversation]
        argv += ctx.entry.extra_args
        if text and not conversation:
            # One word with its option: as a word of its own, a text that starts with a dash
            # would be read as options.
            argv.append(f"--prompt={stamp(ctx.record.launch_id)} {text}")
        # Its plugins add to those of the user's own files. Where the user has set the variable,
        # that one stands, and the screen alone tells.
        told = json.dumps({"plugin": [_PLUGIN.as_uri()]})
        settings = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_CONFIG_CONTENT": told}
        return Launch(
            argv,
            knobs(ctx, settings),
            delivers_prompt=delivers,
            resumes=conversation is not None,
            launch_id=ctx.record.launch_id,
            typed=text if conversation else None,
        )

    def conversation(self, ctx: Context) -> str | None:
        """Return the conversation of this session: recorded, else stamped, else the only one."""
        path = _data_directory(ctx) / "opencode.db"
        if not path.is_file():
            return None
        import sqlite3
        from contextlib import closing

        try:
            # Short: opencode writes in bursts, and the caller asks again.
            uri = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=0.05)) as database:
                return _search(ctx, database)
        except sqlite3.Error:
            # Another release's tables, or locked: no evidence, which never loses a prompt.
            recorded = ctx.record.conversation
            return recorded if recorded and _ID.match(recorded) else None

    def stored(self, ctx: Context) -> list[Path]:
        """Return the database, and what was written of it last."""
        directory = _data_directory(ctx)
        paths = (directory / "opencode.db-wal", directory / "opencode.db")
        return [path for path in paths if path.exists()]

    def signed_in(self, ctx: Context) -> bool | None:
        """Return whether any model provider is set up (the built-in free one does not count)."""
        if read_json(_data_directory(ctx) / "auth.json") or in_environment(ctx.env):
            return True
        if ctx.env.get("OPENCODE_CONFIG") or ctx.env.get("OPENCODE_CONFIG_CONTENT"):
            return True
        for directory in (_config_directory(ctx), Path(ctx.entry.working_directory)):
            for name in ("opencode.json", "opencode.jsonc", "config.json"):
                try:
                    # JSON with comments: look for the key instead of parsing it.
                    if _PROVIDER.search((directory / name).read_bytes()):
                        return True
                except OSError:
                    continue
        return False

    def holds_prompt(self, ctx: Context) -> str | None:
        """Hold the prompt while there is no provider but the public free one.

        opencode would send it there unasked; whoever wants that names the model in its
        configuration.
        """
        return None if self.signed_in(ctx) else "opencode has no AI provider yet"

    def attention(self, ctx: Context, screen: str) -> str | None:
        """Recognise the missing provider and questions of a running turn."""
        bottom = tail(screen, 18)
        foot = bottom[-3:]
        if has(bottom, "Permission required", "Always allow", "Reject permission") and has(
            foot, "enter confirm"
        ):
            return "permission question: attach and answer"
        if has(foot, "enter submit", "enter confirm", "enter toggle") and has(foot, "esc dismiss"):
            return "opencode asks a question: attach and answer"
        if has(bottom, "/connect to add an AI provider"):
            return "sign-in needed: attach and run /connect"
        return None


def _search(ctx: Context, database: sqlite3.Connection) -> str | None:
    recorded = ctx.record.conversation
    if recorded and _ID.match(recorded):
        query = "SELECT 1 FROM session WHERE id = ?"
        if database.execute(query, (recorded,)).fetchone():
            return recorded
    mine = stamp(ctx.record.launch_id)
    plain: list[str] = []
    for identity, created, words in database.execute(_QUERY, (ctx.entry.working_directory, _SCAN)):
        if not isinstance(words, str) or not _ID.match(identity):
            continue
        if words.startswith(mine):
            return str(identity)
        ours = ctx.record.launched and created >= ctx.record.started_at * 1000 - _SLACK_MS
        if ours and not words.startswith("[agent-box session "):
            plain.append(identity)
    # Without a stamp it may be a sibling's. With the kickoff prompt it has one.
    return plain[0] if len(plain) == 1 and not ctx.entry.initial_prompt else None


def _config_directory(ctx: Context) -> Path:
    configured = ctx.env.get("XDG_CONFIG_HOME")
    return (Path(configured) if configured else ctx.user.home / ".config") / "opencode"


def _data_directory(ctx: Context) -> Path:
    configured = ctx.env.get("XDG_DATA_HOME")
    base = Path(configured) if configured else ctx.user.home / ".local" / "share"
    return base / "opencode"


AGENT = OpenCode()
