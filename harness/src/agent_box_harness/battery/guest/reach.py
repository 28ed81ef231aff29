"""Tells what its own process reaches, and what it reaches through each other process of its user.

The kernel asks for the same user only, and not for the same sandbox: through another process one
stands where that process stands. Nothing is changed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import job, tell
else:  # beside it, inside the guest
    from telling import job, tell

_LIBC = ctypes.CDLL(None, use_errno=True)
_SEIZE, _DETACH = 0x4206, 17


def connects(root: str, path: str) -> bool:
    """Tell whether a socket can be connected to below a root, whatever the length of its name."""
    folder = None
    try:
        folder = os.open(f"{root}{os.path.dirname(path)}", os.O_PATH)  # noqa: PTH120
        near = f"/proc/self/fd/{folder}/{os.path.basename(path)}"  # noqa: PTH119
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as client:
                client.settimeout(2)
                try:
                    client.connect(near)
                    return True
                except OSError as error:
                    if error.errno != errno.EPROTOTYPE:
                        return False
    except OSError:
        return False
    finally:
        if folder is not None:
            os.close(folder)
    return False


def readable(root: str, path: str) -> bool:
    """Tell whether a file or directory can be read below a root."""
    return os.access(f"{root}{path}", os.R_OK)


def writable(root: str, path: str) -> bool:
    """Tell whether a directory takes new entries; a read-only mount does not."""
    return os.access(f"{root}{path}", os.W_OK | os.X_OK)


def power(pid: str) -> dict[str, Any]:
    """Return what a process could do that others could not."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {
        "may gain privileges": fields["NoNewPrivs"] == "0",
        "without a filter of system calls": fields["Seccomp"] == "0",
        "capabilities": int(fields["CapPrm"], 16) | int(fields["CapBnd"], 16),
        "network": os.stat(f"/proc/{pid}/ns/net").st_ino,  # noqa: PTH116
        "group": Path(f"/proc/{pid}/cgroup").read_text().rpartition("::")[2].strip(),
    }


def seized(pid: int) -> bool:
    """Tell whether another process can be steered. It is let go at once."""
    if _LIBC.ptrace(_SEIZE, pid, 0, 0) != 0:
        return False
    # Only a process that stands still can be let go; the end of ours lets go of it, too.
    _LIBC.ptrace(_DETACH, pid, 0, 0)
    return True


def opens(path: str, flags: int) -> bool:
    """Tell whether a file can be opened."""
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


def doors(pid: str) -> list[str]:
    """Return the ways into another process that are open."""
    found = []
    if readable(f"/proc/{pid}/root", "/"):
        found.append("root")
    if readable(f"/proc/{pid}/cwd", "/"):
        found.append("cwd")
    if opens(f"/proc/{pid}/mem", os.O_RDWR):
        found.append("mem")
    try:
        handle = os.pidfd_open(int(pid))
        try:
            got = _LIBC.syscall(438, handle, 0, 0)
            if got >= 0:
                os.close(got)
                found.append("pidfd_getfd")
        finally:
            os.close(handle)
    except OSError:
        pass
    if seized(int(pid)):
        found.append("ptrace")
    return found


def sockets_below(root: str) -> list[str]:
    """Return the sockets that a root shows below /run."""
    found = []
    for folder, _, names in os.walk(f"{root}/run"):
        for name in names:
            try:
                if stat.S_ISSOCK(os.lstat(f"{folder}/{name}").st_mode):
                    found.append(f"{folder}/{name}".removeprefix(root))
            except OSError:
                continue
    return found


def seen(root: str, told: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what can be reached below a root."""
    sockets = sorted({*told["sockets"], *sockets_below(root)})
    return {
        "connect to": [path for path in sockets if connects(root, path)],
        "write in": [path for path in told["folders"] if writable(root, path)],
        "read": [path for path in told["files"] if readable(root, path)],
    }


def main() -> None:
    """Tell of ourselves and of each other process of our user."""
    told = job()
    mine = str(os.getpid())
    own = power(mine)
    result: dict[str, Any] = {"own": {"power": own, "reach": seen("", told)}, "others": {}}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        try:
            if not entry.isdigit() or Path(f"/proc/{entry}").stat().st_uid != os.getuid():
                continue
            theirs = power(entry)
            name = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:60]
            if theirs == own or entry == mine:
                continue
            open_doors = doors(entry)
            result["others"][entry] = {
                "name": name, "power": theirs, "doors": open_doors,
                "reach": seen(f"/proc/{entry}/root", told) if "root" in open_doors else {},
            }  # fmt: skip
        except OSError:
            continue
    tell(result)


if __name__ == "__main__":
    main()
