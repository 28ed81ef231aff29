"""Looks, as root, at every socket that has a path: who serves it, and who may change its path."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import tell
else:  # beside it, inside the guest
    from telling import tell


_SKIPPED = {"/proc", "/sys", "/dev"}
_ROOTS = ("/run", "/tmp", "/var", "/home", "/root", "/srv")  # noqa: S108 - where sockets are


def sockets() -> list[str]:
    """Return the paths of all socket files."""
    found = []
    for root in _ROOTS:
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if f"{folder}/{name}" not in _SKIPPED]
            for name in names:
                path = f"{folder}/{name}"
                try:
                    if stat.S_ISSOCK(os.lstat(path).st_mode):
                        found.append(path)
                except OSError:
                    continue
    return sorted(found)


def chain(path: str) -> list[dict[str, Any]]:
    """Return what each part of a path is, from `/` to the path itself."""
    parts = [*reversed(Path(path).parents), Path(path)]
    found = []
    for part in parts:
        info = part.lstat()
        try:
            acl = any(name.startswith("system.posix_acl") for name in os.listxattr(
                part, follow_symlinks=False))  # fmt: skip
        except OSError:
            acl = False
        found.append({"path": str(part), "uid": info.st_uid, "gid": info.st_gid,
                      "mode": stat.S_IMODE(info.st_mode), "link": stat.S_ISLNK(info.st_mode),
                      "acl": acl})  # fmt: skip
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def activated() -> dict[str, dict[str, str]]:
    """Return, for each path that systemd listens on, socket unit, service and its user."""
    found = {}
    text = _output("systemctl", "list-units", "--all", "--plain", "--no-legend", "--type=socket")
    units = [line.split()[0] for line in text.splitlines() if line.strip()]
    shown = _output("systemctl", "show", "-p", "Id,Listen,Triggers,SocketUser", *units)
    for block in shown.split("\n\n"):
        listed = [line.partition("=") for line in block.splitlines()]
        unit = next((value for name, _, value in listed if name == "Id"), "")
        service = next((value for name, _, value in listed if name == "Triggers"), "")
        for name, _, value in listed:
            if name == "Listen" and value.startswith("/"):
                found[value.split(" ")[0]] = {"socket": unit, "service": service}
    services = sorted({entry["service"] for entry in found.values() if entry["service"]})
    shown = _output("systemctl", "show", "-p", "Id,User,DynamicUser", *services)
    users = {}
    for block in shown.split("\n\n"):
        pairs = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        users[pairs.get("Id", "")] = pairs.get("User", "")
    for entry in found.values():
        entry["user"] = users.get(entry["service"], "") or "root"
    return found


def listeners() -> dict[str, dict[str, Any]]:
    """Return, for each bound path, the first process that holds it and is not systemd."""
    found = {}
    for line in _output("ss", "-Hxlp").splitlines():
        words = line.split()
        holders = re.findall(r'\("([^"]*)",pid=(\d+)', line)
        path = next((word for word in words if word.startswith("/")), "")
        for name, pid in holders:
            if pid == "1" or not path:
                continue
            try:
                uid = Path(f"/proc/{pid}").stat().st_uid
                group = Path(f"/proc/{pid}/cgroup").read_text().rpartition(":")[2].strip()
            except OSError:
                continue
            unit = next((part for part in reversed(group.split("/")) if "." in part), "")
            found[path] = {"name": name, "pid": int(pid), "user": name_of(uid), "unit": unit}
            break
    return found


def name_of(uid: int) -> str:
    """Return the name of a user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def main() -> None:
    """Tell of all sockets and of all accounts."""
    by_unit, by_process = activated(), listeners()
    found = []
    for path in sockets():
        try:
            parts = chain(path)
        except OSError:
            continue
        unit, process = by_unit.get(path, {}), by_process.get(path, {})
        owner = name_of(parts[-1]["uid"])
        found.append({
            "path": path,
            "chain": parts,
            "socket_unit": unit.get("socket", ""),
            "service": unit.get("service") or process.get("unit", ""),
            # Who cannot be found speaks for the owner of the file.
            "served_by": unit.get("user") or process.get("user") or owner,
            "owner": owner,
        })  # fmt: skip
    groups = {entry.gr_name: {"gid": entry.gr_gid, "members": entry.gr_mem}
              for entry in grp.getgrall()}  # fmt: skip
    users = {entry.pw_name: {"uid": entry.pw_uid, "gid": entry.pw_gid} for entry in pwd.getpwall()}
    tell({"sockets": found, "users": users, "groups": groups})


if __name__ == "__main__":
    main()
