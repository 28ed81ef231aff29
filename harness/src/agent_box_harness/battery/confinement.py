"""What units declare about their confinement, and what their processes are really confined to.

systemd may not do what a unit asks for: it may lack the means, or another setting may win. So each
setting is looked up in /proc. What has no process is started with its settings and nothing to do.
"""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness.battery import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_box_harness.box import Box

PATTERNS = "'agent-box*.service' caddy.service fail2ban.service earlyoom.service"

_IDLE = """\
[Unit]
ConditionPathExists=
AssertPathExists=
[Service]
Type=exec
ExecStart=
ExecStart={sleep} 300
ExecStartPre=
ExecStartPost=
ExecStop=
ExecStopPost=
Restart=no
WatchdogSec=0
RemainAfterExit=no
"""


@dataclass(frozen=True)
class Unit:
    """A unit with what it declares and what its process is."""

    name: str
    declared: dict[str, str]
    real: dict[str, Any]
    first: dict[str, int]
    """Namespaces of pid 1."""
    paths: dict[str, int]
    """Namespaces that have a path."""

    def says(self, setting: str) -> str:
        """Return the value of a setting, its extended form where it has one."""
        extended = self.declared.get(f"{setting}Ex", "")
        plain = self.declared.get(setting, "")
        return extended if extended and not extended.startswith("[") else plain

    def asks(self, setting: str) -> bool:
        """Tell whether a setting asks for anything."""
        return self.says(setting) not in ("", "no", "false", "default")

    def own(self, namespace: str) -> bool:
        """Tell whether it has another namespace than pid 1."""
        return bool(self.real["namespaces"][namespace] != self.first[namespace])

    def mount(self, path: str) -> dict[str, str]:
        """Return what is mounted at a path, or at the closest directory above."""
        mounts: dict[str, dict[str, str]] = self.real["mounts"]
        while path not in mounts and path != "/":
            path = path.rpartition("/")[0] or "/"
        return mounts.get(path, {})

    def read_only(self, path: str) -> bool:
        """Tell whether nothing can be written at a path."""
        found = self.mount(path)
        return "ro" in found["options"].split(",") or "ro" in found["super"].split(",")


def _namespace(setting: str, name: str) -> Callable[[Unit], str]:
    def rule(unit: Unit) -> str:
        if unit.asks(setting) and not unit.own(name):
            return f"{setting}={unit.says(setting)}, but it is in the host's {name} namespace"
        return ""

    return rule


def _named(setting: str, name: str) -> Callable[[Unit], str]:
    def rule(unit: Unit) -> str:
        path = unit.says(setting)
        if path and unit.real["namespaces"][name] != unit.paths.get(path):
            return f"{setting}={path}, but its {name} namespace is another"
        return ""

    return rule


def _network(unit: Unit) -> str:
    asked = unit.says("NetworkNamespacePath")
    return "" if asked else _namespace("PrivateNetwork", "net")(unit)


def _privileges(unit: Unit) -> str:
    if unit.says("NoNewPrivileges") == "yes" and unit.real["status"]["NoNewPrivs"] != "1":
        return "NoNewPrivileges=yes, but its process may gain privileges"
    return ""


def _filter(unit: Unit) -> str:
    asked = [name for name in ("SystemCallFilter", "RestrictAddressFamilies", "RestrictNamespaces",
                               "RestrictRealtime", "LockPersonality", "RestrictSUIDSGID")
             if unit.asks(name)]  # fmt: skip
    if asked and unit.real["status"]["Seccomp"] != "2":
        return f"{', '.join(asked)}, but no filter of system calls is in force"
    return ""


_CAPABILITIES = [
    f"cap_{name}"
    for line in (
        "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap",
        "linux_immutable net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner",
        "sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice",
        "sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap",
        "mac_override mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf",
        "checkpoint_restore",
    )
    for name in line.split()
]
"""By number."""


def _capabilities(unit: Unit) -> str:
    allowed = sum(
        1 << _CAPABILITIES.index(name)
        for name in unit.says("CapabilityBoundingSet").split()
        if name in _CAPABILITIES
    )
    for name in ("CapBnd", "CapEff", "CapPrm", "CapAmb"):
        more = int(unit.real["status"][name], 16) & ~allowed
        if more:
            return f"CapabilityBoundingSet, but {name} has {more:x} beyond it"
    return ""


def _identity(unit: Unit) -> str:
    user, uid = unit.says("User") or "root", unit.real["status"]["Uid"].split()[0]
    is_root = uid == "0"
    if (user == "root") != is_root and unit.says("DynamicUser") != "yes":
        return f"User={user}, but it runs as uid {uid}"
    return ""


def _tmp(unit: Unit) -> str:
    places: dict[str, Any] = unit.real["mounts"]
    if unit.asks("PrivateTmp") and not {"/tmp", "/var/tmp"} <= places.keys():  # noqa: S108
        return "PrivateTmp, but it sees everybody's /tmp or /var/tmp"
    return ""


def _home(unit: Unit) -> str:
    asked = unit.says("ProtectHome")
    if asked == "read-only":
        return "" if unit.read_only("/home") else "ProtectHome=read-only, but /home is writable"
    if asked in ("yes", "tmpfs"):
        bound = f"{unit.says('BindPaths')} {unit.says('BindReadOnlyPaths')}"
        more = [name for name in unit.real["home"] if f"/home/{name}" not in bound]
        if more:
            return f"ProtectHome={asked}, but it sees /home/{more[0]}"
    return ""


def _proc(unit: Unit) -> str:
    options = f"{unit.mount('/proc')['super']},{unit.mount('/proc')['options']}".split(",")
    if unit.says("ProtectProc") == "invisible" and not {"hidepid=invisible", "hidepid=2"} & {
        *options
    }:
        return f"ProtectProc=invisible, but its /proc has {','.join(options)}"
    if unit.says("ProcSubset") == "pid" and "subset=pid" not in options:
        return f"ProcSubset=pid, but its /proc has {','.join(options)}"
    return ""


def _devices(unit: Unit) -> str:
    more = {"kmsg", "mem", "kvm", "fuse"} & {*unit.real["dev"]}
    if unit.asks("PrivateDevices") and more:
        return f"PrivateDevices, but it sees /dev/{min(more)}"
    return ""


def _system(unit: Unit) -> str:
    if unit.says("ProtectSystem") != "strict":
        return ""
    allowed = unit.says("ReadWritePaths")
    for path in ("/", "/usr", "/etc", "/var", "/opt"):
        if path not in allowed and not unit.read_only(path):
            return f"ProtectSystem=strict, but {path} is writable"
    return ""


def _kernel(unit: Unit) -> str:
    there = unit.says("ProcSubset") != "pid"  # else there is no /proc/sys
    if there and unit.asks("ProtectKernelTunables") and not unit.read_only("/proc/sys"):
        return "ProtectKernelTunables, but /proc/sys is writable"
    control = unit.says("ProtectControlGroups")
    if control in ("yes", "strict") and not unit.read_only("/sys/fs/cgroup"):
        return f"ProtectControlGroups={control}, but /sys/fs/cgroup is writable"
    if control in ("private", "strict") and not unit.own("cgroup"):
        return f"ProtectControlGroups={control}, but it is in the host's cgroup namespace"
    return ""


def _closed(unit: Unit) -> str:
    visible: dict[str, str] = unit.real["visible"]
    return "".join(f"InaccessiblePaths={path}, but {how}" for path, how in visible.items())


def _limits(unit: Unit) -> str:
    limits, group = unit.real["limits"], unit.real["group"]
    asked, has = unit.says("LimitNOFILE"), limits["Max open files"]
    if asked.isdigit() and (has == "unlimited" or int(has) > int(asked)):  # a container has less
        return f"LimitNOFILE={asked}, but it is {has}"
    asked = unit.says("OOMScoreAdjust")
    if asked.isdigit() and asked != unit.real["oom"]:  # less than nothing a container has not
        return f"OOMScoreAdjust={asked}, but it is {unit.real['oom']}"
    for setting, name in (("MemoryMax", "memory.max"), ("TasksMax", "pids.max")):
        asked = unit.says(setting).replace("infinity", "max")
        if asked not in ("", "max") and name in group and group[name] != asked:
            return f"{setting}={asked}, but {name} is {group[name]}"
    return ""


def _slice(unit: Unit) -> str:
    asked = unit.says("Slice")
    if asked and asked != "-.slice" and f"/{asked}/" not in unit.real["group"]["path"]:
        return f"Slice={asked}, but it is in {unit.real['group']['path']}"
    return ""


RULES = (
    _network,
    _named("NetworkNamespacePath", "net"),
    _named("IPCNamespacePath", "ipc"),
    _namespace("PrivateIPC", "ipc"),
    _namespace("PrivateUsers", "user"),
    _namespace("PrivatePIDs", "pid"),
    _namespace("ProtectHostname", "uts"),
    _privileges, _filter, _capabilities, _identity, _tmp, _home, _proc, _devices, _system,
    _kernel, _closed, _limits, _slice,
)  # fmt: skip


def broken(units: list[Unit]) -> list[str]:
    """Say what units declare and do not have."""
    found = [
        f"{unit.name}: {complaint}" for unit in units for rule in RULES if (complaint := rule(unit))
    ]
    return found + _shared(units)


def _shared(units: list[Unit]) -> list[str]:
    """Say which private namespaces processes of different users share."""
    found = []
    for name in ("net", "ipc", "user", "mnt", "pid"):
        users: dict[int, dict[str, str]] = {}
        for unit in units:
            if unit.own(name):
                number = unit.real["namespaces"][name]
                users.setdefault(number, {})[unit.says("User") or "root"] = unit.name
        found += [
            f"{', '.join(sorted(names.values()))} share one {name} namespace, though they run as "
            f"{', '.join(sorted(names))}"
            for names in users.values()
            if len(names) > 1
        ]
    return found


def names_of(box: Box, patterns: str = PATTERNS) -> list[str]:
    """Return the names of units."""
    listed = box.succeed(f"systemctl list-units --all --plain --no-legend {patterns}")
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def look(box: Box) -> list[Unit]:
    """Look at each unit that has a process."""
    names = names_of(box)
    shown = box.succeed(f"systemctl show -p NetworkNamespacePath,IPCNamespacePath {PATTERNS}")
    paths = {value for line in shown.splitlines() if (value := line.partition("=")[2])}
    with started(box, names):
        found = inside.run(box, "confinement", {"units": names, "paths": sorted(paths)})
    return [
        Unit(name, told["declared"], told["real"], found["first"], found["paths"])
        for name, told in found["units"].items()
        if "error" not in told
    ]


@contextlib.contextmanager
def started(box: Box, names: list[str]) -> Iterator[None]:
    """Have each unit run that does not, with all its settings and nothing to do."""
    states = box.succeed(f"systemctl show -p Id,MainPID {' '.join(map(shlex.quote, names))}")
    idle = [
        dict(line.split("=", 1) for line in block.splitlines())["Id"]
        for block in states.split("\n\n")
        # Networks run nothing, and what is in one would end with it.
        if "MainPID=0" in block.splitlines() and "Id=agent-box-network" not in block
    ]
    quoted = " ".join(map(shlex.quote, idle))
    text = _IDLE.format(sleep=box.succeed("readlink -f $(command -v sleep)").strip())
    dropped = "".join(
        f"mkdir -p /run/systemd/system/{unit}.d\n"
        f"printf %s {shlex.quote(text)} >/run/systemd/system/{unit}.d/zz-battery.conf\n"
        for unit in idle
    )
    box.succeed(f"{dropped}systemctl daemon-reload\nsystemctl stop {quoted}")
    box.run(f"systemctl start {quoted}")
    try:
        yield
    finally:
        box.succeed(
            "rm -f /run/systemd/system/*.d/zz-battery.conf; systemctl daemon-reload; "
            f"systemctl stop {quoted}; systemctl reset-failed"
        )
