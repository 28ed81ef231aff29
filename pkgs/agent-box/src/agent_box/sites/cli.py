"""`agent-box-site`: publish something under a host name of its own."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from agent_box import config
from agent_box.errors import AgentBoxError, ConflictError, InternalError, UsageError
from agent_box.sites import declared, model

RESULTS = Path("/run/agent-box-sites")

_WAIT = 20.0
"""Seconds for the edge to take up a change."""

_PAUSE = 0.1


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
    data = declared.add(user, arguments.name, entry)
    results = _await(user, data)
    verdict = next((each for each in results["sites"] if each["name"] == arguments.name), None)
    if results["problem"] is not None or verdict is None:
        raise InternalError(results["problem"] or "the box did not take up the new site")
    if verdict["state"] == "refused":
        raise ConflictError(
            f"{verdict['reason']}. The entry stays until agent-box-site rm {arguments.name}"
        )
    print(json.dumps(verdict, indent=1) if arguments.json else _line(verdict))


def _rm(arguments: argparse.Namespace, user: config.User) -> None:
    _await(user, declared.remove(user, arguments.name))
    if arguments.json:
        print(json.dumps({"removed": arguments.name}))


def _ls(arguments: argparse.Namespace, user: config.User) -> None:
    results = _results(user) or {"problem": None, "sites": [], "digest": ""}
    try:
        data, _ = declared.read(user)
        pending = hashlib.sha256(data).hexdigest() != results["digest"] and bool(data)
    except AgentBoxError:
        pending = False  # the results tell about it
    if arguments.json:
        shown = {key: results[key] for key in ("problem", "sites")}
        print(json.dumps({**shown, "pending": pending}, indent=1))
        return
    for verdict in results["sites"]:
        print(_line(verdict))
    if results["problem"] is not None:
        print(f"sites.json: {results['problem']}", file=sys.stderr)
    if pending:
        print("the latest change is not taken up yet", file=sys.stderr)


def _line(verdict: dict[str, Any]) -> str:
    parts = [verdict["name"], verdict["state"]]
    if verdict["url"] is not None:
        access = "public" if verdict["public"] else "behind the login"
        parts += [verdict["url"], f"{verdict['target']}, {access}"]
    if verdict["reason"] is not None:
        parts.append(verdict["reason"])
    return "  ".join(parts)


def _results(user: config.User) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((RESULTS / f"{user.name}.json").read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InternalError(f"cannot read {RESULTS}/{user.name}.json: {error}") from error
    return found


def _await(user: config.User, data: bytes) -> dict[str, Any]:
    """Return the results for this version of the file."""
    digest = hashlib.sha256(data).hexdigest()
    deadline = time.monotonic() + _WAIT
    while time.monotonic() < deadline:
        results = _results(user)
        if results is not None and results["digest"] == digest:
            return results
        time.sleep(_PAUSE)
    raise InternalError(
        "the change is written, but the box has not taken it up yet; agent-box-site ls tells"
        " when it has, and root can see: journalctl -u agent-box-sites"
    )
