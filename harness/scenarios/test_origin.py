"""The origin of the box shows nothing that a process of a user wrote, whatever it puts on its own
sockets; and the way to a terminal leads to that of the very user, whatever lies on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import browser
from agent_box_harness.edge import FOLDER, LIAR, Ask, with_cookie

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent_box_harness.browser import Visitor
    from agent_box_harness.edge import Answer, Edge

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]

OWN_SOCKET = "$(find /run/agent-box-t* -name ttyd.sock -user bob 2>/dev/null)"
"""Where bob's ttyd listens."""

LINKED = f"""
for path in {OWN_SOCKET}; do
    mv $path $path.real
    ln -s $(echo $path | sed s,/bob/,/alice/,) $path
done
"""

ALWAYS = {
    "cache-control", "content-security-policy", "cross-origin-opener-policy",
    "cross-origin-resource-policy", "permissions-policy", "referrer-policy",
    "strict-transport-security", "x-content-type-options", "x-frame-options",
    "date", "connection", "content-length", "transfer-encoding", "content-type", "vary",
    "retry-after",
}  # fmt: skip
"""Headers of the edge's own, and of HTTP."""

ROUTES = {
    "/bob/api/sessions": "application/json",
    "/bob/api/partial-uploads/x": "application/json",
    "/bob/events": "text/event-stream; charset=utf-8",
    "/bob/downloads/x.html": "application/octet-stream",
    "/bob/downloads/x.html?view": "application/octet-stream",
    "/bob/api/sessions/main/transcript": "application/octet-stream",
    "/bob/webhook/github": "text/plain; charset=utf-8",
}
"""What bob's own services answer, and as what it may arrive."""

PAGES = ("/bob/", "/bob/settings/", "/bob/downloads/", "/bob/downloads/x/", "/bob/t/main/")


@contextlib.contextmanager
def lies(edge: Edge, path: str, how: str) -> Iterator[None]:
    """Have bob listen where one of his services does, and lie."""
    box = edge.box
    box.succeed(f"rm -f {path}; python3 {FOLDER}/{LIAR} {path} {how}; chown bob {path}")
    try:
        yield
    finally:
        box.succeed(f"kill $(cat {path}.pid); rm -f {path} {path}.pid")


@contextlib.contextmanager
def lying(edge: Edge, how: str) -> Iterator[None]:
    """Have all services of bob lie behind the edge: workspace, webhooks, terminals."""
    box = edge.box
    units = "agent-box-settings-bob agent-box-webhook-bob"
    stopped = " ".join(f"{unit}.socket {unit}.service" for unit in units.split())
    own = box.succeed(f"echo {OWN_SOCKET}").strip()
    box.succeed(f"systemctl stop {stopped}")
    try:
        with (
            lies(edge, "/run/agent-box-settings/bob.sock", how),
            lies(edge, "/run/agent-box-webhook/bob.sock", how),
            lies(edge, own, how),
        ):
            yield
    finally:
        sockets = " ".join(f"{unit}.socket" for unit in units.split())
        box.succeed(f"systemctl restart {sockets} agent-box-terminal-bob.service")


def wrong(ask: Ask, answer: Answer, kind: str | None) -> list[str]:
    """Say what of an answer is the word of a service that lies."""
    found = [f"{name}: {value}" for name, value in answer.headers if name not in ALWAYS]
    policy = " ".join(answer.all("content-security-policy"))
    found += ["policies"] * (len(answer.all("content-security-policy")) != 1)
    if "'unsafe-inline' *" in policy or "default-src 'self' 'unsafe" in policy:
        found.append(policy)
    if answer.all("strict-transport-security") != ["max-age=31536000"]:
        found.append("strict-transport-security")
    if kind is not None and answer.all("content-type") != [kind]:
        found.append(f"content-type: {answer.all('content-type')}")
    if kind != "text/html; charset=utf-8" and answer.all("content-type"):
        found += ["html"] * ("html" in " ".join(answer.all("content-type")))
    return [f"{ask.target}: {text}" for text in found]


@pytest.mark.parametrize("how", ["200", "early", "302", "401", "404", "503"])
def test_a_service_that_lies(edge: Edge, how: str) -> None:
    """Whatever headers a process of bob's sends in the place of his services, none of them reaches
    a browser: type, policy and all else are the edge's. Pages do not come from it at all.
    """
    cookie = with_cookie(edge.sign_in("bob"))
    with lying(edge, how):
        asks = [Ask(path, headers=cookie) for path in ROUTES]
        found = edge.steps([ask.step() for ask in asks])
        early = {name for result in found for name, _ in result["early"]}
        assert early - ALWAYS == set()
        for ask, answer in zip(asks, edge.read(found), strict=True):
            moved = how == "302" and "application/octet" in ROUTES[ask.target]
            kind = ROUTES[ask.target] if how in ("200", "early") else None
            extra = ["tus-resumable", "content-disposition", *(["location"] if moved else [])]
            kept = [pair for pair in answer.headers if pair[0] not in extra]
            assert wrong(ask, type(answer)(answer.status, tuple(kept)), kind) == []
            assert all(place.startswith("/bob/") for place in answer.all("location"))
            assert all(not text.startswith("inline") for text in answer.all("content-disposition"))
        people = (*cookie, ("Accept", "text/html"))
        asks = [Ask(path, headers=people) for path in PAGES]
        for ask, answer in zip(asks, edge.ask(asks), strict=True):
            assert answer.status == 200, ask
            assert "a-lie" not in answer.body
            kept = [pair for pair in answer.headers if pair[0] not in ("etag", "last-modified",
                                                                      "accept-ranges")]  # fmt: skip
            shown = type(answer)(answer.status, tuple(kept))
            assert wrong(ask, shown, "text/html; charset=utf-8") == []
        # Opened as a page, what goes wrong is told by a page of the edge's.
        (answer,) = edge.ask([Ask("/bob/downloads/x.html", headers=people)])
        assert answer.all("content-disposition") or "a-lie" not in answer.body


def test_a_terminal_that_lies(edge: Edge) -> None:
    """What bob puts in the place of his ttyd opens WebSockets and nothing else, and says nothing to
    the browser while it does; page and token of a terminal are the edge's.
    """
    cookie = with_cookie(edge.sign_in("bob"))
    upgrade = (*cookie, ("Origin", edge.origin))
    opening = {"do": "open", "as": "a", "target": "/bob/t/main/ws", "headers": list(upgrade)}
    with lying(edge, "101"):
        (found,) = edge.steps([opening])
        assert found["status"] == 101
        names = {name for name, _ in found["headers"]}
        assert names - ALWAYS == {"upgrade", "sec-websocket-accept", "sec-websocket-protocol"}
        assert re.fullmatch("[A-Za-z0-9+/]{27}=", dict(found["headers"])["sec-websocket-accept"])
    with lying(edge, "200"):
        asks = [Ask(f"/bob/t/main/{path}", headers=cookie) for path in ("", "token", "ws")]
        page, token, socket = edge.ask(asks)
        assert "a-lie" not in page.body
        assert token.body == '{"token":""}'
        assert token.one("content-type") == "application/json"
        assert socket.status == 404
        (found,) = edge.steps([opening])
        assert found["status"] in (502, 503)
        assert not [name for name, _ in found["headers"] if name not in ALWAYS]


def test_the_page_of_terminals(edge: Edge) -> None:
    """The page of a terminal is ttyd's own, may run the script that is in it alone, and is sent
    once: browsers are told that it is the same still.
    """
    box = edge.box
    cookie = with_cookie(edge.sign_in("alice"))
    (page,) = edge.ask([Ask("/alice/t/main/", headers=cookie)])
    # Not of the file's time, which is the same for all files of a Nix store.
    tag = f'"{hashlib.sha256(page.body.encode()).hexdigest()[:32]}"'
    assert page.all("etag") == [tag]
    assert page.one("cache-control") == "private, no-cache"
    fetch = "curl -fs --retry 9 --retry-all-errors --unix-socket /tmp/ttyd.sock http://x/"
    box.succeed(
        "ttyd --interface /tmp/ttyd.sock --debug 1 true >/dev/null 2>&1 & pid=$!;"
        f" {fetch} >/tmp/page; kill $pid"
    )
    assert page.body == box.read("/tmp/page")
    digest = box.succeed(
        'python3 -c \'import re, hashlib, base64; page = open("/tmp/page", "rb").read();'
        ' (script,) = re.findall(rb"<script>(.*?)</script>", page, re.S);'
        " print(base64.b64encode(hashlib.sha256(script).digest()).decode())'"
    ).strip()
    assert f"script-src 'sha256-{digest}';" in page.one("content-security-policy")
    known = (*cookie, ("If-None-Match", tag))
    (same,) = edge.ask([Ask("/alice/t/main/", headers=known)])
    assert (same.status, same.body, same.all("etag")) == (304, "", [tag])
    # Who is not signed in is not told either.
    (nobody,) = edge.ask([Ask("/alice/t/main/", headers=(("If-None-Match", tag),))])
    assert nobody.status == 401


def test_a_link_to_somebody_elses_terminal(edge: Edge) -> None:
    """A link that bob lays from his terminal's socket to alice's leads to nothing; his agent cannot
    even lay it.
    """
    box = edge.box
    box.wait_session("alice", "main", ("running", "waiting"))
    assert box.in_session("bob", LINKED).rc != 0
    box.as_user("bob", LINKED).check("the link")
    cookie = with_cookie(edge.sign_in("bob"))
    steps = [
        {"do": "open", "as": "a", "target": "/bob/t/main/ws",
         "headers": [*cookie, ("Origin", edge.origin)]},
        {"do": "type", "as": "a", "text": "echo =$(id -un)=\r"},
        {"do": "read", "as": "a", "until": "=alice=", "seconds": 3},
    ]  # fmt: skip
    found = edge.steps(steps)
    assert "=alice=" not in found[-1].get("text", "")
    assert found[0]["status"] in (502, 503), found
    box.succeed("systemctl restart agent-box-terminal-bob.service")
    box.wait_for("bob's own terminal", lambda: edge.steps(steps[:1])[0]["status"] == 101)


def test_sockets_lie_in_directories_of_roots(edge: Edge) -> None:
    """Whatever the edge dials lies where no user can put anything else in its place."""
    box = edge.box
    dialled = set(re.findall(r"unix/(/[^ |]+)", box.read("/etc/caddy/Caddyfile")))
    dialled = {path.replace("{args[0]}", user) for path in dialled for user in box.users}
    dialled = {path for path in dialled if not path.startswith("/run/caddy/")}
    assert len(dialled) == 1 + 3 * len(box.users)
    for path in sorted(dialled):
        folder = path.rpartition("/")[0]
        owner = box.succeed(f"stat -c '%U %a' {folder}").split()
        assert owner[0] in ("root", "agent-box-gate"), path
        assert not int(owner[1], 8) & 0o022, path


def test_what_a_version_before_left(edge: Edge) -> None:
    """The directory in which a user's ttyd once listened goes with an update, and nothing that a
    link in it leads to.
    """
    box = edge.box
    old = "/run/agent-box-terminal/bob"
    box.succeed(
        f"mkdir {old} && touch {old}/ttyd.sock && ln -s /home/alice {old}/home"
        f" && chown -Rh bob {old} && touch /home/alice/kept"
    )
    box.succeed("systemd-tmpfiles --create --remove /etc/tmpfiles.d/agent-box.conf")
    assert box.succeed("ls /run/agent-box-terminal").split() == ["alice.sock", "bob.sock"]
    assert box.succeed("ls /home/alice/kept")
    box.succeed(f"ln -s /home/alice {old}")
    box.succeed("systemd-tmpfiles --create --remove /etc/tmpfiles.d/agent-box.conf")
    assert box.succeed("ls /run/agent-box-terminal").split() == ["alice.sock", "bob.sock"]
    assert box.succeed("ls /home/alice/kept")


def test_somebody_elses_login(edge: Edge) -> None:
    """A terminal of alice's opens for a login of hers, and for none of bob's."""
    box = edge.box
    box.wait_session("alice", "main", ("running", "waiting"))
    logins = {}
    for user in ("alice", "bob"):
        edge.sign_in(user)
        logins[user] = box.succeed(
            f"find /run/agent-box-gate/live -type f -path '*{user}/*' -printf '%T@ %f\\n'"
            " | sort -n | tail -n 1 | cut -d' ' -f2"
        ).strip()
    for user, login in logins.items():
        program = f"timeout 3 agent-box-terminal main {login}"
        shown = box.as_user(
            "alice", f"TERM=xterm-256color script -qec {shlex.quote(program)} /dev/null </dev/null"
        ).out
        assert ("Your login has ended" in shown) == (user == "bob"), (user, shown)
    for path in ("", "/alice", "/bob"):
        assert box.as_user("bob", f"ls /run/agent-box-gate/live{path}").rc != 0


def test_the_gate_sees_what_is_asked(edge: Edge) -> None:
    """What a client declares to be meant for the edge alone reaches the gate nevertheless: it
    judges by it whether a page of the box opens a terminal.
    """
    cookie = with_cookie(edge.sign_in("alice"))
    switch = (("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
              ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="))  # fmt: skip
    foreign = ("Origin", "https://evil.test")
    asks = [
        Ask("/alice/t/main/ws", headers=(*cookie, *switch, foreign, ("Connection", named)))
        for named in (
            "Upgrade",
            "Upgrade, X-Agent-Box-Upgrade, Origin",
            "X-Agent-Box-Upgrade, Origin, Upgrade, Sec-Fetch-Site",
            "close, x-agent-box-upgrade, X-Agent-Box-User, X-Agent-Box-Owner, Origin",
        )
    ]
    for ask, answer in zip(asks, edge.ask(asks), strict=True):
        assert answer.status == 403, (ask, answer)


LEFT = """
self.addEventListener("install", () => skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
self.addEventListener("fetch", (event) => event.respondWith(new Response("a-lie",
  {headers: {"Content-Type": "text/html"}})));
"""
"""A worker as somebody's process may have left one in a browser, before the edge refused it."""

WORKERS = (
    "navigator.serviceWorker.getRegistrations().then((all) => all.map((each) =>"
    " (each.active ?? each.waiting ?? each.installing)?.state ?? 'none'))"
)


def with_worker(caddyfile: str) -> str:
    """Return the edge's file as it would be if it let workers in, bob's among them."""
    script = LEFT.replace("{", r"\{").replace("\n", " ")
    route = f"""
    @left path /bob/t/left.js
    handle @left {{
        header Content-Type text/javascript
        respond `{script}` 200
    }}
"""
    mark = "@worker header Service-Worker *"
    assert caddyfile.count(mark) == 1
    return caddyfile.replace(mark, route + "    @worker header Service-Worker never")


@browser.needed()
def test_workers_in_browsers(visitor: Visitor, edge: Edge, tmp_path: Path) -> None:
    """No service worker stays in a browser: one that a process of a user left there before ends at
    the next look at a page of it, and what is registered ends itself.
    """
    key = edge.box.succeed(
        f"openssl s_client -connect 127.0.0.1:443 -servername {edge.domain} </dev/null 2>/dev/null"
        " | openssl x509 -pubkey -noout | openssl pkey -pubin -outform der"
        " | openssl dgst -sha256 -binary | base64"
    ).strip()
    # A browser lets workers in only where it trusts the certificate.
    with visitor.trusting(key, tmp_path) as context:
        page = context.new_page()
        visitor.sign_in(page, "bob")
        page.wait_for_url("**/bob/**")
        with edge.changed(with_worker):
            page.evaluate("navigator.serviceWorker.register('/bob/t/left.js').then(() => 1)")
            edge.box.wait_for("the worker", lambda: page.evaluate(WORKERS) == ["activated"])
            there = context.new_page()
            there.goto(f"{edge.origin}/bob/t/main/")
            assert "a-lie" in there.content(), "the worker of before does its work"
        there.goto(f"{edge.origin}/bob/t/main/")
        edge.box.wait_for("no worker", lambda: page.evaluate(WORKERS) == [])
        there.goto(f"{edge.origin}/bob/t/main/")
        there.wait_for_function("() => window.term?.element")
        # Nothing that anybody registers stays.
        page.evaluate("navigator.serviceWorker.register('/bob/t/main').then(() => 1)")
        edge.box.wait_for("no worker", lambda: page.evaluate(WORKERS) == [])
