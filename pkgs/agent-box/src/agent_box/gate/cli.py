"""`agent-box-gate`: passwords, logins and bans from the command line, for root."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent_box.errors import AgentBoxError, InternalError, UsageError, from_code
from agent_box.gate import addresses
from agent_box.gate.unbans import WISHES, Unbans

SOCKET = Path("/run/agent-box-gate/admin.sock")
"""Where the gate answers root; `AGENT_BOX_GATE_ADMIN` overrides it."""

JAIL = "agent-box-gate"
"""The fail2ban jail that reads the gate's journal."""

_TIMEOUT = 30.0


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its status."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except AgentBoxError as error:
        print(f"agent-box-gate: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent-box-gate", description="Passwords, logins and bans of this box."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("status", help="who can sign in, and how many logins there are")
    command.set_defaults(run=_status)

    command = commands.add_parser(
        "set-password",
        help="set a user's password; ends all their logins and terminals",
        description="Asks for the new password, or reads one line from standard input.",
    )
    command.add_argument("user")
    command.add_argument(
        "--hash",
        action="store_true",
        help="the line is a hash from `caddy hash-password`, not a password",
    )
    command.set_defaults(run=_set_password)

    command = commands.add_parser(
        "setup-code",
        help="print a code to choose a password with",
        description="Prints the code that waits to be used, or a new one where there is none.",
    )
    command.add_argument("user")
    command.add_argument(
        "--renew", action="store_true", help="make another; the one before stops working"
    )
    command.set_defaults(run=_setup_code)

    command = commands.add_parser("logins", help="list who is signed in")
    command.add_argument("user", nargs="?")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_logins)

    command = commands.add_parser("revoke", help="end logins and their terminals")
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", help="id of a login, or its beginning")
    which.add_argument("--user", help="all logins of this user")
    which.add_argument("--all", action="store_true", help="all logins of the box")
    command.set_defaults(run=_revoke)

    command = commands.add_parser("unban", help="let an address try again")
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("address", nargs="?")
    which.add_argument("--all", action="store_true", help="all addresses")
    which.add_argument("--requested", action="store_true", help="those that users asked for")
    command.set_defaults(run=_unban)
    return parser


def call(op: str, **args: Any) -> dict[str, Any]:
    """Ask the gate; raises what it answers, or InternalError when it does not."""
    path = Path(os.environ.get("AGENT_BOX_GATE_ADMIN") or SOCKET)
    request = json.dumps({"op": op, "args": args}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(str(path))
            connection.sendall(request)
            with connection.makefile("rb") as lines:
                line = lines.readline()
    except PermissionError:
        raise InternalError(f"not allowed to use {path}: run this as root (sudo)") from None
    except OSError as error:
        raise InternalError(
            f"the gate does not answer on {path} ({error.strerror or error}); see:"
            " systemctl status agent-box-gate.service agent-box-gate-admin.socket"
        ) from error
    if not line:
        raise InternalError("the gate hung up; see: journalctl -u agent-box-gate")
    answer = json.loads(line)
    if not answer["ok"]:
        raise from_code(answer["error"]["code"], answer["error"]["message"])
    result: dict[str, Any] = answer["result"]
    return result


def _status(_: argparse.Namespace) -> None:
    status = call("status")
    for user, facts in status["users"].items():
        password = "password set" if facts["password"] else "no password"
        code = ", set-up code waiting" if facts["setupCode"] else ""
        print(f"{user}: {password}{code}, {facts['logins']} logins")
    print(f"{status['throttled']} addresses with failures lately")
    if not status["saved"]:
        print("the disk does not take the latest logins: is it full?")


def _set_password(arguments: argparse.Namespace) -> None:
    if arguments.hash:
        result = call("set-password", user=arguments.user, hash=_line("Hash: "))
    else:
        new = _line(f"New password of {arguments.user}: ")
        if sys.stdin.isatty() and _line("Again: ") != new:
            raise UsageError("the two passwords differ; nothing was changed")
        result = call("set-password", user=arguments.user, password=new)
    print(f"password of {arguments.user} set, {result['ended']} logins ended")


def _line(prompt: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(prompt)
    return sys.stdin.readline().rstrip("\r\n")


def _setup_code(arguments: argparse.Namespace) -> None:
    found = call("setup-code", user=arguments.user, renew=arguments.renew)
    terms = "one use" if found["expires"] is None else "24 hours and one use"
    print(f"set-up code of {arguments.user}, good for {terms}: {found['code']}")


def _logins(arguments: argparse.Namespace) -> None:
    found = call("logins", user=arguments.user)["logins"]
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    for login in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(login["lastUse"]))
        print(f"{login['id'][:12]}  {login['user']}  {used}  {login['address']}  {login['device']}")


def _revoke(arguments: argparse.Namespace) -> None:
    if arguments.all:
        result = call("revoke", all=True)
    elif arguments.user is not None:
        result = call("revoke", user=arguments.user)
    else:
        result = call("revoke", id=arguments.id)
    print(f"{len(result['ended'])} logins ended")


def _unban(arguments: argparse.Namespace) -> None:
    if arguments.all:
        call("unban", all=True)
        if (client := shutil.which("fail2ban-client")) is not None:
            subprocess.run([client, "unban", "--all"], check=False, stdout=subprocess.DEVNULL)
        return
    if arguments.requested:
        for wanted in Unbans(WISHES).take():
            _lift(wanted)
        return
    address = addresses.parse(arguments.address)
    if address == addresses.UNKNOWN:
        raise UsageError(f"{arguments.address!r} is not an IPv4 or IPv6 address")
    call("unban", address=str(address))
    _lift(address)


def _fail2ban(client: str, *words: str) -> str:
    done = subprocess.run(
        [client, *words], check=False, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT / 3
    )
    return done.stdout


def _lift(address: addresses.Address) -> None:
    """Lift the bans of everything in the network of `address`, as far as there is a jail."""
    client = shutil.which("fail2ban-client")
    if client is None:
        return
    try:
        for text in _fail2ban(client, "get", JAIL, "banip").split():
            banned = addresses.parse(text.partition("/")[0])
            if addresses.network(banned) == addresses.network(address):
                _fail2ban(client, "set", JAIL, "unbanip", text)
    except subprocess.TimeoutExpired:
        raise InternalError(
            "fail2ban does not answer, so no ban was lifted; see: systemctl status fail2ban"
        ) from None
    print(f"{address} may try again")
