"""A session that takes too much ends itself, and only itself.

The agent here is a few lines of shell, since the stub takes seconds to start under emulation.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside
from agent_box_harness.vendors import Vendors

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = [pytest.mark.needs("memory-limits", "pids-limits"), pytest.mark.shared]

AGENT = """\
#!/bin/sh
while read -r order; do
  case $order in
    eat) exec tail /dev/zero ;; # which waits for the end of a line
    fork) (while :; do sleep 600 & done) ;;
  esac
done
"""


@pytest.mark.limit(200)
def test_memory(box: Box) -> None:
    """A session that eats memory is killed and comes back with the cause `out of memory`;
    siblings, the terminal server and the other user notice nothing.
    """
    view, group = _greedy(box, "eater")
    assert int(box.read(f"{group}/memory.max")) == view["limits"]["memoryMax"]
    # less than the real limit: to fill that, and swap, takes minutes under emulation
    box.succeed(f"echo 64M >{group}/memory.max; echo 0 >{group}/memory.swap.max")
    before = _bystanders(box)
    box.tmux("alice", "send-keys -t =eater: eat Enter").check()

    def out_of_memory() -> dict[str, Any] | None:
        now = box.session("alice", "eater")
        last = now["lastExit"]
        return now if last and last["cause"] == "out of memory" else None

    box.wait_for("the cause `out of memory`", out_of_memory, timeout=90)
    again = box.wait_session("alice", "eater", ("running", "waiting"), timeout=60)
    assert again["pid"] != view["pid"]
    assert again["restarts"] >= 1
    assert _bystanders(box) == before
    assert box.ask_supervisor("alice", "rm", name="eater")


@pytest.mark.limit(200)
def test_forks(box: Box) -> None:
    """A session that forks without end is refused more processes; siblings can still start
    theirs, and the session can be ended.
    """
    view, group = _greedy(box, "forker")
    limit = view["limits"]["tasksMax"]
    assert limit
    assert int(box.read(f"{group}/pids.max")) == limit
    # a smaller limit than the real one: thousands of processes take minutes under emulation
    box.succeed(f"echo 40 >{group}/pids.max")
    before = _bystanders(box)
    box.tmux("alice", "send-keys -t =forker: fork Enter").check()
    box.wait_until_succeeds(f"grep -E '^max [1-9]' {group}/pids.events", timeout=60)
    assert int(box.read(f"{group}/pids.current")) <= 40
    assert _bystanders(box) == before
    box.in_session("alice", "sh -c 'true | true'", session="main").check("a fork in a sibling")
    assert box.ask_supervisor("alice", "rm", name="forker")
    box.wait_until_fails(f"test -e {group}")
    assert _bystanders(box) == before


EATER = "x = bytearray(256 << 20); import time; time.sleep(600)"
"""Four times what the limits below leave."""


@pytest.mark.limit(200)
def test_app_server_counts_with_its_user(box: Box) -> None:
    """The codex app-server is no part of the sandbox, yet of its user: what runs in both shares
    one limit. What takes too much there is ended, or gets no more processes; the app-server,
    the sessions and the other user live on.
    """
    vendors = Vendors(box, "alice")
    vendors.use("codex")
    vendors.credential(".codex/auth.json")
    box.ctl("alice", "add apps --agent codex").check()
    unit = "agent-box-codex-alice.service"
    try:
        server = box.wait_for("the app-server", lambda: outside.main_pid(box, unit))
        whole = outside.group(box, "agent-box-alice.slice")
        part = outside.group(box, unit)
        for group in (part, outside.group(box, outside.sandbox("alice"))):
            assert group.startswith(f"{whole}/")
        total = int(box.succeed("awk '/^MemTotal/ {print $2}' /proc/meminfo")) << 10
        assert 0.75 < int(box.read(f"{whole}/memory.max")) / total < 0.85
        assert int(box.read(f"{whole}/pids.max")) == 8192
        before = _bystanders(box)

        # As what runs in a sandbox is: root's shell is the last that the kernel would choose.
        join = f"echo 500 >/proc/$$/oom_score_adj; echo $$ >{part}/cgroup.procs"
        used = int(box.read(f"{whole}/memory.current"))
        swap = f"echo 0 >{whole}/memory.swap.max"
        box.succeed(f"echo {used + (64 << 20)} >{whole}/memory.max; {swap}")
        eaten = box.run(f"sh -c '{join}; exec python3 -c \"{EATER}\"'", timeout=60)
        assert eaten.rc == 137
        killed = dict(line.split() for line in box.read(f"{part}/memory.events").splitlines())
        assert int(killed["oom_kill"]) == 1
        box.succeed(f"echo max >{whole}/memory.max; echo max >{whole}/memory.swap.max")

        tasks = int(box.read(f"{whole}/pids.current"))
        box.succeed(f"echo {tasks + 5} >{whole}/pids.max")
        forks = "for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait"
        box.expect_in(box.run(f"sh -c '{join}; {forks}'").err, "fork")
        assert _bystanders(box) == before
        assert outside.main_pid(box, unit) == server
    finally:
        box.succeed("systemctl daemon-reload")
        box.ctl("alice", "rm apps").check()
        box.use_real("codex")


def _greedy(box: Box, name: str) -> tuple[dict[str, Any], str]:
    """Start a session of alice that takes what it is told to take; its view and its group."""
    command = shlex.quote(box.agent_link("claude"))
    box.remember_real("claude")
    box.write_file("/opt/greedy-agent", AGENT, mode=0o755)
    box.succeed(f"mkdir -p $(dirname {command}); ln -sfn /opt/greedy-agent {command}")
    assert box.ask_supervisor("alice", "add", name=name, agent="claude")
    view = box.wait_session("alice", name, ("running", "waiting"))
    return view, f"{outside.group(box, outside.sandbox('alice'))}/session-{view['id']}"


def _bystanders(box: Box) -> dict[str, str]:
    """Pids that must survive: servers, supervisors and the other sessions of both users."""
    units = [unit(user) for user in box.users for unit in (outside.sandbox, outside.supervisor)]
    pids = box.succeed(f"systemctl show -P MainPID {' '.join(units)}").split()
    assert "0" not in pids
    found = dict(zip(units, pids, strict=True))
    for user in box.users:
        found[f"{user}/main"] = str(outside.panes(box, user)["main"].pid)
    return found
