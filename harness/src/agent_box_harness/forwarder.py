"""Forwards a port into a container for as long as that runs, whoever started it.

`lasting` starts this module as a process of its own: whoever boots a box and leaves it running must
not take its address away by ending. It ends with the container, through a restart from within, too.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from agent_box_harness.errors import MachineError
from agent_box_harness.netns import PortForward

_LEAVING = 2.0  # seconds that the forward of a machine which has just ended may take to end
_RESTART = 30.0  # seconds that a container may take for its next systemd


def lasting(pid: int, leader: int, host: int, guest: int) -> int:
    """Forward until the container of process `pid`, in which `leader` is systemd, has ended.

    Returns the port on the host.
    """
    argv = [sys.executable, "-m", __name__, *map(str, (pid, leader, host, guest))]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, cwd="/",
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    with process.stdout:
        said = process.stdout.readline().decode().strip()
    if not said.isdigit():
        process.wait()
        raise MachineError(f"port {host} cannot be forwarded: {said or 'no word'}")
    # It outlives us on purpose, and nobody waits for it.
    process.returncode = 0
    return int(said)


def listens(port: int) -> bool:
    """Tell whether anybody takes connections at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def child(pid: int) -> int:
    """Return the only child of a process, 0 where there is none: systemd below systemd-nspawn."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(found[0]) if found else 0


def main(pid: int, leader: int, host: int, guest: int) -> None:
    """Forward, and tell the port on standard output."""
    container = os.pidfd_open(pid)
    try:
        forward = _forward(leader, host, guest)
    except (MachineError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return
    sys.stdout.write(f"{forward.port}\n")
    sys.stdout.flush()
    # Whoever started this may read until the end.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    while _until_ended(container, leader):
        forward.close()
        leader = _next(container, pid)
        if leader:
            forward = PortForward(leader, forward.port, guest)


def _forward(leader: int, host: int, guest: int) -> PortForward:
    end = time.monotonic() + _LEAVING
    while True:
        try:
            return PortForward(leader, host, guest)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
        time.sleep(0.1)


def _until_ended(container: int, leader: int) -> bool:
    """Wait until systemd or the whole container has ended; tell whether the container goes on."""
    try:
        inside = os.pidfd_open(leader)
    except OSError:
        return not select.select([container], [], [], 0.2)[0]
    try:
        return container not in select.select([container, inside], [], [])[0]
    finally:
        os.close(inside)


def _next(container: int, pid: int) -> int:
    """Return the systemd of a container that restarts."""
    end = time.monotonic() + _RESTART
    while time.monotonic() < end and not select.select([container], [], [], 0.2)[0]:
        if found := child(pid):
            return found
    return 0


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
