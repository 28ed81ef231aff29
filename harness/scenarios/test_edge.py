"""The edge lets in who is signed in, and nobody else; it reads addresses as the gate does.

The requests are made from one table of routes. What a route answers to whom follows from the kind
of route and the credential, and is written down once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside
from agent_box_harness.attack import attack_as_root, attack_from_login, attack_from_session
from agent_box_harness.edge import COOKIE, PASSWORDS, Ask, Edge

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box
    from agent_box_harness.edge import Answer

pytestmark = pytest.mark.limit(180)

CEILINGS = {
    "caddy.service": 1.4,
    "agent-box-gate.service": 0.2,
    "agent-box-settings-alice.service": 1.2,
    "agent-box-terminal-alice.service": 2.7,  # the class of bob's sessions
}
"""Exposure by `systemd-analyze security`, 0 to 10. Figures here may only ever go down."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OTHER_METHODS = ("TRACE", "CONNECT", "PROPFIND", "get")


@dataclass(frozen=True)
class Route:
    """An address, and what it answers to somebody who may have it."""

    path: str
    right: int
    public: bool = False
    """Answers to everybody alike."""
    owned: bool = False
    """Is about one user."""
    signed_in: int = 0
    """What it answers to anybody who is signed in, if that is something else."""

    def of(self, user: str) -> str:
        return self.path.replace("USER", user)


ROUTES = (
    Route("/", 302),
    Route("/USER", 307, owned=True),
    Route("/USER/", 200, owned=True),
    Route("/USER/?arg=main", 200, owned=True),
    Route("/USER/settings", 307, owned=True),
    Route("/USER/settings/", 200, owned=True),
    Route("/USER/downloads/", 200, owned=True),
    Route("/USER/api/sessions", 200, owned=True),
    Route("/USER/api/env", 200, owned=True),
    Route("/USER/api/box", 200, owned=True),
    Route("/USER/events", 200, owned=True),
    Route("/USER/t/main", 200, owned=True),
    Route("/USER/t/main/", 200, owned=True),
    Route("/USER/t/main/token", 200, owned=True),
    Route("/USER/t/ma.in/", 404, owned=True),
    Route("/USER/nothing", 404, owned=True),
    Route("/gate/account", 200),
    Route("/gate/logins", 200),
    Route("/nothing", 404),
    Route("/auth", 404),
    Route("/login", 200, public=True, signed_in=303),
    # nobody receives them yet
    Route("/USER/webhook", 404, public=True, owned=True),
    Route("/USER/webhook/github", 404, public=True, owned=True),
)

POLICY = {
    "strict-transport-security": "max-age=31536000",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "SAMEORIGIN",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer, each exactly once."""

TRICKS = (
    "//USER/", "/USER//", "//", "/./USER/", "/USER/./", "/x/../USER/", "/USER/../USER/",
    "/%55SER/", "/USER%2f", "/USER/%2e%2e/USER/", "/USER/%2e/", "/USER%00/", "/USER/%",
    "/%2fUSER/", "/USER;x/", "/USER/;x", "/USER/webhook/../", "/USER/webhook/%2e%2e/settings/",
    "/USER/webhook/..", "/USER/webhook/../settings/", "/USER/webhookx", "/USER/webhook//",
    "//USER/webhook", "/USER/%77ebhook", "/USER/webhook%2f", "/login/", "/login/x", "//login",
    "/login%2f..%2fUSER", "/login/../USER/", "/logout/../USER/", "/gate/assets/../account",
    "/gate/assets/%2e%2e/account", "/gate/assets/", "/gate/assets/x/y", "/gate//assets/x",
    "/LOGIN", "/Gate/assets/x", "\\USER\\", "/USER\\", "/USER/t/main/../../settings/",
    "/USER/t/%6dain/", "/USER/t//", "/USER/t/main//ws", "https://box.test/USER/", "*",
    "/USER/" + "a" * 9000, "/USER/?x=" + "a" * 9000, "/USER/#x", "/USER/\x00",
)  # fmt: skip
"""Addresses that somebody on the way might read in another way."""


@pytest.fixture
def edge(box: Box) -> Edge:
    for unit in ("caddy", "agent-box-gate", *(f"agent-box-terminal-{user}" for user in box.users)):
        box.wait_for_unit(f"{unit}.service")
    edge = Edge(box)
    for user in box.users:
        edge.set_password(user)
    return edge


def with_cookie(*pairs: str) -> tuple[tuple[str, str], ...]:
    return (("Cookie", "; ".join(pairs)),)


def paths(user: str) -> list[tuple[Route, str]]:
    return [(route, route.of(user)) for route in ROUTES]


def wrong(expected: dict[Ask, int], answers: list[Answer]) -> list[str]:
    """Say which answers are not as expected."""
    return [
        f"{ask.method} {ask.target[:80]} {dict(ask.headers)}: {answer.status}, not {status}"
        for (ask, status), answer in zip(expected.items(), answers, strict=True)
        if answer.status != status
    ]


@pytest.mark.shared
def test_routes(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """Every route answers as it should to nobody, to its owner and to somebody else, and to
    cookies that are empty, made up, doubled or revoked; every answer has the headers of the box.
    """
    alice, bob, gone = edge.sign_in("alice"), edge.sign_in("bob"), edge.sign_in("alice")
    assert edge.ask([Ask("/logout", "POST", (*with_cookie(gone), ("Origin", edge.origin),
                         ("Sec-Fetch-Site", "same-origin")))])[0].status in (200, 303)  # fmt: skip
    value = alice.partition("=")[2]
    refused = {
        "nothing": (),
        "an empty cookie": with_cookie(f"{COOKIE}="),
        "a cookie that was changed": with_cookie(alice[:-1] + ("A" if alice[-1] != "A" else "B")),
        "two cookies": with_cookie(alice, bob),
        "a cookie of another name": with_cookie(f"agent_box={value}"),
        "a revoked cookie": with_cookie(gone),
        "a made-up header": (("X-Agent-Box-User", "alice"), ("X-Agent-Box-Login", "x" * 32)),
        "a token without scheme": (("Authorization", f"Bearer {value}"),),
    }
    expected: dict[Ask, int] = {}
    for route, path in paths("alice"):
        right = route.signed_in or route.right
        other = 403 if route.owned and not route.public else right
        for headers in refused.values():
            expected[Ask(path, headers=headers)] = route.right if route.public else 401
        expected[Ask(path, headers=with_cookie(alice))] = right
        expected[Ask(path, headers=with_cookie("a=b", alice, "c=d"))] = right
        expected[Ask(path, headers=with_cookie(bob))] = other
    answers = edge.ask(expected, timeout=120)
    assert wrong(expected, answers) == []
    measured("requests of the matrix", len(expected))
    for ask, answer in zip(expected, answers, strict=True):
        for name, text in POLICY.items():
            assert answer.one(name) == text, ask
        policy = answer.one("content-security-policy")
        assert "default-src 'none'" in policy or "default-src 'self'" in policy, ask
        assert "'unsafe-eval'" not in policy, ask
        assert "script-src 'unsafe-inline'" not in policy, ask
        assert answer.all("permissions-policy"), ask
        assert answer.all("cache-control"), ask
        for name in ("server", "via", "alt-svc", "x-agent-box-user", "x-agent-box-login"):
            assert answer.all(name) == [], ask
        if answer.status == 401:
            assert answer.all("set-cookie") == [], ask
            assert answer.one("www-authenticate"), ask


@pytest.mark.shared
def test_units(edge: Edge) -> None:
    """The units of the browser side are up, closed as far as their work allows, and none of them
    is in a group that opens more than the sockets it needs.
    """
    box = edge.box
    listing = box.run("systemd-analyze security --no-pager").check().out
    exposure = {line.split()[0]: float(line.split()[1]) for line in listing.splitlines()[1:]}
    assert {unit: exposure[unit] for unit, most in CEILINGS.items() if exposure[unit] > most} == {}
    assert box.succeed("systemctl --failed --no-legend --plain") == ""
    for unit in ("caddy", "agent-box-gate", "agent-box-terminal-alice"):
        pid = outside.main_pid(box, f"{unit}.service")
        status = box.read(f"/proc/{pid}/status")
        groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
        group = next(line for line in status.splitlines() if line.startswith("Gid:")).split()[1]
        assert set(groups.split()[1:]) <= {group}, unit


@pytest.mark.shared
def test_methods(edge: Edge) -> None:
    """No method gets anything without a login; those that HTTP hardly knows get nothing at all."""
    expected = {
        Ask(path, method): 401
        for (route, path), method in itertools.product(paths("alice"), METHODS)
        if not route.public
    }
    assert wrong(expected, edge.ask(expected, timeout=120)) == []
    cookie = with_cookie(edge.sign_in("alice"))
    strange = [Ask("/alice/", method, cookie) for method in OTHER_METHODS]
    assert {answer.status for answer in edge.ask(strange)} <= {400, 405, 501}


@pytest.mark.shared
def test_paths(edge: Edge) -> None:
    """No spelling of an address opens anything: to nobody, and to alice nothing of bob's."""
    cookie = with_cookie(edge.sign_in("alice"))
    nobody = [Ask(trick.replace("USER", "alice")) for trick in TRICKS]
    alice = [Ask(trick.replace("USER", "bob"), headers=cookie) for trick in TRICKS]
    allowed = {0, 400, 401, 404, 414, 431}
    for ask, answer in zip(nobody, edge.ask(nobody), strict=True):
        assert answer.status in allowed, (ask, answer.status)
    for ask, answer in zip(alice, edge.ask(alice), strict=True):
        mine = "bob" not in ask.target
        assert answer.status in allowed | {403} or (mine and answer.status == 405), ask
        assert answer.status != 200, ask


@pytest.mark.shared
def test_other_names(edge: Edge) -> None:
    """A request for another host gets nothing, a login notwithstanding; HTTP leads to HTTPS."""
    cookie = with_cookie(edge.sign_in("alice"))
    hosts = ("evil.test", "a.box.test", "box.test.", "127.0.0.1", "box.test@evil.test", "")
    asks = [Ask("/alice/", headers=(*cookie, ("Host", host))) for host in hosts]
    for ask, answer in zip(asks, edge.ask(asks), strict=True):
        assert answer.status in (400, 421), ask
    command = "curl -s -o /dev/null -w '%{http_code} %{redirect_url}' -H 'Host: box.test' "
    assert edge.box.succeed(f"{command} http://127.0.0.1/alice/?x=y") == (
        "308 https://box.test/alice/?x=y"
    )


@pytest.mark.shared
def test_http2(edge: Edge) -> None:
    """Over HTTP/2 the routes are closed as well, and nothing promises HTTP/3."""
    targets = " ".join(
        f"'https://box.test{path}'" for route, path in paths("bob") if not route.public
    )
    command = "curl -sk --http2 --resolve box.test:443:127.0.0.1 -o /dev/null"
    command += " -w '%{http_code} %{http_version}\\n'"
    lines = edge.box.succeed(f'for url in {targets}; do {command} "$url"; done').split("\n")
    assert set(filter(None, lines)) == {"401 2"}


@pytest.mark.shared
def test_password(edge: Edge) -> None:
    """A right name and password work as Basic credentials, wrong ones do not."""
    import base64

    def basic(user: str, password: str) -> tuple[tuple[str, str], ...]:
        text = base64.b64encode(f"{user}:{password}".encode()).decode()
        return (("Authorization", f"Basic {text}"),)

    asks = {
        Ask("/bob/api/sessions", headers=basic("bob", PASSWORDS["bob"])): 200,
        Ask("/alice/api/sessions", headers=basic("bob", PASSWORDS["bob"])): 403,
        Ask("/alice/api/sessions", headers=basic("alice", PASSWORDS["bob"])): 401,
        Ask("/alice/api/sessions", headers=basic("nosuch", PASSWORDS["bob"])): 401,
    }
    assert wrong(asks, edge.ask(asks)) == []
    edge.box.succeed("agent-box-gate unban --all")


@pytest.mark.shared
def test_origins(edge: Edge) -> None:
    """Only a page of the box opens a terminal; for any other nothing is started."""
    cookie = with_cookie(edge.sign_in("alice"))
    target = "/alice/t/main/ws"
    good = {
        "do": "open",
        "as": "good",
        "target": target,
        "headers": [*cookie, ("Origin", edge.origin)],
    }
    origins = ("https://evil.test", "https://a.box.test", "https://box.test:8443", "null", "",
               "https://box.test.", "http://box.test", "https://BOX.test", None)  # fmt: skip
    steps: list[dict[str, Any]] = []
    for origin in origins:
        headers = [*cookie, *([("Origin", origin)] if origin is not None else [])]
        # What a client says about itself must not hide that it asks for an upgrade.
        headers += [("X-Agent-Box-Upgrade", "")] if origin == "null" else []
        steps.append({"do": "open", "as": str(origin), "target": target, "headers": headers})
    both = [*cookie, ("Origin", edge.origin), ("Origin", "https://evil.test")]
    steps.append({"do": "open", "as": "two", "target": target, "headers": both})
    other = with_cookie(edge.sign_in("bob"))
    steps.append({"do": "open", "as": "bob", "target": target,
                  "headers": [*other, ("Origin", edge.origin)]})  # fmt: skip
    assert [result["status"] for result in edge.steps(steps)] == [403] * len(steps)
    assert outside.processes(edge.box, "alice", "agent_box/terminal") == []
    opened, _, read, _ = edge.steps(
        [good, {"do": "type", "as": "good", "text": "echo =$((6*7))=\r"},
         {"do": "read", "as": "good", "until": "=42="}, {"do": "close", "as": "good"}]
    )  # fmt: skip
    assert opened["status"] == 101
    assert "=42=" in read["text"]


@pytest.mark.shared
def test_terminal(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """A terminal shows exactly its session or says why not, survives a reload of the edge, and
    ends with the login that opened it; the session goes on.
    """
    box = edge.box
    box.ctl("alice", "add two --agent shell").check("add two")
    box.ctl("alice", "stop two").check("stop two")
    cookie = with_cookie(edge.sign_in("alice"))

    def opening(name: str) -> dict[str, Any]:
        return {"do": "open", "as": name, "target": f"/alice/t/{name}/ws",
                "headers": [*cookie, ("Origin", edge.origin)]}  # fmt: skip

    def reading(name: str, until: str | None) -> dict[str, Any]:
        return {"do": "read", "as": name, "until": until, "seconds": box.machine.scaled(20)}

    steps = [
        opening("mai"), reading("mai", "look again"),
        opening("two"), reading("two", "look again"),
        opening("main"), {"do": "type", "as": "main", "text": "echo =$((1+1))=\r"},
        reading("main", "=2="),
        {"do": "run", "command": "systemctl reload caddy.service"},
        {"do": "type", "as": "main", "text": "echo =$((2+2))=\r"}, reading("main", "=4="),
        {"do": "run", "command": "agent-box-gate revoke --user alice"}, reading("main", None),
    ]  # fmt: skip
    found = edge.steps(steps, timeout=120)
    box.expect_in(found[1]["text"], "There is no session mai. There are: main, two.")
    assert not found[1]["closed"]
    box.expect_in(found[3]["text"], "two is stopped. Start it")
    assert not found[3]["closed"]
    assert "=2=" in found[6]["text"]
    assert found[7]["rc"] == 0, found[7]
    measured("reload of the edge", found[7]["seconds"])
    assert "=4=" in found[9]["text"]
    box.expect_in(found[11]["text"], "Your login has ended")
    assert found[11]["closed"]
    box.wait_for("no terminal", lambda: not outside.processes(box, "alice", "tmux .* attach"))
    assert outside.processes(box, "alice", "agent_box/terminal") == []
    assert box.session("alice", "main")["state"] == "running"
    box.ctl("alice", "rm two").check("rm two")


@pytest.mark.shared
def test_vanished_browsers(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """200 browsers that go away without a word leave no process behind, and the box usable."""
    box, count = edge.box, 200
    headers = [*with_cookie(edge.sign_in("bob")), ("Origin", edge.origin)]
    opening: list[dict[str, Any]] = [
        {"do": "open", "as": str(number), "target": "/bob/t/main/ws", "headers": headers}
        for number in range(count)
    ]
    # The client never answers a ping, as one whose network is gone.
    memory = "systemctl show --value --property=MemoryCurrent agent-box-terminal-bob.service"
    steps: list[dict[str, Any]] = [
        *opening,
        {"do": "run", "command": "pgrep -cf 'tmux .*[a]ttach'"},
        {"do": "run", "command": memory},
        {"do": "run", "command": "n=0; while pgrep -f '[a]gent_box/terminal' >/dev/null "
                                 "&& [ $n -lt 450 ]; do sleep 0.1; n=$((n+1)); done"},
    ]  # fmt: skip
    found = edge.steps(steps, timeout=150)
    assert {result["status"] for result in found[:count]} == {101}
    assert int(found[count]["output"]) > count / 2
    if found[count + 1]["output"].strip().isdigit():
        measured("memory of 200 terminals, MiB", int(found[count + 1]["output"]) / 2**20)
    measured("until nothing was left of 200 vanished browsers", found[count + 2]["seconds"])
    assert outside.processes(box, "bob", "tmux .* attach|agent_box/terminal") == []
    ask = {"do": "open", "as": "x", "target": "/bob/t/main/ws", "headers": headers}
    assert edge.steps([ask])[0]["status"] == 101


ECHO = """
import json, os, socket, sys
path, pid = sys.argv[1], os.fork()
if pid: os._exit(0)
os.setsid()
if os.path.exists(path): os.unlink(path)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
os.chmod(path, 0o666)
server.listen()
os.close(1); os.close(2)
while True:
    client = server.accept()[0]
    data = b""
    while b"\\r\\n\\r\\n" not in data: data += client.recv(65536)
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: %d\\r\\n"
        b"Set-Cookie: __Host-agent_box=x; Path=/; Secure\\r\\nServer: echo\\r\\n"
        b"Clear-Site-Data: cookies\\r\\nX-Frame-Options: ALLOWALL\\r\\n"
        b"Access-Control-Allow-Origin: *\\r\\n\\r\\n%s" % (len(data), data))
    client.close()
"""
"""A service in the place of a user's own that tells what it was sent."""


def test_what_services_learn(edge: Edge) -> None:
    """A user's service learns who asks, and no credential; what a client says about itself does
    not reach it; and it can set no cookie on the origin that all users share.
    """
    box = edge.box
    cookie = edge.sign_in("alice")
    path = "/run/agent-box-settings/alice.sock"
    box.succeed("systemctl stop agent-box-settings-alice.socket agent-box-settings-alice.service")
    box.machine.write_file("/tmp/echo.py", ECHO, mode=0o755)
    box.succeed(f"python3 /tmp/echo.py {path} </dev/null >/dev/null 2>&1")
    forged = (
        *with_cookie("theme=dark", cookie),
        ("Authorization", "Bearer of-alice"),
        ("Proxy-Authorization", "Basic of-alice"),
        ("X-Agent-Box-User", "root"),
        ("X-Agent-Box-User", "bob"),
        ("X-Agent-Box-Login", "f" * 32),
        ("X-Agent-Box-Owner", "alice"),
        ("X-Agent-Box-Anything", "bob"),
        ("X_Agent_Box_User", "bob"),
        ("X-Forwarded-For", "192.0.2.99"),
        ("X-Forwarded-Host", "evil.test"),
        ("X-Forwarded-Proto", "http"),
    )
    (answer,) = edge.ask([Ask("/alice/api/sessions?x=1", headers=forged)])
    assert answer.status == 200
    first, *lines = answer.body.strip().split("\r\n")
    assert first == "GET /alice/api/sessions?x=1 HTTP/1.1"
    sent = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]
    ours = sorted(pair for pair in sent if "agent" in pair[0] and "box" in pair[0])
    assert [name for name, _ in ours] == ["x-agent-box-login", "x-agent-box-user"]
    assert ours[1][1] == "alice"
    assert ours[0][1] != "f" * 32
    assert dict(sent)["x-forwarded-for"] == "127.0.0.1"
    assert dict(sent)["x-forwarded-host"] == edge.domain
    assert dict(sent)["x-forwarded-proto"] == "https"
    for secret in (cookie.partition("=")[2], "of-alice", "theme", "192.0.2.99", "evil.test"):
        box.expect_not_in(answer.body, secret)
    for name in ("set-cookie", "clear-site-data", "access-control-allow-origin", "server"):
        assert answer.all(name) == []
    assert answer.one("x-frame-options") == "SAMEORIGIN"


@pytest.mark.shared
def test_sizes(edge: Edge) -> None:
    """What is too large is refused at once, and the log of requests has no secret in it."""
    long = "x" * 40_000
    cookie = edge.sign_in("alice")
    asks = {
        Ask("/login", "POST", (("Origin", edge.origin),), long): 413,
        Ask("/alice/", headers=(("X-Long", long),)): 431,
        Ask("/alice/api/sessions?token=very-secret", headers=with_cookie(cookie)): 200,
    }
    assert wrong(asks, edge.ask(asks)) == []
    log = edge.box.succeed("journalctl -b -u caddy.service -o cat --no-pager | tail -n 40")
    edge.box.expect_in(log, '"uri":"/alice/api/sessions?..."')
    for secret in ("very-secret", cookie.partition("=")[2], COOKIE, PASSWORDS["alice"]):
        edge.box.expect_not_in(log, secret)


def connect(path: str) -> str:
    return f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{path}')\""


@pytest.mark.shared
def test_sockets(edge: Edge) -> None:
    """No user reaches the sockets of the edge, the gate or somebody else; the edge's admin API
    listens nowhere else. A forged report of the gate gets nobody in.
    """
    scripts = {
        "admin": connect("/run/caddy/admin.sock"),
        "gate": connect("/run/agent-box-gate/gate.sock"),
        "gate-admin": connect("/run/agent-box-gate/admin.sock"),
        "settings": connect("/run/agent-box-settings/alice.sock"),
        "terminal": connect("/run/agent-box-terminal/alice/ttyd.sock"),
        "admin-port": "curl -sS http://127.0.0.1:2019/config/",
        "logins": "ls /run/agent-box-gate/live",
        "secrets": "cat /var/lib/agent-box-gate/* /var/lib/caddy/.local/share/caddy/pki/*/*/*.key",
    }
    edge.sign_in("alice")
    for outcomes in (
        attack_from_login(edge.box, "bob", scripts, {}),
        attack_from_session(edge.box, "bob", scripts, {}),
    ):
        assert {name for name, outcome in outcomes.items() if outcome.through} == set()
    as_root = attack_as_root(edge.box, scripts, {})
    assert {name for name, outcome in as_root.items() if not outcome.through} == {"admin-port"}
    listening = edge.box.succeed("ss -Hltn | awk '{print $4}' | sed 's/.*://' | sort -un").split()
    assert set(listening) <= {"22", "80", "443"}


def test_gate_down(edge: Edge) -> None:
    """Without the gate nobody gets in, and everybody is told what to do; back it lets in whom it
    did before, and open terminals have stayed.
    """
    box = edge.box
    cookie = with_cookie(edge.sign_in("alice"))
    units = "agent-box-gate.service agent-box-gate.socket agent-box-gate-admin.socket"
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
    box.expect_in(down[-1]["body"], "<h1>Not answering</h1>")
    box.expect_in(down[-1]["body"], "systemctl status agent-box-gate")
    assert "=6=" in found[-2]["text"]
    assert found[-1]["status"] == 200


def test_service_down(edge: Edge) -> None:
    """Where a user's own service is down, a page says which and what to do; it comes back by
    itself when it was only killed.
    """
    box = edge.box
    cookie = (*with_cookie(edge.sign_in("alice")), ("Accept", "text/html"))
    box.succeed("systemctl kill --signal=KILL agent-box-terminal-alice.service")
    assert edge.ask([Ask("/alice/t/main/", headers=cookie)])[0].status == 200
    box.succeed("systemctl stop agent-box-terminal-alice.service agent-box-settings-alice.socket "
                "agent-box-settings-alice.service")  # fmt: skip
    for path, unit in (("t/main/", "terminal"), ("", "settings")):
        (answer,) = edge.ask([Ask(f"/alice/{path}", headers=cookie)])
        assert answer.status == 503
        box.expect_in(answer.body, f"systemctl status agent-box-{unit}-alice")
        assert answer.one("strict-transport-security")


NEIGHBOURS = ("2001:db8:7:1::2", "2001:db8:7:1::3", "2001:db8:7:1:ffff::4")
"""Addresses of one /64."""


def test_bans(box: Box) -> None:
    """Five wrong passwords ban an address, and of IPv6 its /64: packets are really dropped. Four
    wrong and one right do not, nor do requests without credentials; who may, lifts the ban.
    """
    # Another host, since fail2ban never bans an address of its own machine.
    box.succeed(
        "ip netns add out && ip link add inner type veth peer name outer netns out && "
        "ip address add 198.51.100.1/24 dev inner && "
        "ip address add 2001:db8:7::1/48 dev inner nodad && "
        "ip link set inner up && ip -n out link set lo up && ip -n out link set outer up && "
        "ip -n out address add 198.51.100.2/24 dev outer && "
        "ip -n out address add 198.51.100.3/24 dev outer && "
        + " && ".join(f"ip -n out address add {a}/48 dev outer nodad" for a in NEIGHBOURS)
        + " && ip -n out address add 2001:db8:7:2::2/48 dev outer nodad"
    )
    for unit in ("caddy", "agent-box-gate", "fail2ban"):
        box.wait_for_unit(f"{unit}.service")
    box.wait_until_succeeds("fail2ban-client status agent-box-gate")
    box.succeed(
        "printf '%s\\n' tulip-Anchor-vexing-orbit-maple | agent-box-gate set-password alice"
    )

    def curl(source: str, options: str) -> str:
        host = "[2001:db8:7::1]" if ":" in source else "198.51.100.1"
        return (
            f"ip netns exec out curl -sk --max-time 3 --interface {source} "
            f"--connect-to ::{host}:443 -o /dev/null -w '%{{http_code}}' {options} "
            "https://box.test/alice/ || true"
        )

    def ask(source: str, options: str = "") -> str:
        return str(box.succeed(curl(source, options)))

    wrong, right = "-u alice:wrong-%d", "-u alice:tulip-Anchor-vexing-orbit-maple"

    def is_banned(text: str) -> bool:
        return text in box.succeed("fail2ban-client get agent-box-gate banip").split()

    # Who asks without a credential is no guesser.
    assert {ask("198.51.100.3") for _ in range(10)} == {"401"}
    assert ask("198.51.100.3", right) == "200"

    for number in range(8):
        ask("198.51.100.2", wrong % number)
        box.sleep(2)
        if is_banned("198.51.100.2"):
            break
    box.wait_for("a ban", lambda: is_banned("198.51.100.2"), timeout=20)
    assert ask("198.51.100.2", right) == "000"
    assert ask("198.51.100.3", right) == "200"
    box.succeed("agent-box-gate unban 198.51.100.2")
    assert ask("198.51.100.2", right) == "200"

    for number, source in zip(range(9), NEIGHBOURS * 3, strict=False):
        ask(source, wrong % number)
        box.sleep(2)
        if is_banned("2001:db8:7:1::/64"):
            break
    box.wait_for("a ban of the /64", lambda: is_banned("2001:db8:7:1::/64"), timeout=20)
    assert {ask(source, right) for source in NEIGHBOURS} == {"000"}
    assert ask("2001:db8:7:2::2", right) == "200"
    # The gate asks for it on behalf of a user who is signed in from elsewhere.
    name = "20010db8000700010000000000000002"
    box.succeed(
        "runuser -u agent-box-gate -- sh -c 'mkdir -p -m 0700 /run/agent-box-gate/unban && "
        f"touch /run/agent-box-gate/unban/{name}'"
    )
    box.wait_for("the ban to be lifted", lambda: not is_banned("2001:db8:7:1::/64"), timeout=20)
    assert ask(NEIGHBOURS[1], right) == "200"
