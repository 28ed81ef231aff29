"""What every verb needs: who the user is, the supervisor (or its stand-in), and output."""

from __future__ import annotations

import functools
import os
import pwd
import sys
import time

from agent_box.control_client import Client, SupervisorDown, SupervisorSilent
from agent_box.errors import UsageError
from agent_box.session_cli import PROGRAM, render

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from agent_box.config import Box, User
    from agent_box.errors import AgentBoxError

BOX_PATH = "/etc/agent-box/box.json"
"""Where the box's configuration is, unless `AGENT_BOX_CONFIG` says otherwise."""

PATIENCE = 1.0
"""Seconds that a change waits for a supervisor that is just being restarted."""

_LOOKING = frozenset({"ls", "show", "status"})
_OFFLINE = frozenset({"ls", "show", "add", "rm", "stop", "start", "restart", "rename"})


class Context:
    """One run of the command."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.offline = False
        """Set once a request was carried out without the supervisor."""
        self._client: Client | None = None

    @functools.cached_property
    def box(self) -> Box:
        """The box's configuration."""
        from agent_box import config

        return config.load()

    @functools.cached_property
    def user(self) -> User:
        """The user that this process runs as; UsageError with the remedy when it is not one."""
        from agent_box import config

        return config.current_user(self.box)

    def call(self, op: str, /, *, call_timeout: float | None = None, **args: Any) -> dict[str, Any]:
        """Have the supervisor carry out `op`; without one, do on the registry what can be done."""
        deadline = time.monotonic() + (0 if op in _LOOKING else PATIENCE)
        while True:
            try:
                return self.client.call(op, call_timeout=call_timeout, **args)
            except SupervisorDown as down:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                if op not in _OFFLINE:
                    raise
                return self._without_supervisor(op, down, args)
            except SupervisorSilent as silent:
                # A change may or may not have happened, so it is not made twice.
                if op != "ls":
                    raise
                return self._without_supervisor(op, silent, args)

    @property
    def client(self) -> Client:
        """The connection to the supervisor, opened when first used."""
        if self._client is None:
            self._client = Client(runtime_directory() or self.user.runtime_dir)
        return self._client

    def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()

    def print(self, text: str) -> None:
        """Print a line for people; not with --json."""
        if not self.json:
            print(text)

    def print_json(self, value: object) -> None:
        """Print the machine-readable answer."""
        import json

        print(json.dumps(value, indent=2, ensure_ascii=False))

    def note(self, sentence: str) -> None:
        """Say something beside the result, on stderr."""
        print(f"{PROGRAM}: {render.line(sentence)}", file=sys.stderr)

    def fail(self, error: AgentBoxError) -> int:
        """Report `error` and return its exit status."""
        self.note(str(error))
        if self.json:
            self.print_json({"error": {"code": error.code, "message": str(error)}})
        return error.exit_code

    def _without_supervisor(
        self, op: str, reason: SupervisorDown | SupervisorSilent, args: dict[str, Any]
    ) -> dict[str, Any]:
        from agent_box import offline

        if isinstance(reason, SupervisorSilent):
            # Most of what people wait for a listing has been spent already.
            offline.TMUX_TIMEOUT = min(offline.TMUX_TIMEOUT, 0.5)
        result: dict[str, Any] = getattr(offline, op)(self.user, self.box, **args)
        self.offline = True
        if op == "ls":
            problems = result.setdefault("problems", [])
            if str(reason) not in problems:
                problems.insert(0, str(reason))
        elif op == "show":
            self.note(str(reason))
        else:
            self.note(f"{reason}; the change takes effect when the supervisor runs again")
        return result


def runtime_directory() -> str | None:
    """Return where the supervisor's socket is, without the cost of reading the whole schema.

    None when anything is out of the ordinary: `agent_box.config` then finds out what, and words
    the error. This halves the time that a plain `ls` or a completion takes.
    """
    import json

    try:
        with open(os.environ.get("AGENT_BOX_CONFIG") or BOX_PATH, "rb") as file:  # noqa: PTH123
            box = json.load(file)
        if box["version"] != 1:
            return None
        directory = box["users"][pwd.getpwuid(os.getuid()).pw_name]["runtimeDirectory"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return directory if isinstance(directory, str) and directory else None


def text_argument(value: str, what: str) -> str:
    """Return a command-line argument as the UTF-8 text it is, whatever the locale says."""
    try:
        return os.fsencode(value).decode("utf-8")
    except UnicodeError:
        raise UsageError(f"{what} is not UTF-8 text; convert it, for instance with iconv") from None


def read_text(source: str | None, what: str) -> str:
    """Return the UTF-8 text of the file `source`, or of standard input when that is None."""
    try:
        if source is None:
            data = sys.stdin.buffer.read()
        else:
            with open(source, "rb") as file:  # noqa: PTH123 - /dev/fd/N and <(…) are fine
                data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {source or 'standard input'}: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeError:
        raise UsageError(f"{what} is not UTF-8 text; convert it, for instance with iconv") from None
    if "\0" in text:
        raise UsageError(f"{what} holds a NUL character; give it as plain text")
    return text


def names_of(views: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the sessions in `views`."""
    return [str(view["name"]) for view in views]
