"""`agent-box-network`: makes, tries and removes the networks of users. For units of root."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agent_box import config
from agent_box.errors import AgentBoxError, UsageError
from agent_box.network import check, kernel
from agent_box.network.addresses import Place, host_address, place_of

RULES = Path("/etc/agent-box/network.nft")
STATE = Path("/run/agent-box-network")


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its status."""
    parser = argparse.ArgumentParser(prog="agent-box-network", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("prepare", help="have the machine forward what users send")
    for name, text in (
        ("up", "make the network of a user"),
        ("down", "remove it"),
        ("verify", "try whether it is closed"),
    ):
        commands.add_parser(name, help=text).add_argument("user")
    arguments = parser.parse_args(argv)
    try:
        _perform(arguments.command, getattr(arguments, "user", None))
    except AgentBoxError as error:
        print(f"agent-box-network: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _perform(command: str, user: str | None) -> None:
    settings = config.load().network
    if settings is None:
        raise UsageError(
            "no user of this box has a network of its own: set services.agent-box.network.private"
        )
    gateway = host_address(settings.addresses)
    if user is None:
        kernel.prepare(RULES, gateway, STATE)
        return
    group = settings.metadata_group if user in settings.metadata_users else 0
    place: Place = place_of(user, settings.addresses, settings.addresses6, group)
    if command == "up":
        kernel.up(place, gateway, (settings.addresses, settings.addresses6))
        check.verify(place, gateway)
    elif command == "down":
        kernel.down(place)
    else:
        check.verify(place, gateway)
