"""The sockets between the edge and ports of users: one unit of systemd for each port in use.

The edge connects to a socket in a directory of root's; what it is connected to is decided for each
connection, by a service of the user (`port`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = "/run/agent-box-site-port"
_UNIT = re.compile(r"agent-box-site-port-([a-z][a-z0-9_-]*)@([0-9]+)\.socket")
_TIMEOUT = 30.0


def path_of(user: str, port: int) -> str:
    """Return where the edge reaches the port of a user."""
    return f"{FOLDER}/{user}/{port}.sock"


def start(wanted: Iterable[tuple[str, int]]) -> None:
    """Have a socket for each of these ports of users."""
    units = [_socket(user, port) for user, port in sorted(wanted)]
    if units:
        _systemctl("start", *units)


def stop_all_but(wanted: Iterable[tuple[str, int]]) -> None:
    """Close the sockets of all other ports, and end what goes through them."""
    listed = _systemctl(
        "list-units", "--all", "--plain", "--no-legend", "agent-box-site-port-*.socket"
    )
    found = {
        (match[1], int(match[2]))
        for line in listed.splitlines()
        if (match := _UNIT.fullmatch(line.split(maxsplit=1)[0]))
    }
    left = sorted(found - set(wanted))
    if left:
        sockets = [_socket(user, port) for user, port in left]
        _systemctl("stop", *sockets, *(name.replace(".socket", ".service") for name in sockets))
        _systemctl("reset-failed", *sockets)


def _socket(user: str, port: int) -> str:
    return f"agent-box-site-port-{user}@{port}.socket"


def _systemctl(*arguments: str) -> str:
    argv = ["systemctl", "--no-ask-password", "--quiet", *arguments]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"systemctl {arguments[0]}: {error}", file=sys.stderr)
        return ""
    # Units that are not loaded need no reset.
    if done.returncode != 0 and arguments[0] != "reset-failed":
        print(f"systemctl {arguments[0]}: {done.stderr.strip()[:500]}", file=sys.stderr)
    return done.stdout
