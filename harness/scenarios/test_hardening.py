"""What a session can and cannot do, seen from inside the sandbox itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import outside
from agent_box_harness.attack import attack_as_root, attack_from_login, attack_from_session
from agent_box_harness.exposure import CEILINGS, measure
from agent_box_harness.internet import WORLD, internet

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box

DEVICES = frozenset(
    "char core fd full hugepages log mqueue null ptmx pts random shm stderr stdin stdout tty "  # noqa: SIM905
    "urandom zero".split()
)
"""Everything that may be in /dev of a session."""

METADATA = "169.254.169.254"
PORT = 8169  # the edge has port 80 of all addresses


@dataclass(frozen=True)
class Wall:
    """Something that must not work inside a sandbox; the script exits 0 if it does."""

    name: str
    script: str
    control: str
    """Who can do it outside: `login` (the same user), `root`, or nobody in every guest."""
    users: tuple[str, ...] = ("alice", "bob")


def python(text: str) -> str:
    return f"python3 - <<'EOF'\nimport ctypes, os, socket\n{text}\nEOF"


def connect(path: str) -> str:
    return python(f"socket.socket(socket.AF_UNIX).connect('{path}')")


WALLS = (
    # the file system
    Wall("write-usr", "touch /usr/probe; rm /usr/probe", "root"),
    Wall("write-etc", "touch /etc/probe; rm /etc/probe", "root"),
    Wall("write-var", "touch /var/probe; rm /var/probe", "root"),
    Wall("read-write-root", "grep -E '^[^ ]+ / .* rw[, ]' /proc/self/mounts", "login"),
    Wall("home-of-the-other", 'test "$(ls /home | wc -l)" -gt 1', "login"),
    Wall("home-of-root", "ls /root", "root"),
    Wall("run-user", "test -n \"$(ls /run/user)\"", "login"),
    Wall("make-setuid", "touch f; chmod u+s f", "login"),
    Wall("make-setgid", "mkdir d; chmod g+s d", "login"),
    # the kernel
    Wall("tunables", "grep -E '^[^ ]+ (/proc/sys|/sys) [^ ]+ rw' /proc/self/mounts"
         " || ! grep -q ' /proc/sys ' /proc/self/mounts", "nobody"),
    Wall("symbols", "cat /proc/kallsyms | grep . ", "nobody"),
    Wall("log", "dmesg || head -c 1 /proc/kmsg", "nobody"),
    Wall("modules", "ls /usr/lib/modules/ || ls /run/current-system/kernel-modules", "nobody"),
    Wall("clock", python("import time\ntime.clock_settime(0, time.time())"), "nobody"),
    Wall("personality", "setarch -R true", "login"),
    Wall("keyring", python("assert ctypes.CDLL(None).syscall(250, 0, -4, 1) >= 0"), "login"),
    Wall("block-devices", "test -n \"$(find /dev -type b)\"", "nobody"),
    Wall("devices", "ls /dev | grep -vxF \"$DEVICES\"", "root"),
    # processes, messages, services
    Wall("first-process", "ps -p 1", "root"),
    Wall("process-of-root", "test -n \"$(ps -o pid= -u root)\"", "root"),
    Wall("system-bus", connect("/run/dbus/system_bus_socket"), "login"),
    Wall("systemd-varlink", connect("/run/systemd/io.systemd.Manager"), "login"),
    Wall("login-varlink", connect("/run/systemd/io.systemd.Login"), "login"),
    Wall("systemd-private", connect("/run/systemd/private"), "root"),
    Wall("own-user-manager", python(
        "socket.socket(socket.AF_UNIX).connect(f'/run/user/{os.getuid()}/systemd/private')"),
        "login"),
    Wall("group-of-others", "ls -d /sys/fs/cgroup/*.slice", "login"),
    # privileges
    Wall("setuid-program", "! sudo -n -l 2>&1 | grep 'new privileges'", "login", ("bob",)),
    Wall("capabilities", "grep -E '^Cap(Eff|Prm|Amb):.*[1-9a-f]' /proc/self/status", "root"),
    Wall("bounding-set", "grep -E '^CapBnd:.*[1-9a-f]' /proc/self/status", "login", ("bob",)),
    Wall("dangerous-bounding-set", python(
        "line = [x for x in open('/proc/self/status') if x.startswith('CapBnd')][0]\n"
        "dangerous = (12, 13, 16, 17, 19, 21, 22, 25, 38, 39)\n"
        "assert int(line.split()[1], 16) & sum(1 << n for n in dangerous)"), "root"),
)  # fmt: skip

WORKS = {
    "own home": "echo x >~/probe && rm ~/probe",
    "own configuration": "mkdir -p ~/.config/probe && rmdir ~/.config/probe",
    "temporary files": "for d in /tmp /var/tmp; do echo x >$d/probe && rm $d/probe; done",
    "shared memory": "echo x >/dev/shm/probe && rm /dev/shm/probe",
    "no core dumps": 'test "$(ulimit -Sc)" = 0 && ulimit -c unlimited',
    "private files by default": 'test "$(umask)" = 0077',
    "own processes": 'ps -p $$ && test "$(ps -o user= -p $$)" = "$(id -un)"',
    "name service": "getent hosts localhost && id alice && id bob",
    "groups of its own": "mkdir /sys/fs/cgroup/probe && rmdir /sys/fs/cgroup/probe",
}
"""What must go on working behind all these walls."""


@pytest.mark.shared
@pytest.mark.limit(200)
def test_walls(box: Box):
    """Root, other homes and processes, devices, kernel, buses and new privileges are out of
    reach inside a session, and within reach of the same user, or of root, outside.
    """
    box.run("loginctl enable-linger alice && loginctl enable-linger bob").check()
    for user in box.users:
        uid = box.run(f"id -u {user}").out
        box.wait_for_file(f"/run/user/{uid}/systemd/private")
    facts = {"DEVICES": "\n".join(sorted(DEVICES))}
    fallen = []
    for user in box.users:
        scripts = {wall.name: wall.script for wall in WALLS if user in wall.users}
        for name, outcome in attack_from_session(box, user, scripts, facts).items():
            if outcome.through:
                fallen.append(f"{user}: {name}: {outcome.output}")
    assert fallen == []
    for control, attack in (
        ("login", lambda scripts: attack_from_login(box, "bob", scripts, facts)),
        ("root", lambda scripts: attack_as_root(box, scripts, facts)),
    ):
        scripts = {wall.name: wall.script for wall in WALLS if wall.control == control}
        refused = {name: o for name, o in attack(scripts).items() if not o.through}
        assert refused == {}, f"not even {control} can"


@pytest.mark.shared
def test_what_works(box: Box):
    """Home, temporary files, shared memory and control groups of its own are a session's to use."""
    for user in box.users:
        outcomes = attack_from_session(
            box, user, {name.replace(" ", "-"): script for name, script in WORKS.items()}, {}
        )
        assert {name: o for name, o in outcomes.items() if not o.through} == {}


@pytest.mark.shared
def test_no_new_privileges(box: Box):
    """NoNewPrivileges is on exactly when the user may run nothing as root, in each pane, too."""
    for user, expected in (("alice", "0"), ("bob", "1")):
        pane = outside.panes(box, user)["main"].pid
        for pid in (pane, outside.main_pid(box, outside.sandbox(user))):
            status = box.run(f"cat /proc/{pid}/status").check().out
            assert re.search(r"^NoNewPrivs:\s*(\d)", status, re.MULTILINE)[1] == expected
            assert re.search(r"^Seccomp:\s*(\d)", status, re.MULTILINE)[1] == "2"
        supervisor = outside.main_pid(box, outside.supervisor(user))
        box.expect_in(box.run(f"cat /proc/{supervisor}/status"), "NoNewPrivs:\t1")


@pytest.mark.shared
def test_exposure(box: Box, measured: Callable[[str, float], None]):
    """No unit is more exposed, by systemd's own count, than it ever was."""
    found = measure(box)
    for unit, score in found.items():
        measured(f"exposure of {unit}", score)
    assert {unit: score for unit, score in found.items() if score > CEILINGS[unit]} == {}


@pytest.mark.shared
def test_one_tmp(box: Box):
    """A directory in /tmp that a session names is the same for the supervisor."""
    box.in_session("alice", "mkdir /tmp/project").check()
    added = box.in_session("alice", "agent-box-session add in-tmp --agent shell --cwd /tmp/project")
    assert added.rc == 0, added
    view = box.wait_session("alice", "in-tmp", "running")
    assert box.run(f"readlink /proc/{view['pid']}/cwd").out.endswith("/tmp/project")
    box.ctl("alice", "rm in-tmp").check()


@pytest.mark.needs("kernel")
def test_metadata(box: Box):
    """The addresses at which clouds hand out credentials answer root, and neither a session nor a
    login of a user, who is outside of any sandbox.
    """
    with internet(box) as world:
        world.run(f"ip addr add {METADATA}/32 dev eth0").check()
        box.succeed(f"ip route add {METADATA} via {WORLD}")
        world.serve(PORT)
        fetch = f"curl -sS -o /dev/null --connect-timeout 5 http://{{}}:{PORT}/"
        there, elsewhere = fetch.format(METADATA), fetch.format(WORLD)
        box.wait_until_succeeds(f"{there} && {elsewhere}")
        for user in box.users:
            for run in (box.in_session, box.as_user):
                # the network as such works, so that the refusal means something
                run(user, f"sh -c '{elsewhere} && ! {there}'").check(
                    "from here, and not from there"
                )
        # The packet filter refuses a login, and the sandbox a session without its help.
        box.succeed("nft delete table inet agent-box-metadata")
        for user in box.users:
            box.as_user(user, there).check()
            assert box.in_session(user, there).rc != 0
