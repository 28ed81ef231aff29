"""What every verb needs: who the user is, whose subscriptions are meant, and output."""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from agent_box import config
from agent_box.control_client import Client
from agent_box.errors import AgentBoxError, ConflictError, NotFoundError, UsageError
from agent_box.subscriptions.place import clean, key_of, spool_dir, state_dir
from agent_box.webhook.cli import PROGRAM

if TYPE_CHECKING:
    import argparse

    from agent_box.webhook.spool import Spool


class Context:
    """One run of the command."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.json: bool = arguments.json
        self.box = config.load()
        self.user = config.current_user(self.box)
        webhook = self.box.webhook
        mine = webhook.users.get(self.user.name) if webhook else None
        if webhook is None or mine is None:
            raise ConflictError(
                f"no endpoint: {self.user.name} has no workspace in the browser, or"
                " services.agent-box.webhook.enable is off"
            )
        self.webhook, self.mine = webhook, mine
        self.directory = state_dir(self.user.home)

    @functools.cached_property
    def views(self) -> list[dict[str, Any]]:
        """The sessions of the user; none while the supervisor does not answer."""
        try:
            with Client(self.user.runtime_dir) as client:
                found: list[dict[str, Any]] = client.call("ls")["sessions"]
                return found
        except AgentBoxError:
            return []

    def key(self, session: str | None) -> str:
        """Return whose subscriptions are meant."""
        if session is not None:
            for view in self.views:
                if view["name"] == session and view["id"]:
                    return key_of(view["id"])
            raise NotFoundError(f"no session '{session}'; agent-box-session ls lists them")
        key = clean(os.environ.get("LOCAL_WEBHOOK_SESSION", ""))
        if not key:
            raise UsageError("this is no session of the box; say which one: --session NAME")
        return key

    def name_of(self, key: str) -> str:
        """Return how people call the session of a key."""
        return next((v["name"] for v in self.views if v["id"] and key_of(v["id"]) == key), key)

    def spool(self) -> Spool:
        """Open the spool to read."""
        import sqlite3  # here, because most verbs need neither

        from agent_box.webhook.spool import Spool

        try:
            return Spool(spool_dir(self.user.home), read_only=True)
        except sqlite3.Error as error:
            raise NotFoundError(
                f"nothing was received yet, or the receiver never ran ({error})"
            ) from error

    def print(self, value: Any, text: str | None = None) -> None:
        """Print a result, for people or for programs."""
        if self.json or text is None:
            print(json.dumps(value, indent=2, ensure_ascii=False))
        elif text:
            print(text)


def note(sentence: str) -> None:
    """Say something beside the result, on stderr."""
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
