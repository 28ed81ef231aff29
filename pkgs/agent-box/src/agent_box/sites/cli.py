"""`agent-box-site`: publish something under a host name of its own."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from agent_box import config
from agent_box.errors import AgentBoxError, ConflictError, UsageError
from agent_box.sites import declared, model, outlook, results


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message)


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its status: 0, 2 usage, 3 not found, 4 conflict, 1 else."""
    try:
        arguments = _parser().parse_args(argv)
        box = config.load()
        user = config.current_user(box)
        if box.web is None or user.name not in box.web.users:
            raise ConflictError(f"{user.name} has no workspace in the browser, hence no sites")
        arguments.run(arguments, user)
    except AgentBoxError as error:
        print(f"agent-box-site: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="agent-box-site",
        description="Publish a program's port or a folder as https://NAME-USER.DOMAIN/. Visitors"
        " need the user's name and password unless it is public.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    command = commands.add_parser("add", help="publish a site")
    command.add_argument("name", metavar="NAME")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--port", type=int, metavar="N", help="port that a program of yours listens on"
    )
    what.add_argument("--dir", metavar="D", help="folder below ~/sites")
    command.add_argument("--public", action="store_true", help="let everybody look")
    command.add_argument("--host", metavar="LABEL", help="LABEL.DOMAIN instead of NAME-USER.DOMAIN")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_add)
    command = commands.add_parser("ls", help="list sites, where they are, and what is amiss")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_ls)
    command = commands.add_parser("rm", help="remove a site; the folder or program stays")
    command.add_argument("name", metavar="NAME")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_rm)
    return parser


def _add(arguments: argparse.Namespace, user: config.User) -> None:
    entry: dict[str, Any] = {"public": arguments.public}
    if arguments.port is not None:
        entry["port"] = arguments.port
    else:
        path = Path.cwd() / Path(arguments.dir).expanduser()
        inside = path.is_relative_to(user.home / "sites")
        entry["dir"] = model.below_sites(str(path) if inside else arguments.dir, str(user.home))
    if arguments.host is not None:
        entry["host"] = arguments.host
    model.check(arguments.name, entry)
    if arguments.port is not None and outlook.foreign(user, arguments.port):
        raise ConflictError(f"another user's program listens on port {arguments.port}")
    if (reason := outlook.amiss(user, None, entry.get("dir"))) is not None:
        raise ConflictError(reason)
    verdict = results.verdict_on(user, arguments.name, declared.add(user, arguments.name, entry))
    if verdict["state"] == "refused":
        raise ConflictError(
            f"{verdict['reason']}. The entry stays until agent-box-site rm {arguments.name}"
        )
    print(json.dumps(verdict, indent=1) if arguments.json else _line(verdict))


def _rm(arguments: argparse.Namespace, user: config.User) -> None:
    results.wait_for(user, declared.remove(user, arguments.name))
    if arguments.json:
        print(json.dumps({"removed": arguments.name}))


def _ls(arguments: argparse.Namespace, user: config.User) -> None:
    found = results.current(user)
    if arguments.json:
        shown = {key: found[key] for key in ("problem", "sites")}
        print(json.dumps({**shown, "pending": found["pending"]}, indent=1))
        return
    for verdict in found["sites"]:
        print(_line(verdict))
    if found["problem"] is not None:
        print(f"sites.json: {found['problem']}", file=sys.stderr)
    if found["pending"]:
        print("the latest change is not taken up yet", file=sys.stderr)


def _line(verdict: dict[str, Any]) -> str:
    parts = [verdict["name"], verdict["state"]]
    if verdict["url"] is not None:
        access = "public" if verdict["public"] else "behind the login"
        parts += [verdict["url"], f"{verdict['target']}, {access}"]
    if verdict["reason"] is not None:
        parts.append(verdict["reason"])
    return "  ".join(parts)
