"""From an argument list to an exit status: dispatch, and every error as one sentence."""

from __future__ import annotations

import contextlib
import os
import sys

from agent_box.errors import AgentBoxError, InternalError, UsageError
from agent_box.session_cli import PROGRAM

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from agent_box.session_cli.context import Context

_BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended
_INTERRUPTED = 130


def run(argv: list[str]) -> int:
    """Run the command line `argv` and return its exit status."""
    _tolerate_any_encoding()
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _run(argv: list[str]) -> int:
    from agent_box.session_cli import parser as grammar

    try:
        parser, arguments = grammar.parse(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else UsageError.exit_code
    if arguments.version:
        print(_version())
        return 0
    if arguments.verb is None:
        parser.print_help(sys.stderr)
        return UsageError.exit_code
    return _dispatch(arguments)


def _dispatch(arguments: argparse.Namespace) -> int:
    from agent_box.session_cli.context import Context

    context = Context(json=arguments.json)
    try:
        return _handler(arguments.verb)(context, arguments)
    except AgentBoxError as error:
        return context.fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return context.fail(InternalError(f"{error.strerror or error}{where}"))
    finally:
        context.close()


def _handler(verb: str) -> Callable[[Context, argparse.Namespace], int]:
    if verb == "env":
        from agent_box.session_cli import env

        return env.run
    if verb == "attach":
        from agent_box.session_cli import attach

        return attach.run
    if verb == "add":
        from agent_box.session_cli import add

        return add.run
    if verb == "signin":
        from agent_box.session_cli import signin

        return signin.run
    if verb == "completion":
        from agent_box.session_cli import completion

        return completion.run
    from agent_box.session_cli import commands

    return commands.VERBS[verb]


def _version() -> str:
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return f"{PROGRAM} {metadata.version('agent-box')}"
    return f"{PROGRAM} (not installed as a package)"


def _tolerate_any_encoding() -> None:
    # A locale that lacks a character must not turn a listing into a traceback.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _silence(descriptor: int) -> None:
    # Python flushes once more at exit; that must not fail again.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
