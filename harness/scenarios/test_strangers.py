"""Strangers hold what they can hold and leave when they like: nobody who is signed in waits for
them, no delivery that is signed is lost, and the journal stays as it is.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside, strangers, web_figures
from agent_box_harness.edge import CROWD, FOLDER, Ask, Edge, page_headers, with_cookie
from agent_box_harness.sender import Sender, issue

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box

pytestmark = [pytest.mark.limit(240), pytest.mark.renewed("module")]

SECONDS = 40.0
"""For which strangers hold what they have, and begin anew what the edge ends."""
WAIT = 500.0
"""Milliseconds in which 99 of 100 requests of who is signed in are answered meanwhile."""
GROWTH = 256.0
"""MB by which the edge may grow."""


class Strangers:
    """Who has no business here."""

    def __init__(self, edge: Edge) -> None:
        self.edge, self.box = edge, edge.box
        content = Path(strangers.__file__).read_bytes()
        self.box.machine.write_file(f"{FOLDER}/strangers.py", content, mode=0o755)

    def job(self, **job: Any) -> str:
        job = {"domain": self.edge.domain, "address": "127.0.0.1", **job}
        return f"echo {shlex.quote(json.dumps(job))} | python3 {FOLDER}/strangers.py"

    def begin(self, name: str, path: str, **job: Any) -> None:
        """Have them hold requests in the background."""
        job = {"do": "hold", "path": path, "connections": 8, "streams": 230, "body": 0,
               "declared": 100, "seconds": SECONDS, "done": f"/tmp/{name}.done",
               **job}  # fmt: skip
        script = f"{self.job(**job)} >/tmp/{name}.tmp 2>&1; mv /tmp/{name}.tmp /tmp/{name}.out"
        # Nothing of it may keep the shell from telling that the command has ended.
        self.box.succeed(
            f"rm -f /tmp/{name}.out /tmp/{name}.done",
            f"setsid sh -c {shlex.quote(script)} </dev/null >/dev/null 2>&1 &",
        )

    def hold(self, name: str) -> bool:
        """Tell whether they have not let go yet."""
        return self.box.run(f"test -e /tmp/{name}.done").rc != 0

    def end(self, name: str) -> dict[str, Any]:
        """Wait for the end of it."""
        self.box.wait_until_succeeds(f"test -e /tmp/{name}.out", timeout=90)
        found: dict[str, Any] = json.loads(self.box.read(f"/tmp/{name}.out"))
        return found

    def leave(self, *paths: str, times: int) -> int:
        command = self.job(do="leave", paths=paths, times=times)
        found: dict[str, int] = json.loads(self.box.succeed(command, timeout=120))
        return found["requests"]


@pytest.fixture
def many(edge: Edge) -> Strangers:
    return Strangers(edge)


def memory(box: Box, unit: str) -> float:
    """Return the resident memory of a service in MB."""
    status = box.read(f"/proc/{outside.main_pid(box, unit)}/status")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def lines(box: Box, unit: str) -> int:
    box.succeed("journalctl --sync")
    return int(box.succeed(f"journalctl -b -o cat _SYSTEMD_UNIT={unit} | wc -l"))


def repeated(edge: Edge, count: int, cookie: str) -> tuple[set[int], list[float]]:
    """Have alice ask again and again."""
    step = Ask("/alice/api/sessions", headers=with_cookie(cookie)).step()
    (found,) = edge.steps([{**step, "do": "repeat", "count": count}], program=CROWD, timeout=90)
    return set(found["statuses"]), found["milliseconds"]


def test_held_requests(edge: Edge, many: Strangers, measured: Callable[[str, float], None]) -> None:
    """While 1,840 requests with bodies that never end are held at the login page, alice works on,
    at once; and a stranger with a password gets in.
    """
    box = edge.box
    cookie = edge.sign_in("alice")
    factor = web_figures.patience(box)
    statuses, calm = repeated(edge, 100, cookie)
    assert statuses == {200}
    before = {unit: memory(box, f"{unit}.service") for unit in ("caddy", "agent-box-gate")}
    many.begin("held", "/login")
    box.succeed("sleep 2")
    began = time.monotonic()
    assert edge.sign_in("bob")
    measured("sign-in of bob meanwhile, s", time.monotonic() - began)
    assert many.hold("held")
    statuses, milliseconds = repeated(edge, 200, cookie)
    assert statuses == {200}
    late = web_figures.percentile(milliseconds, 0.99)
    for unit, was in before.items():
        measured(f"growth of {unit}, MB", memory(box, f"{unit}.service") - was)
    measured("requests of alice before, 99 of 100, ms", web_figures.percentile(calm, 0.99))
    measured("requests of alice meanwhile, 99 of 100, ms", late)
    assert late < WAIT * factor
    assert memory(box, "caddy.service") - before["caddy"] < GROWTH
    found = many.end("held")
    assert found["requests"] >= 8 * 230
    measured("requests that strangers held", found["requests"])


def test_quick_requests(
    edge: Edge, many: Strangers, measured: Callable[[str, float], None]
) -> None:
    """Nor does alice wait where strangers ask for her pages, whole requests without end, with a
    cookie that looks like one.
    """
    cookie = edge.sign_in("alice")
    many.begin("quick", "/alice/api/sessions", declared=0, streams=100, seconds=15)
    edge.box.succeed("sleep 1")
    statuses, milliseconds = repeated(edge, 100, cookie)
    many.end("quick")
    assert statuses == {200}
    late = web_figures.percentile(milliseconds, 0.95)
    measured("requests of alice, 95 of 100, ms", late)
    assert late < 2 * WAIT * web_figures.patience(edge.box)


def test_queues(edge: Edge) -> None:
    """The edge asks about who is signed in where no stranger is asked about, from the first
    request on; and from the second one where it is told anew.
    """
    box = edge.box
    cookie = edge.sign_in("alice")
    alice = Ask("/alice/api/sessions", headers=with_cookie(cookie))
    made_up = with_cookie("__Host-agent_box=" + "x" * 43)
    asks = [alice, Ask("/login"), Ask("/alice/"), Ask("/alice/", headers=made_up)]
    nobody_has_a_turn = "mv /run/agent-box-gate/gate.sock /run/agent-box-gate/away.sock"
    as_before = "mv /run/agent-box-gate/away.sock /run/agent-box-gate/gate.sock"
    for prepare in ("true", "systemctl restart agent-box-gate.service"):
        box.succeed(prepare, nobody_has_a_turn)
        assert [each.status for each in edge.ask(asks)] == [200, 503, 503, 503], prepare
        box.succeed(as_before)
    box.succeed("rm /run/agent-box-gate/known/*; systemctl restart agent-box-gate.service")
    assert [each.status for each in edge.ask(asks)] == [200, 200, 401, 401]
    box.succeed(nobody_has_a_turn)
    assert edge.ask([alice])[0].status == 200
    box.succeed(as_before)


def test_deliveries(edge: Edge, many: Strangers) -> None:
    """Signed deliveries arrive while strangers hold 1,840 at the same receiver, and others whose
    large bodies never end.
    """
    box = edge.box
    box.wait_session("alice", "main", "running")
    sender = Sender(box, "alice")
    sender.set_up()
    small, large = issue(1), {**issue(2), "more": "x" * 300_000}
    path = "/alice/webhook/github"
    many.begin("small", path)
    many.begin("large", path, connections=24, streams=0, declared=10**7, body=70_000)
    box.succeed("sleep 2")
    asks = [sender.ask({**small, "again": number}, "issues") for number in range(9)]
    big = sender.ask(large, "issues")
    asks.append(Ask(big.target, big.method, big.headers, big.body, source="127.0.9.9"))
    assert [each.status for each in edge.ask(asks, timeout=60)] == [200] * 10
    assert many.hold("small")
    many.end("small")
    many.end("large")
    # One address has a few places for bodies that are not whole.
    told = box.succeed(
        "curl -s --unix-socket /run/agent-box-webhook/alice.sock -d '{}' http://x/.local/status"
    )
    assert json.loads(told)["answers"].get("503", 0) >= 24 - 8


def test_leaving(edge: Edge, many: Strangers, measured: Callable[[str, float], None]) -> None:
    """Whoever hangs up in the midst of a request, at whatever stage, costs the services no line in
    the journal, and the edge at most the one that each request is.
    """
    box = edge.box
    units = ("agent-box-gate.service", "agent-box-webhook-alice.service",
             "agent-box-settings-alice.service", "caddy.service")  # fmt: skip
    Sender(box, "alice").set_up()
    before = {unit: lines(box, unit) for unit in units}
    count = many.leave("/login", "/alice/webhook/github", "/alice/", "/gate/unban", times=15)
    box.succeed("sleep 2")
    added = {unit: lines(box, unit) - before[unit] for unit in units}
    measured("requests that were given up", count)
    measured("lines of the edge", added["caddy.service"])
    assert added.pop("caddy.service") <= count
    # Attempts that were judged are a line each; and one tells how many were given up.
    failures = box.succeed("journalctl -b -o cat _SYSTEMD_UNIT=agent-box-gate.service")
    judged = failures.count("failed login")
    added["agent-box-gate.service"] -= judged
    assert max(added.values()) <= 2, added
    box.succeed("agent-box-gate unban --all")


def unban(edge: Edge, cookie: str, address: str) -> Any:
    headers = page_headers(edge, with_cookie(cookie))
    (answer,) = edge.ask([Ask("/gate/unban", "POST", headers, json.dumps({"address": address}))])
    return answer


def test_forgiving(edge: Edge) -> None:
    """bob forgives failures under his own name: who guesses alice's password has no more guesses
    for it, wherever he asks from; and he has so many wishes an hour.
    """
    cookie = edge.sign_in("bob")
    # No jail bans the machine itself.
    statuses: list[int] = []
    for number in range(9):
        statuses += [each.status for each in edge.ask([edge.form("alice", f"guess {number}")])]
        answer = unban(edge, cookie, "127.0.0.1")
        assert (answer.status, json.loads(answer.body)["failures"]) == (200, 0)
    assert statuses[:5] == [401] * 5
    # It waits, for a second at first: some more are judged, but no longer each.
    assert statuses.count(401) <= 7
    assert unban(edge, cookie, "192.0.2.1").status == 200
    assert unban(edge, cookie, "192.0.2.1").status == 429
    edge.box.succeed("agent-box-gate unban --all")


def test_closed_addresses(edge: Edge) -> None:
    """No address of webhooks tells whether there is a user of that name; nor does any other."""
    asks = {
        path: [Ask(path.replace("USER", user), method) for user in ("bob", "nobody", "b-b")]
        for path in ("/USER/webhook", "/USER/webhook/github", "/USER/webhook/a/b", "/USER/webhook/",
                     "/USER", "/USER/", "/USER/t/main/ws", "/USER/webhookx", "/USER/settings")
        for method in ("GET", "POST", "HEAD", "OPTIONS")
    }  # fmt: skip
    for path, each in asks.items():
        answers = edge.ask(each)
        shown = [
            (answer.status, sorted(answer.headers), answer.body.replace(ask.target, ""))
            for ask, answer in zip(each, answers, strict=True)
        ]
        assert [one for one in shown if one[0] != shown[0][0]] == [], path
        names = [[name for name, _ in headers] for _, headers, _ in shown]
        assert names[0] == names[1] == names[2], path
        if "/webhook" in path and "webhookx" not in path:
            assert shown[0] == shown[1] == shown[2]
            assert shown[0][0] == 404


def test_hanging(edge: Edge) -> None:
    """Who says nothing any more is given up in seconds, at every stage of every address."""
    box = edge.box
    script = (
        "import socket,ssl,time\n"
        "c=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT);c.check_hostname=False;c.verify_mode=0\n"
        "def go(data,tls=True):\n"
        " s=socket.create_connection(('127.0.0.1',443))\n"
        " s=c.wrap_socket(s,server_hostname='box.test') if tls else s\n"
        " s.sendall(data);return s\n"
        "h=b'POST %s HTTP/1.1\\r\\nHost: box.test\\r\\nContent-Length: 9\\r\\n'\n"
        "links=[go(b'',False),go(b'POST /login'),*[go(h%p+b'\\r\\nab') for p in "
        "(b'/login',b'/gate/unban',b'/alice/',b'/alice/webhook/github',b'/x')]]\n"
        "end=time.time()+40*FACTOR\n"
        "for link in links:\n"
        " link.settimeout(max(.1,end-time.time()))\n"
        " try:\n"
        "  while link.recv(4096): pass\n"
        " except TimeoutError: print('hangs', links.index(link))\n"
        " except OSError: pass\n"
        "print('done')\n"
    ).replace("FACTOR", str(box.machine.time_factor))
    began = time.monotonic()
    told = box.succeed(f"python3 -c {shlex.quote(script)}", timeout=90)
    assert told.split() == ["done"]
    assert time.monotonic() - began < 45 * box.machine.time_factor
