"""A change of password is whole: it ends what it must, or nothing has happened."""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside
from agent_box_harness.edge import PASSWORDS, Ask, Edge, page_headers, with_cookie

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.limit(240), pytest.mark.renewed("module")]

GATE = "agent-box-gate.service"
STATE = "/var/lib/agent-box-gate"
NEW = "cobalt Heron/lantern-wüste-29"

WRITES = "openat,write,fchmod,fsync,/^rename,/^unlink,sendto"
"""System calls that make a change, or tell of one."""


UNTRACE = "pkill -x strace; while pgrep -x strace >/dev/null; do sleep 0.05; done"

BACK = "timeout 30 sh -c 'until agent-box-gate status >/dev/null 2>&1; do sleep 0.1; done'"
"""Waits until the gate answers."""

PID = f"systemctl show -P MainPID {GATE}"


def command(text: str) -> dict[str, Any]:
    """Return a step that runs a command beside the requests."""
    return {"do": "run", "command": text}


def change(edge: Edge, cookie: str, current: str, new: str) -> Ask:
    """Return what the settings page sends."""
    body = json.dumps({"current": current, "new": new})
    return Ask("/gate/password", "POST", page_headers(edge, with_cookie(cookie)), body)


def page(cookie: str, user: str = "alice") -> Ask:
    return Ask(f"/{user}/api/sessions", headers=with_cookie(cookie))


def terminal(name: str, user: str, cookie: str, edge: Edge) -> dict[str, Any]:
    headers = [*with_cookie(cookie), ("Origin", edge.origin)]
    return {"do": "open", "as": name, "target": f"/{user}/t/main/ws", "headers": headers}


def test_what_it_ends(edge: Edge) -> None:
    """The old password and every login of before are dead, Basic ones too, and their terminals
    closed; the page that made the change goes on, and other users notice nothing.
    """
    box = edge.box
    here, there, bob = edge.sign_in("alice"), edge.sign_in("alice"), edge.sign_in("bob")
    old, new = edge.basic("alice", PASSWORDS["alice"]), edge.basic("alice", NEW)
    before = [Ask("/alice/api/sessions", headers=old), page(there), page(bob, "bob")]
    assert [answer.status for answer in edge.ask(before)] == [200, 200, 200]
    found = edge.steps(
        [
            terminal("here", "alice", here, edge), {"do": "read", "as": "here", "until": "$"},
            terminal("there", "alice", there, edge), {"do": "read", "as": "there", "until": "$"},
            terminal("bob", "bob", bob, edge), {"do": "read", "as": "bob", "until": "$"},
            change(edge, here, PASSWORDS["alice"], NEW).step(),
            {"do": "read", "as": "here"}, {"do": "read", "as": "there"},
            *(ask.step() for ask in (*before, page(here), Ask("/alice/api/sessions", headers=new))),
            edge.form("alice", PASSWORDS["alice"]).step(), edge.form("alice", NEW).step(),
            {"do": "type", "as": "bob", "text": "echo =$((6*7))=\r"},
            {"do": "read", "as": "bob", "until": "=42="},
        ]
    )  # fmt: skip
    assert found[6]["status"] == 200
    for closed in found[7:9]:
        assert closed["closed"]
        assert "Your login has ended" in closed["text"]
    assert [result["status"] for result in found[9:14]] == [401, 401, 200, 401, 200]
    assert [result["status"] for result in found[14:16]] == [401, 303]
    assert "=42=" in found[-1]["text"]
    fresh = dict(found[6]["headers"])["set-cookie"].partition(";")[0]
    assert edge.ask([page(fresh)])[0].status == 200
    assert outside.processes(box, "alice", "tmux .* attach") == []
    box.succeed("agent-box-gate unban --all")


def traced(point: tuple[str, int] | None) -> str:
    """Return a command that follows the gate's system calls; at `point` that kills it."""
    inject = "" if point is None else f" -e inject={point[0]}:signal=KILL:when={point[1]}"
    return (
        f"rm -f /tmp/trace; pid=$(systemctl show -P MainPID {GATE}); "
        f"setsid strace -f -qq -o /tmp/trace -e trace={WRITES}{inject} -p $pid "
        "</dev/null >/dev/null 2>&1 & "
        f"pid=$(systemctl show -P MainPID {GATE}); "
        "until grep -q '^TracerPid:.*[1-9]' /proc/$pid/status; do sleep 0.05; done"
    )


def points(text: str) -> list[tuple[str, int]]:
    """Return each system call of a trace as its name and how many of that name it is."""
    counts: collections.Counter[str] = collections.Counter()
    found = []
    for line in text.splitlines():
        name = line.split(None, 1)[1].partition("(")[0]
        if name.isalpha():  # and not the second half of one that was interrupted
            counts[name] += 1
            found.append((name, counts[name]))
    return found


def test_killed_at_every_point(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """The gate is killed before each system call with which it carries out a change. When it is
    back, everything is as before, or the change is done, all of it; other users notice nothing.
    """
    box = edge.box
    passwords = {False: PASSWORDS["bob"], True: NEW}
    alice = edge.sign_in("alice")
    changed = False
    bob = edge.sign_in("bob")
    box.succeed(traced(None))
    assert edge.ask([change(edge, bob, passwords[False], passwords[True])])[0].status == 200
    box.run(UNTRACE)
    changed = True
    trail = points(box.read("/tmp/trace"))
    assert len({name for name, _ in trail}) >= 5, trail
    measured("points at which the gate is killed", len(trail))
    outcomes = []
    for point in trail:
        # One address fails often here.
        login = edge.form("bob", passwords[changed]).step()
        _, *entered = edge.steps([command("agent-box-gate unban --all"), login, login])
        bob, other = (each.one("set-cookie").partition(";")[0] for each in edge.read(entered))
        attempt = change(edge, bob, passwords[changed], passwords[not changed])
        looks = [
            *(edge.form("bob", passwords[done]) for done in (changed, not changed)),
            *(page(bob, "bob"), page(other, "bob"), page(alice)),
        ]
        found = edge.steps(
            [
                command(f"{PID}; {traced(point)}"), attempt.step(),
                command(f"{UNTRACE}; {BACK}"), command(PID), *(look.step() for look in looks),
                command("agent-box-gate logins --json"),
                command("find /run/agent-box-gate/live -type f -printf '%f\\n'"),
                command(f"ls -A {STATE}"),
            ]
        )  # fmt: skip
        assert found[0]["rc"] == 0, found[0]
        killed = found[0]["output"].split()[0] != found[3]["output"].strip()
        answer, *answers = edge.read([found[1], *found[4:9]])
        logins, live, state = (each["output"] for each in found[9:])
        right = [each.status == 303 for each in answers[:2]]
        assert right in ([True, False], [False, True]), (point, right)
        here, there, hers = answers[2:]
        assert {here.status, there.status} == {200 if right[0] else 401}
        assert hers.status == 200, point
        if answer.status == 200:
            assert right[1], point
        if not killed:
            assert answer.status == 200, (point, answer)
        # A terminal stays open exactly as long as the file of its login.
        assert set(live.split()) == {each["id"] for each in json.loads(logins)}, point
        assert state.split() == ["gate.json", "gate.json.lock"], point
        outcomes.append((point, killed, answer.status, right[0]))
        changed = changed is not right[1]
    assert sum(killed for _, killed, _, _ in outcomes) > len(outcomes) / 2, outcomes
    # 0: between the head of the answer and its body
    assert {status for _, killed, status, _ in outcomes if killed} <= {0, 200, 503}, outcomes
    # Both came out, so that the deadly points lay on both sides of the change.
    assert {right for _, killed, _, right in outcomes if killed} == {True, False}, outcomes
