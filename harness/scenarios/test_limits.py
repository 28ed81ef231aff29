"""A session that takes too much ends itself, and only itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = [pytest.mark.needs("memory-limits", "pids-limits"), pytest.mark.shared]


@pytest.mark.limit(200)
def test_memory(box: Box):
    """A session that eats memory is killed and comes back with the cause `out of memory`;
    siblings, the terminal server and the other user notice nothing.
    """
    box.use_stub("claude")
    box.ctl("alice", "add eater --agent claude --cwd ~").check()
    view = box.wait_session("alice", "eater", ("running", "waiting"))
    group = f"/sys/fs/cgroup/system.slice/agent-box-alice.service/session-{view['id']}"
    assert int(box.read(f"{group}/memory.max")) == view["limits"]["memoryMax"]
    # less than the real limit: to fill that, and swap, takes minutes under emulation
    box.succeed(f"echo 64M >{group}/memory.max; echo 0 >{group}/memory.swap.max")
    before = _bystanders(box)
    box.ctl("alice", "send eater '!eat 100000'").check()

    def out_of_memory() -> dict[str, Any] | None:
        now = box.session("alice", "eater")
        last = now["lastExit"]
        return now if last and last["cause"] == "out of memory" else None

    box.wait_for("the cause `out of memory`", out_of_memory, timeout=90)
    again = box.wait_session("alice", "eater", ("running", "waiting"), timeout=60)
    assert again["pid"] != view["pid"]
    assert again["restarts"] >= 1
    assert _bystanders(box) == before
    box.ctl("alice", "rm eater").check()


@pytest.mark.limit(200)
def test_forks(box: Box):
    """A session that forks without end is refused more processes; siblings can still start
    theirs, and the session can be ended.
    """
    box.use_stub("claude")
    box.ctl("alice", "add forker --agent claude --cwd ~").check()
    view = box.wait_session("alice", "forker", ("running", "waiting"))
    limit = view["limits"]["tasksMax"]
    assert limit
    # a smaller limit than the real one: thousands of processes take minutes under emulation
    group = f"/sys/fs/cgroup/system.slice/agent-box-alice.service/session-{view['id']}"
    assert int(box.read(f"{group}/pids.max")) == limit
    box.succeed(f"echo 60 >{group}/pids.max")
    before = _bystanders(box)
    box.ctl("alice", "send forker '!fork 500'").check()
    box.wait_until_succeeds(f"grep -E '^max [1-9]' {group}/pids.events", timeout=60)
    assert int(box.read(f"{group}/pids.current")) <= 60
    assert _bystanders(box) == before
    box.in_session("alice", "sh -c 'true | true'", session="main").check("a fork in a sibling")
    box.ctl("alice", "rm forker").check()
    box.wait_until_fails(f"test -e {group}")
    assert _bystanders(box) == before


def _bystanders(box: Box) -> dict[str, int]:
    """Pids that must survive: servers, supervisors and the other sessions of both users."""
    found = {}
    for user in box.users:
        for unit in (outside.sandbox(user), outside.supervisor(user)):
            found[unit] = outside.main_pid(box, unit)
        found[f"{user}/main"] = outside.panes(box, user)["main"].pid
    return found
