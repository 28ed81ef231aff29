"""Where a part of the browser side is down, nobody gets in, and a page says what to do."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness.edge import CROWD, PASSWORDS, Ask, Edge, page_headers, with_cookie
from agent_box_harness.routes import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]


PAGES = ("/alice/", "/alice/settings/", "/alice/t/main/")


def test_gate_down(edge: Edge) -> None:
    """Without the gate nobody gets in, and everybody is told what to do; back it lets in whom it
    did before, and open terminals have stayed.
    """
    cookie = with_cookie(edge.sign_in("alice"))
    units = "agent-box-gate.service agent-box-gate.socket agent-box-gate-admin.socket"
    units += " agent-box-gate-known.socket"
    page = (*cookie, ("Accept", "text/html"))
    shut = [
        Ask(path, headers=cookie) for route, path in paths("alice") if route.path != "/USER/webhook"
    ]
    asks = [*(ask for ask in shut if "webhook" not in ask.target), Ask("/alice/", headers=page)]
    steps: list[dict[str, Any]] = [
        {"do": "open", "as": "a", "target": "/alice/t/main/ws",
         "headers": [*cookie, ("Origin", edge.origin)]},
        {"do": "read", "as": "a", "until": "$"},
        {"do": "run", "command": f"systemctl stop {units}"},
        *(ask.step() for ask in asks),
        {"do": "run", "command": f"systemctl start {units}"},
        {"do": "type", "as": "a", "text": "echo =$((3+3))=\r"},
        {"do": "read", "as": "a", "until": "=6="},
        Ask("/alice/", headers=cookie).step(),
    ]  # fmt: skip
    found = edge.steps(steps, timeout=120)
    down = found[3 : 3 + len(asks)]
    assert {result["status"] for result in down} == {503}
    assert "<h1>Not answering</h1>" in down[-1]["body"]
    assert "systemctl status agent-box-gate" in down[-1]["body"]
    assert "=6=" in found[-2]["text"]
    assert found[-1]["status"] == 200


def test_gate_restarted(edge: Edge) -> None:
    """A gate that is started anew, as by an update, answers the edge and root as before, and logins
    go on.
    """
    cookie = with_cookie(edge.sign_in("alice"))
    for _ in range(2):
        edge.box.succeed("systemctl restart agent-box-gate.service")
        asked = edge.box.run("agent-box-gate status")
        assert asked.rc == 0, asked
        assert edge.ask([Ask("/alice/", headers=cookie)])[0].status == 200


def test_service_down(edge: Edge) -> None:
    """Where a user's own service is down, a page says which and what to do; it comes back by
    itself when it was only killed.
    """
    box = edge.box
    cookie = (*with_cookie(edge.sign_in("alice")), ("Accept", "text/html"))
    box.succeed("systemctl kill --signal=KILL agent-box-terminal-alice.service")
    opening = {
        "do": "open", "as": "a", "target": "/alice/t/main/ws",
        "headers": [*with_cookie(edge.sign_in("alice")), ("Origin", edge.origin)],
    }  # fmt: skip
    assert edge.steps([opening])[0]["status"] == 101
    # The settings service is there again when the next request is; an open stream has ended.
    found = edge.steps(
        [
            {"do": "stream", "as": "s", "target": "/alice/events", "headers": cookie},
            {"do": "heard", "as": "s", "text": "event: snapshot"},
            {
                "do": "run",
                "command": "systemctl kill --signal=KILL agent-box-settings-alice.service",
            },
            Ask("/alice/api/sessions", headers=cookie).step(),
            {"do": "stream", "as": "t", "target": "/alice/events", "headers": cookie},
            {"do": "heard", "as": "t", "text": "event: snapshot"},
        ],
        program=CROWD,
    )
    assert [found[number]["status"] for number in (0, 3, 4)] == [200, 200, 200]
    assert "main" in found[5]["text"]
    box.succeed("systemctl stop agent-box-terminal-alice.service agent-box-settings-alice.socket "
                "agent-box-settings-alice.service")  # fmt: skip
    (answer,) = edge.ask([Ask("/alice/api/sessions", headers=cookie)])
    assert answer.status == 503
    assert "systemctl status agent-box-settings-alice" in answer.body
    assert answer.one("strict-transport-security")
    assert edge.steps([opening])[0]["status"] == 503
    # The pages themselves are files: they say what is missing, and go on when it is there.
    assert {edge.ask([Ask(path, headers=cookie)])[0].status for path in PAGES} == {200}
    box.succeed("systemctl start agent-box-terminal-alice.service agent-box-settings-alice.socket")


def fill(box: Box, folder: str) -> None:
    """Leave no room on the file system of a folder."""
    box.run(f"cat /dev/zero >{folder}/fill 2>/dev/null; sync")
    box.fail(f"echo x >{folder}/one-more && rm {folder}/one-more")


@contextlib.contextmanager
def small_disk(box: Box, folder: str, size: str, units: str) -> Iterator[None]:
    """Have a file system of its own under a folder, with what was in it, while units are down.

    Afterwards the folder is what it was before.
    """
    box.succeed(
        f"systemctl stop {units} && cp -a {folder} /root/copy && "
        f"mount -t tmpfs -o size={size} tmpfs {folder} && cp -a /root/copy/. {folder}/ && "
        f"rm -r /root/copy && systemctl start {units}"
    )
    yield
    box.succeed(f"systemctl stop {units} && umount {folder} && systemctl start {units}")


def test_gate_without_disk(edge: Edge) -> None:
    """On a full disk the gate lets in who has a password, changes nothing that it cannot keep and
    says so; a restart meanwhile costs the new logins alone. With room again, all works again.
    """
    box = edge.box
    state = "/var/lib/agent-box-gate"
    units = "agent-box-gate.socket agent-box-gate-admin.socket agent-box-gate.service"
    before = edge.sign_in("alice")
    with small_disk(box, state, "64k", units):
        gate_on_small_disk(edge, state, before)


def gate_on_small_disk(edge: Edge, state: str, before: str) -> None:
    """What a gate does whose disk fills up and has room again."""
    box = edge.box
    new = "cobalt Heron/lantern-wüste-29"
    body = json.dumps({"current": PASSWORDS["alice"], "new": new})

    def changing(cookie: str) -> Ask:
        return Ask("/gate/password", "POST", page_headers(edge, with_cookie(cookie)), body)

    def page(cookie: str) -> Ask:
        return Ask("/alice/api/sessions", headers=with_cookie(cookie))

    fill(box, state)
    content = box.read(f"{state}/gate.json")
    (refused,) = edge.ask([changing(before)])
    assert refused.status == 507
    assert "No space left on device" in refused.body
    assert "nothing was changed" in refused.body
    assert box.read(f"{state}/gate.json") == content
    old = edge.form("alice", PASSWORDS["alice"])
    assert [answer.status for answer in edge.ask([page(before), old])] == [200, 303]
    during, leaving = edge.sign_in("alice"), edge.sign_in("alice")
    out = (*with_cookie(leaving), ("Origin", edge.origin), ("Sec-Fetch-Site", "same-origin"))
    found = edge.ask([page(before), page(during), edge.form("alice", new),
                      Ask("/logout", "POST", out), page(leaving)])  # fmt: skip
    assert [answer.status for answer in found] == [200, 200, 401, 507, 401]
    assert "is its disk full?" in found[3].body

    box.succeed("systemctl kill --signal=KILL agent-box-gate.service")
    box.wait_until_succeeds("agent-box-gate status")
    found = edge.ask([page(before), page(during), old])
    assert [answer.status for answer in found] == [200, 401, 303]
    box.succeed(f"rm {state}/fill")
    found = edge.ask([changing(before), page(before), old])
    assert [answer.status for answer in found] == [200, 401, 401]
    after = found[0].one("set-cookie").partition(";")[0]
    box.succeed("systemctl kill --signal=KILL agent-box-gate.service")
    box.wait_until_succeeds("agent-box-gate status")
    assert edge.ask([page(after)])[0].status == 200


def test_home_without_room(edge: Edge) -> None:
    """Where a home is full, its pages say so and lose nothing: list, secrets and files stay as they
    were, sessions and terminals go on. With room again, all works again.
    """
    box = edge.box
    home = box.home("alice")
    units = " ".join(
        f"agent-box-{part}" for part in ("alice.service", "supervisor-alice.service",
                                         "settings-alice.socket", "terminal-alice.service")
    )  # fmt: skip
    with small_disk(box, home, "8m", f"agent-box-settings-alice.service {units}"):
        home_on_small_disk(edge, home)


def home_on_small_disk(edge: Edge, home: str) -> None:
    """What alice's pages do when her home fills up and has room again."""
    box, own = edge.box, f"{home}/.config/agent-box"
    box.wait_session("alice", "main", "running")
    cookie = with_cookie(edge.sign_in("alice"))
    headers = page_headers(edge, cookie)
    binary = page_headers(edge, cookie, "application/octet-stream")

    def attempts() -> list[Ask]:
        return [
            Ask("/alice/api/env", "POST", headers, json.dumps({"values": {"TOKEN": "two"}})),
            Ask(
                "/alice/api/sessions", "POST", headers, json.dumps({"name": "x", "agent": "shell"})
            ),
            Ask("/alice/api/sessions/main/rename", "POST", headers, json.dumps({"newName": "y"})),
            Ask("/alice/api/uploads/plan.txt", "PUT", binary, "x" * 9000),
        ]

    first = Ask("/alice/api/env", "POST", headers, json.dumps({"values": {"TOKEN": "one"}}))
    assert edge.ask([first])[0].status == 200
    box.as_user("alice", "mkdir -p uploads").check()
    fill(box, home)
    kept = {name: box.read(f"{own}/{name}") for name in ("sessions.json", "env")}
    pid = box.session("alice", "main")["pid"]
    for ask, answer in zip(attempts(), edge.ask(attempts()), strict=True):
        assert answer.status in (413, 500), (ask, answer)
        message = json.loads(answer.body)["error"]["message"]
        assert "No space left on device" in message or "does not fit" in message, (ask, message)
    assert {name: box.read(f"{own}/{name}") for name in kept} == kept
    assert box.succeed(f"ls -A {home}/uploads") == ""
    found = edge.steps(
        [
            Ask("/alice/", headers=cookie).step(),
            Ask("/alice/api/sessions", headers=cookie).step(),
            {"do": "open", "as": "a", "target": "/alice/t/main/ws",
             "headers": [*cookie, ("Origin", edge.origin)]},
            {"do": "type", "as": "a", "text": "echo =$((4*4))=\r"},
            {"do": "read", "as": "a", "until": "=16="},
        ]
    )  # fmt: skip
    assert [result["status"] for result in found[:3]] == [200, 200, 101]
    assert [view["name"] for view in json.loads(found[1]["body"])["sessions"]] == ["main"]
    assert "=16=" in found[-1]["text"]
    box.succeed(f"rm {home}/fill")
    # but the upload, which leaves more free than this disk is large
    assert [answer.status for answer in edge.ask(attempts()[:3])] == [200, 201, 200]
    assert box.session("alice", "y")["pid"] == pid
    assert "TOKEN" in box.read(f"{own}/env")


def test_supervisor_down(edge: Edge) -> None:
    """Without their supervisor the pages stay, say so and refuse in words what they cannot do;
    terminals go on. An open page hears of its return by itself.
    """
    unit = "agent-box-supervisor-alice.service"
    cookie = with_cookie(edge.sign_in("alice"))
    adding = Ask(
        "/alice/api/sessions", "POST", page_headers(edge, cookie), json.dumps({"name": "x"})
    )
    steps: list[dict[str, Any]] = [
        {"do": "stream", "as": "s", "target": "/alice/events", "headers": cookie},
        {"do": "heard", "as": "s", "text": '"state":"up"'},
        {"do": "run", "command": f"systemctl stop {unit}"},
        {"do": "heard", "as": "s", "text": '"state":"down"'},
        Ask("/alice/", headers=cookie).step(), adding.step(),
        {"do": "open", "as": "a", "target": "/alice/t/main/ws",
         "headers": [*cookie, ("Origin", edge.origin)]},
        {"do": "type", "as": "a", "text": "echo =$((5*5))=\r"},
        {"do": "read", "as": "a", "until": "=25="},
        {"do": "run", "command": f"systemctl start {unit}"},
        {"do": "heard", "as": "s", "text": '"state":"up"'},
        {"do": "run", "command": f"systemctl kill --signal=KILL {unit}"},
        {"do": "heard", "as": "s", "text": '"state":"down"'},
        {"do": "heard", "as": "s", "text": '"state":"up"'},
        adding.step(),
    ]  # fmt: skip
    found = edge.steps(steps, program=CROWD, timeout=120)
    assert [found[number]["status"] for number in (0, 4, 5, 6)] == [200, 200, 503, 101]
    assert "your sessions go on meanwhile" in found[3]["text"]
    message = json.loads(found[5]["body"])["error"]["message"]
    assert "systemctl status agent-box-supervisor-alice" in message
    assert "=25=" in found[8]["text"]
    for number in (1, 10, 13):
        assert found[number]["text"], number
    assert found[-1]["status"] == 201
    edge.box.ctl("alice", "rm x").check("rm x")


def test_gate_hangs(edge: Edge) -> None:
    """A gate that does not answer lets nobody in either; the edge gives up in words."""
    box = edge.box
    cookie = (*with_cookie(edge.sign_in("alice")), ("Accept", "text/html"))
    box.succeed("systemctl kill --signal=STOP agent-box-gate.service")
    # longer than the edge waits
    step = {**Ask("/alice/", headers=cookie).step(), "seconds": 45}
    (result,) = edge.steps([step], timeout=60)
    assert result["status"] == 503
    assert "systemctl status agent-box-gate" in result["body"]
    box.succeed("systemctl kill --signal=CONT agent-box-gate.service")
    assert edge.ask([Ask("/alice/", headers=cookie)])[0].status == 200
