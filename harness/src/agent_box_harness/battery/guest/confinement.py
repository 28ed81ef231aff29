"""Tells, from /proc, what the processes of units are really confined to."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import job, tell
else:  # beside it, inside the guest
    from telling import job, tell

NAMESPACES = ("net", "ipc", "mnt", "pid", "user", "uts", "cgroup")


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def status(pid: str) -> dict[str, str]:
    """Return the fields of a process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def namespaces(pid: str) -> dict[str, int]:
    """Return the number of each namespace."""
    return {name: Path(f"/proc/{pid}/ns/{name}").stat().st_ino for name in NAMESPACES}


def mounts(pid: str) -> dict[str, dict[str, str]]:
    """Return what is mounted where, the last one of each place."""
    found = {}
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        _, _, _, root, place, options, *_ = left.split()
        kind, source, above = right.split(" ", 2)
        found[re.sub(r"\\040", " ", place)] = {
            "root": root, "options": options, "kind": kind, "source": source, "super": above,
        }  # fmt: skip
    return found


def hidden(pid: str, paths: list[str]) -> dict[str, str]:
    """Say of each path that is to be inaccessible how it is for the process: `` if it is."""
    found = {}
    for path in paths:
        inside = f"/proc/{pid}/root{path}"
        try:
            info = os.stat(inside)  # noqa: PTH116 - through a magic link
        except OSError:
            continue
        if info.st_mode & 0o777:
            found[path] = f"mode {info.st_mode & 0o777:o}"
    return found


def listing(pid: str, folder: str) -> list[str]:
    """Return what the process sees in a directory."""
    try:
        return sorted(os.listdir(f"/proc/{pid}/root{folder}"))  # noqa: PTH208
    except OSError:
        return []


def limits(pid: str) -> dict[str, str]:
    """Return the hard limits of a process."""
    found = {}
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        name, _, rest = line.partition("  ")
        found[name.strip()] = rest.split()[1]
    return found


def group(pid: str) -> dict[str, str]:
    """Return what the process's control group says about its limits."""
    path = Path(f"/proc/{pid}/cgroup").read_text().rpartition("::")[2].strip()
    folder = Path("/sys/fs/cgroup" + path)
    found = {"path": path}
    for name in ("memory.max", "pids.max"):
        for each in (folder, *folder.parents):  # a delegated one has a part for its processes
            if (each / name).exists():
                found[name] = (each / name).read_text().strip()
                break
    return found


def look(pid: str, unreachable: list[str]) -> dict[str, Any]:
    """Return all that is known of one process."""
    return {
        "pid": pid,
        "status": status(pid),
        "namespaces": namespaces(pid),
        "mounts": mounts(pid),
        "visible": hidden(pid, unreachable),
        "home": listing(pid, "/home"),
        "dev": listing(pid, "/dev"),
        "limits": limits(pid),
        "group": group(pid),
        "oom": Path(f"/proc/{pid}/oom_score_adj").read_text().strip(),
    }


def main() -> None:
    """Tell of each unit that has a process: what it declares, and what is."""
    told = job()
    found: dict[str, Any] = {}
    for unit in told["units"]:
        shown = output("systemctl", "show", unit)
        declared = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        pid = declared.get("MainPID", "0")
        if pid == "0":
            continue
        closed = [path.lstrip("-+") for path in declared.get("InaccessiblePaths", "").split()]
        try:
            found[unit] = {"declared": declared, "real": look(pid, closed)}
        except OSError as error:
            found[unit] = {"error": str(error)}
    paths = {path: Path(path).stat().st_ino for path in told["paths"] if Path(path).exists()}
    tell({"units": found, "first": namespaces("1"), "paths": paths})


if __name__ == "__main__":
    main()
