"""The grammar of `agent-box-webhook`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from agent_box.webhook.cli import PROGRAM

if TYPE_CHECKING:
    from typing import NoReturn

_EPILOG = """\
Two ways to be told:
  --deliver-to session    this session gets the event as a message (the default; for one hour,
                          as long as events keep coming, or --ttl HOURS)
  --deliver-to subagent   a standing watch: the event starts a fresh hook-* session. Runs of CI do
                          so only when they fail and no living session listens to them. A limited
                          number of hook-* sessions lives at once; beyond that events wait

Narrow a subscription to what you work on; that also makes the event yours alone:
  agent-box-webhook subscribe OWNER/REPO --note "PR 42: waiting on CI" \\
    --include '{"any": [{"path": "pull_request.number", "in": [42]},
                        {"path": "workflow_run.head_branch", "in": ["fix-42"]}]}'
Leave out what you did yourself: --ignore-sender @self (results of runs come all the same).

Once per box: agent-box-webhook setup prints what to enter at the sender.
exit status: 0 done, 1 something is broken, 2 wrong usage, 3 no such thing, 4 conflict
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{PROGRAM}: {message}\nhelp: {self.prog} --help\n")


def build() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = _Parser(
        prog=PROGRAM,
        description="Have sessions told of events instead of polling for them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.add_argument("--json", action="store_true", help="print JSON")
        return command

    def of_session(command: argparse.ArgumentParser) -> None:
        command.add_argument("--session", metavar="NAME", help="another session than this one")

    command = verb("setup", "give a sender a secret and say what to enter there")
    command.add_argument("source", nargs="?", default="github", metavar="SOURCE")
    command.add_argument("--rotate", action="store_true", help="a new secret beside the old one")
    command.add_argument(
        "--secret-stdin", action="store_true", help="read the secret that the sender made"
    )

    command = verb("ls", "list what a session listens to, and the standing watches")
    of_session(command)

    command = verb("subscribe", "listen to a topic, or renew that")
    command.add_argument("topic", metavar="TOPIC", help="OWNER/REPO, OWNER/*, or SOURCE:KEY")
    of_session(command)
    _target(command)
    command.add_argument("--note", metavar="TEXT", help="why; comes back with each event")
    command.add_argument("--ttl", "--ttl-hours", type=_hours, metavar="HOURS", help="0: for ever")
    command.add_argument(
        "--renew-on-event", action=argparse.BooleanOptionalAction, help="each event renews it"
    )
    command.add_argument(
        "--ignore-sender", "--ignore-senders", action="append", metavar="LOGIN",
        help="leave out what somebody did; @self is this box",
    )  # fmt: skip
    for name, other, what in (("include", "when", "only"), ("exclude", "drop", "not")):
        command.add_argument(
            f"--{name}", f"--{other}", type=_json, metavar="RULE",
            help=f"JSON; {what} events that it holds for ({{}}: no rule)",
        )  # fmt: skip

    command = verb("unsubscribe", "stop listening to a topic")
    command.add_argument("topic", metavar="TOPIC")
    of_session(command)
    _target(command)

    verb("status", "tell how deliveries fare on this box")

    command = verb("log", "list the last deliveries, or show one")
    command.add_argument("id", nargs="?", type=int, metavar="ID")
    command.add_argument("--since", type=_span, default=0, metavar="SPAN", help="30m, 2h, 1d")
    command.add_argument("--source", metavar="SOURCE")
    command.add_argument("--key", metavar="KEY")
    command.add_argument("-n", "--lines", type=int, default=30, metavar="N")

    command = verb("redeliver", "deliver one of the log once more")
    command.add_argument("id", type=int, metavar="ID")

    command = verb("emit", "deliver an event of this box's own, signed as its source does")
    command.add_argument("source", metavar="SOURCE")
    command.add_argument("payload", nargs="?", default="-", metavar="JSON", help="-: from stdin")
    command.add_argument("--event", metavar="NAME")

    command = verb("test", "send a signed test delivery and follow it")
    command.add_argument("source", nargs="?", default="github", metavar="SOURCE")
    command.add_argument("--key", default="agent-box/test", metavar="KEY")
    command.add_argument(
        "--public", action="store_true", help="through the address that senders use"
    )

    command = verb("rm", "forget a source and its secrets: its deliveries are refused")
    command.add_argument("source", metavar="SOURCE")

    verb("url", "print where senders deliver to")
    command = verb("self", "print who this box is on GitHub")
    command.add_argument("--refresh", action="store_true", help="ask again")
    return parser


def _target(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--deliver-to", type=str.lower, choices=("session", "subagent"), default="session",
        help="this session, or a fresh one for each event",
    )  # fmt: skip


def _hours(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError
    return value


def _json(text: str) -> Any:
    return json.loads(text)


def _span(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return float(text[:-1]) * units[text[-1]] if text[-1:] in units else float(text)
