"""The verbs that look at sessions, end and start them, and talk to them."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from agent_box import naming
from agent_box.control_client import SupervisorDown, SupervisorGone
from agent_box.errors import AgentBoxError, InternalError, UsageError
from agent_box.session_cli import PROGRAM, render
from agent_box.session_cli.context import read_text, text_argument

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent_box.session_cli.context import Context

_SLOW = 120.0  # seconds that ending many sessions may take
_GRACE = 5.0  # seconds that an answer may be later than the time-out asked for


def ls(context: Context, arguments: argparse.Namespace) -> int:
    """List sessions; problems are part of the answer and do not change the exit status."""
    result = context.call("ls")
    views: list[dict[str, Any]] = result.get("sessions", [])
    problems: list[str] = result.get("problems", [])
    if context.json:
        context.print_json({"sessions": views, "problems": problems})
    elif arguments.names:
        for view in views:
            print(render.line(view["name"]))
    else:
        print("\n".join(render.table(views, colour=render.use_colour())))
    for problem in problems:
        context.note(problem)
    return 0


def show(context: Context, arguments: argparse.Namespace) -> int:
    """Tell all about one session."""
    view = context.call("show", name=naming.check_existing(arguments.name))
    if context.json:
        context.print_json(view)
    else:
        print("\n".join(render.details(view)))
    return 0


def remove(context: Context, arguments: argparse.Namespace) -> int:
    """End sessions and forget them."""
    return _each(context, arguments.names, "rm", "removed")


def stop(context: Context, arguments: argparse.Namespace) -> int:
    """End sessions and keep them listed."""
    return _each(context, arguments.names, "stop", "stopped")


def start(context: Context, arguments: argparse.Namespace) -> int:
    """Start sessions that do not run."""
    return _each(context, arguments.names, "start", "started")


def restart(context: Context, arguments: argparse.Namespace) -> int:
    """End sessions and start them again."""
    if arguments.include_stopped and not arguments.all:
        raise UsageError("--include-stopped goes with --all; to start one: start NAME")
    if not arguments.all:
        if not arguments.names:
            raise UsageError("say which sessions to restart, or --all")
        return _each(context, arguments.names, "restart", "restarted")
    if arguments.names:
        raise UsageError("give either names or --all, not both")
    result = context.call(
        "restart", call_timeout=_SLOW, all=True, includeStopped=arguments.include_stopped
    )
    outcome = _Outcome(context, "restarted")
    outcome.take(result)
    if not outcome.done and not outcome.errors:
        context.note("there is no session to restart")
    return outcome.finish()


def logs(context: Context, arguments: argparse.Namespace) -> int:
    """Print what a session shows, or showed."""
    wanted = {"lines": arguments.lines, "run": arguments.run}
    given = {key: value for key, value in wanted.items() if value is not None}
    result = context.call("logs", name=naming.check_existing(arguments.name), **given)
    if context.json:
        context.print_json(result)
        return 0
    if result.get("source") == "ended" and arguments.run is None:
        context.note(f"{arguments.name} does not run; this is what its last run showed")
    text = render.block(result["text"])
    sys.stdout.write(text if not text or text.endswith("\n") else f"{text}\n")
    return 0


def send(context: Context, arguments: argparse.Namespace) -> int:
    """Type a text into a session."""
    name = naming.check_existing(arguments.name)
    if arguments.file is not None and arguments.text is not None:
        raise UsageError("give either TEXT or --file, not both")
    if arguments.file is None and arguments.text is None:
        raise UsageError(f"say what to send: {PROGRAM} send {name} TEXT (or - to read it)")
    if arguments.file is not None or arguments.text == "-":
        text = read_text(None if arguments.file == "-" else arguments.file, "the text")
        text = text if arguments.no_enter else text.removesuffix("\n")
    else:
        text = text_argument(arguments.text, "the text")
    result = context.call("send", name=name, text=text, enter=not arguments.no_enter)
    if context.json:
        context.print_json(result)
    return 0


def wait(context: Context, arguments: argparse.Namespace) -> int:
    """Wait for a state; a supervisor that restarts meanwhile does not end the wait."""
    name = naming.check_existing(arguments.name)
    deadline = time.monotonic() + arguments.timeout
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        try:
            result = context.call(
                "wait", call_timeout=left + _GRACE, name=name, states=arguments.state, timeout=left
            )
        except (SupervisorDown, SupervisorGone):
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
            continue
        view = result["session"]
        if context.json:
            context.print_json(view)
        else:
            print(f"{view['name']}: {view['state']}")
        return 0


def rename(context: Context, arguments: argparse.Namespace) -> int:
    """Give a session another name."""
    old = naming.check_existing(arguments.name)
    new = naming.check_new(arguments.new_name)
    result = context.call("rename", name=old, newName=new)
    if context.json:
        context.print_json(result["session"])
    else:
        print(f"{old} is now {new}")
    return 0


def status(context: Context, arguments: argparse.Namespace) -> int:  # noqa: ARG001 - as all verbs
    """Tell whether the parts behind the sessions are well; 1 when they are not."""
    try:
        result = context.call("status")
    except InternalError as error:
        if context.json:
            context.print_json({"supervisor": {"state": "down"}, "problems": [str(error)]})
        else:
            print("supervisor:      not answering")
        context.note(str(error))
        return error.exit_code
    problems: list[str] = result.get("problems", [])
    server = result["server"]
    if context.json:
        context.print_json({**result, "supervisor": {"state": "running", "pid": result["pid"]}})
    else:
        pid = f" (pid {server['pid']})" if server.get("pid") else ""
        print(f"supervisor:      running (pid {result['pid']}, version {result['version']})")
        print(f"terminal server: {str(server['state']).replace('-', ' ')}{pid}")
    for problem in problems:
        context.note(problem)
    return 0 if server["state"] == "running" and not problems else InternalError.exit_code


class _Outcome:
    """What became of a request about several sessions."""

    def __init__(self, context: Context, done: str) -> None:
        self._context = context
        self._word = done
        self.done: list[str] = []
        self.views: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self._status = 0

    def succeeded(self, name: str, view: dict[str, Any] | None) -> None:
        self.done.append(name)
        if view is not None:
            self.views.append(view)
        self._context.print(f"{self._word} {render.line(name)}")
        if view is not None and view.get("state") == "failed":
            self._context.note(f"{name} failed: {view.get('reason') or 'see show and logs'}")
            self._status = self._status or InternalError.exit_code

    def failed(self, name: str, error: AgentBoxError) -> None:
        self.errors.append({"name": name, "code": error.code, "message": str(error)})
        self._context.note(str(error))
        self._status = self._status or error.exit_code

    def take(self, result: dict[str, Any]) -> None:
        """Add the answer to a request for all sessions."""
        for view in result.get("sessions", []):
            self.succeeded(str(view["name"]), view)
        for error in result.get("errors", []):
            self.failed(str(error["name"]), InternalError(f"{error['name']}: {error['message']}"))

    def finish(self) -> int:
        """Print the machine-readable form and return the exit status: that of the first error."""
        if self._context.json:
            self._context.print_json(
                {"names": self.done, "sessions": self.views, "errors": self.errors}
            )
        return self._status


def _each(context: Context, names: list[str], op: str, done: str) -> int:
    outcome = _Outcome(context, done)
    for name in _own_session_last(context, names):
        try:
            result = context.call(op, call_timeout=_SLOW, name=naming.check_existing(name))
            if op == "restart" and result.get("errors"):
                outcome.take({"errors": result["errors"]})
                continue
            views = result["sessions"] if op == "restart" else [result.get("session")]
            outcome.succeeded(name, views[0] if views else None)
        except AgentBoxError as error:
            outcome.failed(name, error)
    return outcome.finish()


def _own_session_last(context: Context, names: list[str]) -> list[str]:
    """Return `names` without repetition, the session that this command runs in at the end.

    Ending that one ends the command too, so what is asked about the others has to come first.
    """
    unique = list(dict.fromkeys(names))
    if len(unique) == 1:
        return unique
    above = set(_ancestors())
    mine: set[str | None] = set()
    with contextlib.suppress(AgentBoxError):
        views = context.client.call("ls").get("sessions", [])
        mine = {view["name"] for view in views if view.get("pid") in above}
    # A tool that an agent started may be nobody's child any more; the name is a hint then.
    mine = mine or {os.environ.get("AGENT_BOX_SESSION")}
    return sorted(unique, key=lambda name: name in mine)


def _ancestors() -> Iterator[int]:
    """Yield the ids of the processes that this one descends from, as far as they can be seen."""
    pid = os.getppid()
    while pid > 0:
        yield pid
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


VERBS: dict[str, Callable[[Context, argparse.Namespace], int]] = {
    "ls": ls,
    "show": show,
    "rm": remove,
    "stop": stop,
    "start": start,
    "restart": restart,
    "logs": logs,
    "send": send,
    "wait": wait,
    "rename": rename,
    "status": status,
}
"""What runs for each verb that has no module of its own."""
