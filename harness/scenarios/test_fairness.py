"""Who eats, pays: what one user takes is missing to that user first, and never ends or stalls
anything of another.

Names are of no use to an eater, and neither is to spread over many processes, over groups or over
a login beside the sessions.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside
from agent_box_harness.attack import attack_from_login
from agent_box_harness.edge import CROWD, with_cookie
from agent_box_harness.web_figures import patience, percentile

if TYPE_CHECKING:
    from agent_box_harness.box import Box
    from agent_box_harness.edge import Edge

WATCH = "agent-box-memory.service"

HOLD = """\
import ctypes, os, sys, time
size = int(sys.argv[1]) << 20
os.prctl = ctypes.CDLL(None).prctl
os.prctl(15, sys.argv[2].encode(), 0, 0, 0)
held, block = bytearray(), os.urandom(1 << 20)
while len(held) < size:
    held += block
    time.sleep(float(sys.argv[3]))
time.sleep(3600)
"""
"""Takes memory that does not compress, under a name of its choice, one MiB after the other."""

BURN = "while :; do :; done"


def test_memory(box: Box) -> None:
    """bob, spread over many small processes that are called like services, in sessions and in a
    login, uses up the memory: something of his ends each time until there is enough. alice's
    agent, bigger than any process of his, lives, and so does all that the box runs.
    """
    _needs_guest(box)
    box.succeed("swapoff -a")  # to fill it, too, takes minutes under emulation
    box.write_file("/opt/hold.py", HOLD, mode=0o755)
    total = int(box.succeed("awk '/^MemTotal/ {print $2}' /proc/meminfo")) >> 10
    uid = box.run("id -u bob").out
    large = total // 7
    _in_session(box, "alice", "main", f"python3 /opt/hold.py {large} claude 0")
    hers = box.wait_for("her agent", lambda: outside.processes(box, "alice", f"hold.py {large}"))
    box.wait_for(
        "what it takes",
        lambda: int(box.read(f"/proc/{hers[0]}/statm").split()[1]) >> 8 >= large,
        timeout=60,
    )
    before = {**_main_pids(box), "claude": hers[0]}
    small = large // 8
    for name in ("one", "two", "three"):
        box.ctl("bob", f"add {name} --agent shell").check()
        box.wait_session("bob", name, "running")
    for name in ("one", "two", "three"):
        loop = f"for i in $(seq 24); do python3 /opt/hold.py {small} agent-box-x 0.05 & done"
        _in_session(box, "bob", name, loop)
    box.succeed(
        f"systemd-run -q --uid=bob --slice=user-{uid}.slice --unit=eater "
        f"python3 /opt/hold.py {total} 'tmux: server' 0.05"
    )
    ends = f"journalctl -b -q -o cat -u {WATCH} -g 'bob uses most'"
    box.wait_until_succeeds(ends, timeout=120)
    for _ in range(3):
        box.run("sleep 5")
        assert {**_main_pids(box), "claude": hers[0]}.items() >= before.items()
        assert outside.alive(box, hers[0])
    said = outside.journal(box, WATCH)
    assert "alice uses most" not in said
    assert int(box.succeed("awk '/^MemAvailable/ {print $2}' /proc/meminfo")) >> 10 > total // 20
    assert "invoked oom-killer" not in box.run("dmesg").out


def test_cause(box: Box) -> None:
    """A session that ends for lack of memory of the whole box says so, and comes back."""
    _needs_guest(box)
    box.succeed("swapoff -a")
    box.write_file("/opt/hold.py", HOLD, mode=0o755)
    box.ctl("bob", "add eater --agent shell").check()
    view = box.wait_session("bob", "eater", "running")
    # No limit of its own ends it first.
    box.succeed("systemctl set-property --runtime agent-box-bob.slice MemoryMax=infinity")
    group = f"{outside.group(box, outside.sandbox('bob'))}/session-{view['id']}"
    box.succeed(f"echo max >{group}/memory.max")
    # As its first process: whose end is the end of the session.
    _in_session(box, "bob", "eater", "exec python3 /opt/hold.py 4000 eater 0")

    def out_of_memory() -> dict[str, Any] | None:
        now = box.session("bob", "eater")
        return now if (now["lastExit"] or {}).get("cause") == "out of memory" else None

    again = box.wait_for("the cause `out of memory`", out_of_memory, timeout=120)
    assert again["pid"] != view["pid"]
    box.expect_in(outside.journal(box, WATCH), "bob uses most")


@pytest.mark.needs("memory-limits")
def test_share_of_processors(edge: Edge) -> None:
    """bob burns all processors with dozens of programs in sessions and fills the queue of the
    disk; alice, with one program for each processor, gets about half, and her keys come back fast.
    """
    box = edge.box
    cpus = int(box.succeed("nproc"))
    for user, count in (("bob", 12 * cpus), ("alice", cpus)):
        box.ctl(user, "add burner --agent shell").check()
        box.wait_session(user, "burner", "running")
        _in_session(box, user, "burner", f"for i in $(seq {count}); do ({BURN}) & done")
    write = "dd if=/dev/zero of=~/big$i bs=1M count=64 oflag=direct conv=notrunc"
    loop = f"for i in 1 2 3 4; do (while :; do {write}; done) >/dev/null 2>&1 & done"
    _in_session(box, "bob", "main", loop)
    box.run(f"sleep {2 + box.machine.time_factor / 3:g}")

    used = [_usage(box)]
    box.run(f"sleep {5 + box.machine.time_factor / 3:g}")
    used.append(_usage(box))
    share = {user: used[1][user] - used[0][user] for user in box.users}
    assert 0.35 < share["alice"] / sum(share.values()) < 0.65

    headers = [*with_cookie(edge.sign_in("alice")), ("Origin", edge.origin)]
    steps: list[dict[str, Any]] = [
        {"do": "open", "as": "a", "target": "/alice/t/main/ws", "headers": headers},
        {"do": "read", "as": "a", "until": "$"},
        {"do": "echo", "as": "a", "count": 100},
    ]
    echo = edge.steps(steps, program=CROWD, timeout=180)[-1]["milliseconds"]
    assert percentile(echo, 0.99) < 50 * patience(box), sorted(echo)[-5:]


@pytest.mark.needs("kernel")
def test_share_of_disks(box: Box) -> None:
    """The disk is shared by a scheduler that knows of weights, and users have equal ones."""
    disk = box.succeed("lsblk -no PKNAME,NAME $(findmnt -no SOURCE /)").split()[-1]
    assert "[bfq]" in box.read(f"/sys/block/{disk}/queue/scheduler")
    for user in box.users:
        group = outside.group(box, f"agent-box-{user}.slice")
        assert "100" in box.read(f"{group}/io.bfq.weight")
        assert int(box.read(f"{group}/cpu.weight")) == 100


@pytest.mark.shared
def test_all_that_runs_as_a_user_counts_for_the_user(edge: Edge) -> None:
    """Every service that runs as a user is in that user's slice, as systemd sees it."""
    box = edge.box
    units = box.succeed(
        "systemctl list-unit-files --no-legend --type=service 'agent-box-*' | awk '{print $1}'"
    ).split()
    units = [unit.replace("@.", "@3000.") for unit in units]
    shown = box.succeed(f"systemctl show -p Id,User,Slice,OOMScoreAdjust {' '.join(units)}")
    found: dict[str, int] = {}
    for block in shown.replace("\r", "").split("\n\n"):
        unit = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        user = unit.get("User", "")
        if user not in box.users:
            continue
        found[user] = found.get(user, 0) + 1
        assert unit["Slice"] == f"agent-box-{user}.slice", unit
        # Nobody may hide behind a unit that ends last.
        assert int(unit["OOMScoreAdjust"]) >= 0, unit
    assert min(found[user] for user in box.users) >= 6, found


@pytest.mark.shared
def test_logins(box: Box) -> None:
    """A login has the limits of its user, again after it ended, and after a reload of systemd."""
    for user in box.users:
        uid = box.run(f"id -u {user}").out
        agents = _limits(box, f"agent-box-{user}.slice")
        assert "infinity" not in agents.values()
        for change in ("true", "systemctl daemon-reload", "true"):
            box.succeed(change)
            unit = f"login-{user}"
            run = f"systemd-run -q --uid={user} --slice=user-{uid}.slice --unit={unit}"
            box.succeed(f"{run} --service-type=exec sleep 600")
            assert _limits(box, f"user-{uid}.slice") == agents
            box.succeed(f"systemctl stop {unit} && systemctl stop user-{uid}.slice")


@pytest.mark.shared
def test_nothing_stays_of_a_login(box: Box) -> None:
    """No user keeps a manager of services running, whatever polkit allows; the note of an earlier
    version that lets one is gone after the next boot.
    """
    rules = box.read("/etc/polkit-1/rules.d/10-agent-box.rules")
    assert json.dumps(box.users, separators=(",", ":")) in rules
    uid = box.run("id -u bob").out
    call = "busctl call org.freedesktop.login1 /org/freedesktop/login1"
    scripts = {
        "loginctl": "loginctl --no-ask-password enable-linger",
        "member": f"{call} org.freedesktop.login1.Manager SetUserLinger ubb {uid} true false",
        "without-interface": raw("linger"),
        "noted": "test -e /var/lib/systemd/linger/bob",
    }
    for rule in ("", "polkit.addRule(function () { return polkit.Result.YES; });"):
        # The second time polkit would let everybody do everything.
        box.succeed(f"echo {shlex.quote(rule)} >/etc/polkit-1/rules.d/00-scenario.rules")
        box.run("systemctl restart polkit").check()
        outcomes = attack_from_login(box, "bob", scripts, {})
        box.expect_in(outcomes.pop("without-interface").output, DENIED)
        assert {name: o for name, o in outcomes.items() if o.through} == {}
    box.succeed("rm /etc/polkit-1/rules.d/00-scenario.rules")
    box.succeed("mkdir -p /var/lib/systemd/linger; touch /var/lib/systemd/linger/bob")
    box.succeed("systemd-tmpfiles --create --remove /etc/tmpfiles.d/agent-box.conf")
    assert box.run("test -e /var/lib/systemd/linger/bob").rc != 0
    box.succeed("loginctl enable-linger bob && loginctl disable-linger bob")  # root can


SECRET = "prompt-of-alice-74310"

ASK = """\
bus=org.freedesktop.systemd1; path=/org/freedesktop/systemd1; unit=agent-box-alice.service
owner=$(busctl call org.freedesktop.DBus / org.freedesktop.DBus GetNameOwner s $bus | cut -d'"' -f2)
"""

RAW = """\
import os, socket, struct, sys
def pad(data, to):
    return data + bytes(-len(data) % to)
def text(words):
    return struct.pack("<I", len(words)) + words.encode() + bytes(1)
def call(serial, to, path, member, signature="", body=b""):
    fields = b""
    for code, kind, value in ((1, "o", path), (3, "s", member), (6, "s", to), (8, "g", signature)):
        if value:
            value = bytes((len(value),)) + value.encode() + bytes(1) if kind == "g" else text(value)
            fields = pad(fields, 8) + bytes((code, 1, ord(kind), 0)) + value
    head = struct.pack("<cBBBIII", b"l", 1, 0, 1, len(body), serial, len(fields))
    return pad(head + fields, 8) + body
bus = socket.socket(socket.AF_UNIX)
bus.connect("/run/dbus/system_bus_socket")
bus.settimeout(2)
me, line = os.getuid(), bytes((13, 10))
bus.sendall(bytes(1) + b"AUTH EXTERNAL " + str(me).encode().hex().encode() + line)
bus.recv(200)
bus.sendall(b"BEGIN" + line)
bus.sendall(call(1, "org.freedesktop.DBus", "/org/freedesktop/DBus", "Hello"))
units, logins = (("org.freedesktop." + s, "/org/freedesktop/" + s) for s in ("systemd1", "login1"))
if sys.argv[1:] == ["linger"]:
    bus.sendall(call(2, *logins, "SetUserLinger", "ubb", struct.pack("<III", me, 1, 0)))
else:
    bus.sendall(call(2, *units, "GetUnitProcesses", "s", text("agent-box-alice.service")))
try:
    while data := bus.recv(1 << 16):
        print(data.decode("latin-1"))
except TimeoutError:
    pass
"""
"""Asks for something without naming an interface, which no tool does."""

DENIED = "org.freedesktop.DBus.Error.AccessDenied"


def raw(what: str) -> str:
    return f"python3 - {what} <<'EOF'\n{RAW}\nEOF"


TELLS = {
    "status": "systemctl status --no-pager -l agent-box-alice.service",
    "status-of-slice": "systemctl status --no-pager -l agent-box-alice.slice",
    "unit-processes": "busctl call $bus $path $bus.Manager GetUnitProcesses s $unit",
    "by-number": "busctl call $owner $path $bus.Manager GetUnitProcesses s $unit",
    "of-the-unit": "busctl call $bus $path/unit/agent_2dbox_2dalice_2eservice $bus.Service "
    "GetProcesses",
    "of-the-slice": "busctl call $bus $path/unit/agent_2dbox_2dalice_2eslice $bus.Slice "
    "GetProcesses",
    "without-interface": raw(""),
    "dump": "systemd-analyze dump --no-pager agent-box-alice.service | grep .",
    "varlink": "varlinkctl call --more /run/systemd/io.systemd.Manager io.systemd.Unit.List '{}'",
    "cgls": "systemd-cgls --no-pager -l; ps auxww",
}
"""Everything on the bus, and on sockets like it, that could tell of processes."""


@pytest.mark.shared
def test_nobody_tells_of_processes_of_others(box: Box) -> None:
    """systemd, asked in each spelling by a login of bob, does not show command lines of alice,
    and shows them to root.
    """
    box.in_session("alice", f"setsid bash -c 'exec -a {SECRET} sleep 600' >/dev/null 2>&1 &")
    box.wait_for("her process", lambda: outside.processes(box, "alice", SECRET))
    scripts = {name: f"{ASK}\n({script}) 2>&1 | grep -F {SECRET}" for name, script in TELLS.items()}
    outcomes = attack_from_login(box, "bob", scripts, {})
    assert {name: o for name, o in outcomes.items() if o.through} == {}
    box.expect_in(box.run("systemctl status --no-pager -l agent-box-alice.service"), SECRET)
    # Denied, and not only found empty.
    refused = {name: f"{ASK}\n{TELLS[name]}" for name in ("unit-processes", "by-number", "dump")}
    for name, outcome in attack_from_login(box, "bob", refused, {}).items():
        assert not outcome.through, (name, outcome)
    plain = attack_from_login(box, "bob", {"plain": raw("")}, {})["plain"]
    box.expect_in(plain.output, DENIED)
    # What the settings page asks.
    box.as_user("bob", "systemctl show -P ActiveState agent-box-bob.service").check()


def _needs_guest(box: Box) -> None:
    if "memory-limits" not in box.machine.capabilities:
        pytest.skip("to use up the memory of this machine would end other things than the guest's")


def _in_session(box: Box, user: str, name: str, command: str) -> None:
    box.tmux(user, f"send-keys -t ={name}: {shlex.quote(command)} Enter").check()


def _main_pids(box: Box) -> dict[str, int]:
    """Pids of what must survive: everything but bob's."""
    units = ["agent-box-gate", "caddy", "agent-box-memory", "systemd-journald", "agent-box-alice",
             "agent-box-supervisor-alice", "agent-box-terminal-alice"]  # fmt: skip
    return {unit: outside.main_pid(box, f"{unit}.service") for unit in units}


def _usage(box: Box) -> dict[str, int]:
    """Microseconds of processors that each user has used since the boot."""
    found = {}
    for user in box.users:
        group = outside.group(box, f"agent-box-{user}.slice")
        fields = box.read(f"{group}/cpu.stat").split()
        found[user] = int(fields[fields.index("usage_usec") + 1])
    return found


def _limits(box: Box, unit: str) -> dict[str, str]:
    shown = box.succeed(f"systemctl show -p MemoryMax,TasksMax,CPUWeight,IOWeight {unit}")
    return dict(line.split("=", 1) for line in shown.splitlines())
