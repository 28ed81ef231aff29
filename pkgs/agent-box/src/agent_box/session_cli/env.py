"""`env`: the variables of all sessions, or of one. Values go in and never come out."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from agent_box import envfile, processes
from agent_box.errors import AgentBoxError, UsageError
from agent_box.session_cli import PROGRAM, render
from agent_box.session_cli.context import names_of

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from agent_box.session_cli.context import Context

_ALIVE = ("starting", "running", "waiting")


def run(context: Context, arguments: argparse.Namespace) -> int:
    """List, set or remove variables."""
    path = context.user.env_path
    if arguments.session is not None:
        from agent_box import session_env  # reads the list of sessions, which the others need not

        path = session_env.path_of(context.user, arguments.session)
    if arguments.action == "ls":
        return _list(context, path)
    if arguments.action == "set":
        return _set(context, arguments, path)
    return _unset(context, arguments, path)


def _list(context: Context, path: Path) -> int:
    keys = envfile.keys(path)
    old = processes.with_old_values(_alive(context), context.user)
    if context.json:
        context.print_json({"keys": keys, "oldValuesIn": old})
    else:
        for key in keys:
            print(key)
    if old:
        context.note(
            f"the last change applies at the next restart of {render.enumerate_names(old)}"
            f" ({PROGRAM} restart NAME)"
        )
    return 0


def _set(context: Context, arguments: argparse.Namespace, path: Path) -> int:
    key, value = arguments.key, arguments.value
    if value is None and "=" in key:
        key, _, value = key.partition("=")
    if not envfile.is_key(key):
        raise UsageError(
            f"{render.line(key[:60])!r} is not a variable name; use letters, digits and '_',"
            " not starting with a digit"
        )
    if value is None:
        value = _from_stdin(key, raw=arguments.raw)
    else:
        value = os.fsencode(value).decode("utf-8", "surrogateescape")
    changed = envfile.set_values(path, {key: value}, force=arguments.force)
    sentence = f"set {key}" if changed else f"{key} has that value already"
    return _report(context, changed, sentence, arguments.session)


def _unset(context: Context, arguments: argparse.Namespace, path: Path) -> int:
    removed = envfile.unset(path, arguments.keys)
    for key in arguments.keys:
        if key not in removed:
            context.note(f"{key} was not set")
    sentence = f"removed {' '.join(removed)}" if removed else ""
    return _report(context, removed, sentence, arguments.session)


def _report(context: Context, changed: list[str], sentence: str, session: str | None) -> int:
    old = [view for view in _alive(context) if session in (None, view["name"])] if changed else []
    if context.json:
        context.print_json({"changed": changed, "oldValuesIn": names_of(old)})
    elif sentence:
        print(sentence)
    if old:
        context.note(
            f"running sessions keep the old value; the new one applies at the next restart of"
            f" {render.enumerate_names(names_of(old))} ({PROGRAM} restart NAME, or --all)"
        )
    return 0


def _from_stdin(key: str, *, raw: bool) -> str:
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(f"value of {key} (not shown): ")
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    return text if raw else text.removesuffix("\n")


def _alive(context: Context) -> list[dict[str, Any]]:
    # The file is what matters; not knowing the sessions must not fail the command.
    with contextlib.suppress(AgentBoxError):
        return [
            view
            for view in context.client.call("ls").get("sessions", [])
            if view["state"] in _ALIVE
        ]
    return []
