"""What a session reaches through other processes of its user, and not by itself.

A sandbox belongs to a unit, while the kernel judges by the user: whatever else runs as bob, less
confined than his session, is a door out of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_box_harness.battery import confinement, inside, sockets
from agent_box_harness.battery.ground import ATTACKER

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground

FOLDERS = [
    "/", "/etc", "/usr", "/opt", "/var", "/var/lib", "/run", "/run/lock", "/srv", "/home",
    "/home/alice", "/home/bob", "/root", "/sys/fs/cgroup", "/dev",
    "/dev/shm", "/dev/mqueue",  # noqa: S108 - others share them
]  # fmt: skip
"""Directories in which a process may or may not write."""
FILES = ["/run/dbus", "/run/credentials", "/var/log/journal", "/home/alice", "/proc/kmsg"]

OF_SIBLINGS = {f"/run/agent-box-ttyd/{ATTACKER}"}
"""Directories of the user's that only the service for which they are can write to."""

IN_A_LOGIN = "sleep 1234"
"""What bob left running in a login."""


def reached(ground: Ground, *, login: bool) -> dict[str, Any]:
    """Look from a session of bob's, beside all services of his; with `login`, a login, too."""
    box = ground.box
    view = sockets.look(box)
    slots = sorted({part.path for each in view.sockets for part in each.chain[1:-1]})
    host = int(box.succeed("stat -Lc %i /proc/1/ns/net"))
    job = {
        "sockets": [socket.path for socket in view.sockets],
        "folders": sorted({*FOLDERS, *slots}),
        "files": FILES,
    }
    services = confinement.names_of(box, f"'agent-box*-{ATTACKER}.service'")
    if login:
        box.as_user(ATTACKER, f"setsid {IN_A_LOGIN} >/dev/null 2>&1 </dev/null &")
    try:
        with confinement.started(box, services):
            told: dict[str, Any] = inside.run(box, "reach", job, stand=inside.Stand.SESSION)
            told["host"] = host
    finally:
        if login:
            box.run(f"pkill -u {ATTACKER} -f '^{IN_A_LOGIN}$'")
    return told


def escapes(told: dict[str, Any], *, login: bool) -> list[str]:
    """Say what is reached through the user's services, or through what a login left."""
    own = told["own"]
    found = []
    for pid, other in told["others"].items():
        # The harness itself has a process of his, to get into the session.
        of_ours = IN_A_LOGIN in other["name"] if login else "/agent-box" in other["power"]["group"]
        if not of_ours:
            continue
        unit = other["power"]["group"].rstrip("/").split("/")
        who = f"{other['name'].strip()} ({pid}, {'/'.join(unit[-2:])})"
        for verb, paths in other["reach"].items():
            more = sorted(set(paths) - set(own["reach"][verb]) - OF_SIBLINGS)
            if more:
                found.append(f"through /proc/{pid}/root of {who} it may {verb} {', '.join(more)}")
        if {"ptrace", "mem"} & set(other["doors"]):
            found += [
                f"by {' or '.join({'ptrace', 'mem'} & set(other['doors']))} of {who} it {gain}"
                for gain in _gains(own["power"], other["power"], told["host"])
            ]
    return found


def _gains(own: dict[str, Any], other: dict[str, Any], host: int) -> list[str]:
    """Say what a process has that one's own has not."""
    found = [
        f"{'becomes one that ' if name.startswith('may') else 'is '}{name}"
        for name in ("may gain privileges", "without a filter of system calls")
        if other[name] and not own[name]
    ]
    if other["capabilities"] & ~own["capabilities"]:
        found.append(f"has capabilities {other['capabilities'] & ~own['capabilities']:x}")
    if other["network"] == host != own["network"]:
        found.append("is in the network of the host, with what listens on its localhost")
    if "/system.slice/" in other["group"] and "/system.slice/" not in own["group"]:
        found.append("leaves the limits of its user for system.slice")
    return found
