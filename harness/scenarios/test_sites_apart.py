"""Sites against the box and against other users: headers, cookies, names, ports, pace, links."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import browser
from agent_box_harness.edge import Ask, Edge, with_cookie
from agent_box_harness.sites import add, afresh, curl, declare, listen, listing, serve

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from agent_box_harness.box import Box
    from agent_box_harness.browser import Visitor

pytestmark = pytest.mark.limit(240)

EVIL = """
import http.server as h
HEADERS = [
    ("Clear-Site-Data", '"*"'), ("clear-site-data", '"cookies"'), ("Server", "mine"),
    ("Alt-Svc", 'h2=":8443"'), ("NEL", "{}"), ("Secure-Session-Registration", "x"),
    ("Strict-Transport-Security", "max-age=0; includeSubDomains"),
    *(("Set-Cookie", f"{name}=1{text}; Path=/") for name, text in {
        "a": "; Domain=box.test", "b": "; Domain =box.test", "c": ";\\tDomain\\t=box.test",
        "d": "; DOMAIN=.box.test", "e": ";domain = box.test", "f": ";;; \\t domain=box.test",
        "g": ";\\r\\n Domain=box.test", "h": "; Secure; HttpOnly; dOmAiN=box.test; SameSite=None",
        "i": "; Domain=x; Domain=box.test", "j": ', k=1; Domain=box.test, l=1; Domain="box.test"',
        "own": "", "path": "; Path=/domain",
    }.items()),
    ("Set-Cookie", "; Domain=box.test"), ("Set-Cookie", "nameless; Domain=box.test"),
    ("Set-Cookie2", "z=1; Domain=box.test"),
]
class H(h.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        raw = "".join(f"{name}: {value}\\r\\n" for name, value in HEADERS)
        if self.path == "/early":
            self.wfile.write(f"HTTP/1.1 103 Early Hints\\r\\n{raw}\\r\\n".encode())
        if self.path == "/socket":
            self.wfile.write(f"HTTP/1.1 101 Go\\r\\nUpgrade: websocket\\r\\n"
                f"Connection: Upgrade\\r\\nSec-WebSocket-Accept: x\\r\\n{raw}\\r\\n".encode())
            self.close_connection = True
            return
        if self.path == "/upload":
            pass
        body = b"<!doctype html><title>evil</title>"
        self.wfile.write(f"HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\n"
            f"Content-Length: {len(body)}\\r\\n{raw}\\r\\n".encode() + body)
    def do_POST(self):
        left, total = int(self.headers["Content-Length"]), 0
        while left > total:
            total += len(self.rfile.read(min(65536, left - total)))
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        import time
        for word in (self.headers["Host"], str(total)):
            self.wfile.write(f"{len(word):x}\\r\\n{word}\\r\\n".encode())
            self.wfile.flush()
            time.sleep(0.5)
        self.wfile.write(b"0\\r\\n\\r\\n")
    def log_message(self, *_): pass
h.ThreadingHTTPServer(("127.0.0.1", 3300), H).serve_forever()
"""
"""A program of bob's that says everything that could matter beyond its own host."""

FORBIDDEN = ("clear-site-data", "alt-svc", "nel", "secure-session", "set-cookie2", "server: ")


def evil(box: Box) -> str:
    """Publish the program and return its host."""
    box.machine.write_file("/opt/evil.py", EVIL.encode(), mode=0o644)
    serve(box, "bob", "evil", "python3 /opt/evil.py", 3300)
    add(box, "bob", "evil --port 3300 --public")
    return "evil-bob.box.test"


@pytest.mark.renewed
def test_what_a_site_says(edge: Edge) -> None:
    """Nothing that a site answers, in whichever of its answers, matters to another host: no header
    that clears, no cookie of the domain in any spelling; uploads and streams go through.
    """
    box = edge.box
    host = evil(box)
    socket = (
        "--http1.1 -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13'"
        " -H 'Sec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==' --max-time 2"
    )
    answers = {
        path: box.run(
            f"curl -ski {options} --resolve {host}:443:127.0.0.1 https://{host}{path}"
        ).out.lower()
        for path, options in {"/": "", "/early": "--http1.1", "/socket": socket}.items()
    }
    assert "103" in answers["/early"]
    assert " 101 " in answers["/socket"]
    for path, answer in answers.items():
        assert "own=1" in answer, (path, answer)
        for line in answer.splitlines():
            assert not line.startswith(FORBIDDEN), (path, line)
            if line.startswith("set-cookie:"):
                assert "box.test" not in line, (path, line)
            if line.startswith("strict-transport-security:"):
                assert "includesubdomains" not in line, path
    assert "own=1; path=/" in answers["/"]

    # how it goes through: the name that was asked for, a large upload, a stream
    box.succeed("head -c 30000000 /dev/zero >/opt/large")
    timed = box.succeed(
        f"curl -sk --resolve {host}:443:127.0.0.1 --data-binary @/opt/large -N"
        f" -w ' %{{time_starttransfer}} %{{time_total}}' https://{host}/upload"
    )
    text, first, total = timed.rsplit(" ", 2)
    assert text == f"{host}30000000"
    assert float(total) - float(first) > 0.4, "it arrives as it is said"

    # what the edge itself says in its place
    box.succeed("systemctl stop evil.service")
    status, answer = curl(box, host)
    assert status == 502
    assert "\nserver:" not in answer.lower()
    declare(box, "bob", '{"version": 1, "sites": {}}')


def jar(page: Page) -> list[str]:
    """Return the cookies that a browser has for the whole domain."""
    found = page.context.cookies()
    return [each["name"] for each in found if each["domain"].startswith(".")]


@browser.needed()
def test_cookies_of_a_site(visitor: Visitor, edge: Edge) -> None:
    """A browser takes no cookie for the domain from a site's answers, and stays signed in. Where
    its script has filled the jar, the box goes on working, and who signs in begins with an empty
    one.
    """
    box = edge.box
    host = evil(box)
    port = visitor.origin.removeprefix("https://box.test")
    page = visitor.somebody().new_page()
    visitor.sign_in(page, "alice")
    page.get_by_role("tab").first.wait_for()
    other = page.context.new_page()
    for path in ("/", "/early"):
        other.goto(f"https://{host}{port}{path}")
    other.evaluate(
        "new Promise(done => { const s = new WebSocket(`wss://${location.host}/socket`);"
        " s.onclose = s.onerror = s.onopen = done; })"
    )
    assert jar(page) == []
    assert "own" in [each["name"] for each in page.context.cookies(f"https://{host}/")]
    assert page.reload().status == 200  # type: ignore[union-attr]
    page.get_by_role("tab").first.wait_for()

    fill = (
        "count => { for (let n = 0; n < count; n += 1)"
        " document.cookie = `c${n}=${'x'.repeat(3800)}; domain=box.test; path=/; secure`;"
        " return document.cookie.length; }"
    )
    # Of more, a browser forgets the oldest, the login among them: hence `sitesDomain`.
    for count in (60, 150):
        size = other.evaluate(fill, count)
        assert size > 100_000, size
        answer = page.goto(f"{visitor.origin}/alice/")
        assert answer is not None
        assert answer.status == 200
        page.get_by_role("tab").first.wait_for()
        assert visitor.terminal(page, "main").screen is not None

    # somebody without a login, with a jar just as full
    page = visitor.somebody().new_page()
    page.goto(f"https://{host}{port}/")
    page.evaluate(fill, 170)
    answer = page.goto(f"{visitor.origin}/login")
    assert answer is not None
    assert answer.status == 200
    assert jar(page) == []
    visitor.sign_in(page, "alice")
    page.get_by_role("tab").first.wait_for()
    box.succeed("systemctl stop evil.service")
    declare(box, "bob", '{"version": 1, "sites": {}}')


def test_foreign_cookies(edge: Edge) -> None:
    """Cookies that are not the box's reach nothing of it, two logins are none, and only who has
    none has a full jar emptied.
    """
    cookie = edge.sign_in("alice")
    much = "; ".join(f"c{number}={'x' * 3800}" for number in range(100))
    login = {"/login": with_cookie(much), "/alice/": with_cookie(f"{much}; {cookie}; last=1")}
    empty, full = edge.ask([Ask(path, headers=headers) for path, headers in login.items()])
    assert (empty.status, full.status) == (200, 200)
    assert (empty.all("clear-site-data"), full.all("clear-site-data")) == (['"cookies"'], [])
    kept, twice, small = edge.ask(
        [
            Ask("/login", headers=with_cookie(f"{much}; {cookie}")),
            Ask("/alice/", headers=with_cookie(f"{cookie}; {cookie}")),
            Ask("/login", headers=with_cookie("c=1")),
        ]
    )
    assert kept.all("clear-site-data") == small.all("clear-site-data") == []
    assert twice.status != 200


def test_names_that_mislead(edge: Edge) -> None:
    """Nobody has a host name that looks like another user's or like one of the box; who had a
    merely official one from before, keeps it.
    """
    box = edge.box
    hosts = ["alice", "alice-shop", "login", "auth", "gate", "www", "admin", "api", "mail",
             "secure-login", "support", "xn--80ak6aa92e", "box"]  # fmt: skip
    sites: dict[str, Any] = {f"s{n}": {"port": 3400, "host": host} for n, host in enumerate(hosts)}
    sites["alice"] = {"port": 3400}
    sites["fine"] = {"port": 3400, "host": "letters-of-bob"}
    found = declare(box, "bob", json.dumps({"version": 1, "sites": sites}))
    refused = [each["name"] for each in found["sites"] if each["state"] == "refused"]
    assert refused == [*(f"s{n}" for n in range(len(hosts))), "alice"], found
    box.succeed("systemctl stop agent-box-sites.service")
    old = {f"{host}.box.test": ["bob", time.time() - 9e6] for host in ("api", "login")}
    box.machine.write_file("/var/lib/agent-box-sites/claims.json", json.dumps(old).encode())
    del sites["fine"]
    found = declare(box, "bob", json.dumps({"version": 1, "sites": sites}))
    kept = [each["url"] for each in found["sites"] if each["state"] != "refused"]
    assert kept == ["https://api.box.test/"], found

    # a name that was given up waits for its user
    declare(box, "bob", '{"version": 1, "sites": {"a": {"port": 3400, "host": "pens"}}}')
    declare(box, "bob", '{"version": 1, "sites": {}}')
    afresh(box)
    wanted = '{"version": 1, "sites": {"a": {"port": 3500, "host": "pens"}}}'
    found = declare(box, "alice", wanted)
    assert "belongs to another user" in found["sites"][0]["reason"]
    found = declare(box, "bob", '{"version": 1, "sites": {"b": {"port": 3400, "host": "pens"}}}')
    assert found["sites"][0]["state"] != "refused"
    for user in ("alice", "bob"):
        declare(box, user, '{"version": 1, "sites": {}}')


def test_whose_port(edge: Edge) -> None:
    """A port that was free when its site was published never shows another user's program, whoever
    starts one there when; the edge's way to it is root's.
    """
    box = edge.box
    add(box, "bob", "spy --port 3600 --public")
    host = "spy-bob.box.test"
    assert curl(box, host)[0] == 502
    listen(box, "alice", 3600)
    assert curl(box, host)[0] == 502
    box.succeed("systemctl stop site-alice-3600.service")
    listen(box, "bob", 3600)
    assert "bob 3600" in curl(box, host)[1]
    # within a connection that the edge keeps open, too
    box.succeed("systemctl stop site-bob-3600.service")
    listen(box, "alice", 3600)
    assert curl(box, host)[0] == 502
    box.succeed("systemctl stop site-alice-3600.service")

    path = "/run/agent-box-site-port/bob/3600.sock"
    for command in (
        f"mv {path} {path}.x", f"ln -s x {path}.y", f"rm -f {path}",
        "mkdir /run/agent-box-site-port/x",
        f"python3 -c 'import socket as s; s.socket(s.AF_UNIX).connect(\"{path}\")'",
    ):  # fmt: skip
        assert box.in_session("bob", command).rc != 0, command
    state = "/var/lib/agent-box-sites/sites.caddy"
    assert box.run(f"grep -E 'reverse_proxy *[0-9[]' {state}").rc != 0
    box.as_user("bob", "agent-box-site rm spy").check("rm")
    gone = "systemctl is-active agent-box-site-port-bob@3600.socket"
    box.wait_for("its end", lambda: box.run(gone).rc != 0)
    assert box.run(f"test -e {path}").rc != 0


CHURN = """
import json, os, socket, time
path = os.path.expanduser("~/.config/agent-box/sites.json")
end, number = time.monotonic() + 20, 0
while time.monotonic() < end:
    number += 1
    sites = {f"s{number % 7}-{n}": {"port": 3700 + number % 5} for n in range(15)}
    data = json.dumps({"version": 1, "sites": sites, }).encode()
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)
    try:
        with socket.socket(socket.AF_UNIX) as hasty, socket.socket(socket.AF_UNIX) as idle:
            for each in (idle, hasty):
                each.settimeout(0.05)
                each.connect("/run/agent-box-site-lists/bob.sock")
            hasty.sendall(b"list\\n" + data)
    except OSError:
        pass
"""
"""Declares other sites all the time, and knocks besides."""


def used(box: Box) -> float:
    """CPU seconds of root's units about sites so far."""
    text = box.succeed(
        "systemctl show -P CPUUsageNSec agent-box-sites.service caddy.service init.scope"
    )
    return sum(int(line) for line in text.split() if line.isdigit()) / 1e9


def test_one_user_in_a_loop(edge: Edge) -> None:
    """Who changes sites all the time neither has others wait nor makes root's units work without
    a bound.
    """
    box = edge.box
    afresh(box)
    listen(box, "alice", 3000)
    box.machine.write_file("/opt/churn.py", CHURN.encode(), mode=0o644)
    before = used(box)
    box.succeed("systemd-run --quiet --uid=bob --unit=churn python3 /opt/churn.py")
    time.sleep(8)
    began = time.monotonic()
    box.as_user("alice", "agent-box-site add shop --port 3000 --public").check("add")
    waited = time.monotonic() - began
    assert "alice 3000" in curl(box, "shop-alice.box.test")[1]
    box.wait_for("its end", lambda: box.run("systemctl is-active churn").rc != 0)
    spent = used(box) - before
    assert waited < box.machine.scaled(8), waited
    assert spent < box.machine.scaled(6), spent
    reloads = json.loads(box.read("/run/agent-box-sites/pace.json"))
    assert len(reloads["bob"]) <= 5, reloads
    assert box.succeed("systemctl --failed --no-legend --plain") == ""
    # what came last is taken up as soon as it is bob's turn
    found = listing(box, "bob")
    assert found["pending"] or found["problem"] is None
    declare(box, "bob", '{"version": 1, "sites": {}}')
    box.as_user("alice", "agent-box-site rm shop").check("rm")
    box.succeed("systemctl stop site-alice-3000.service")


def test_links_in_a_home(edge: Edge) -> None:
    """Nothing of root's looks where a link of a user leads; what is no list says so, and what
    was in force stays so.
    """
    box = edge.box
    listen(box, "bob", 4000)
    site = {"version": 1, "sites": {"mine": {"port": 4000, "public": True}}}
    declare(box, "bob", json.dumps(site))
    secret = "/var/lib/agent-box-gate/gate.json"
    path = f"{box.home('bob')}/.config/agent-box/sites.json"
    box.as_user("bob", f"ln -sfn {secret} {path}").check("link")
    box.wait_for("word of it", lambda: listing(box, "bob")["problem"] is not None)
    assert "bob 4000" in curl(box, "mine-bob.box.test")[1]
    result = "/run/agent-box-sites/bob.json"
    before = box.succeed(f"stat -c %y%i {result}; cat {result}")
    edge.sign_in("alice")
    box.succeed(f"touch {secret}")
    time.sleep(2)
    assert box.succeed(f"stat -c %y%i {result}; cat {result}") == before
    watched = box.succeed("systemctl show -P Paths '*.path' | grep /home || true")
    assert "sites.json" not in watched
    # nor does its helper have a home to look into
    assert box.succeed("systemctl show -P ProtectHome agent-box-sites.service").strip() == "yes"

    # a list of the user's that lies elsewhere
    box.as_user("bob", f"ln -sfn {box.home('bob')}/list {path}").check("link")
    box.as_user("bob", f"cat >{box.home('bob')}/list", stdin='{"version": 1, "sites": {}}')
    box.wait_for("its end", lambda: curl(box, "mine-bob.box.test")[0] in (0, 421), timeout=60)
    box.succeed("systemctl stop site-bob-4000.service")


def test_a_domain_for_sites(edge: Edge) -> None:
    """With a domain of its own for sites, each is there and no longer below the box's."""
    box = edge.box
    listen(box, "alice", 3000)
    add(box, "alice", "shop --port 3000 --public")
    kept = box.read("/etc/agent-box/box.json")
    document = json.loads(kept)
    document["web"]["sitesDomain"] = "sites.test"
    box.succeed("rm -f /etc/agent-box/box.json")

    def configure(text: str) -> None:
        box.machine.write_file("/etc/agent-box/box.json", text.encode(), mode=0o444)
        box.succeed("systemctl restart agent-box-sites.service")
        box.succeed("systemctl stop agent-box-settings-alice.service")

    configure(json.dumps(document))
    box.wait_for("the site", lambda: curl(box, "shop-alice.sites.test")[0] == 200)
    assert curl(box, "shop-alice.box.test")[0] in (0, 421)
    assert listing(box, "alice")["sites"][0]["url"] == "https://shop-alice.sites.test/"
    (shown,) = edge.ask([Ask("/alice/api/sites", headers=with_cookie(edge.sign_in("alice")))])
    assert json.loads(shown.body)["domain"] == "sites.test"
    configure(kept)
    box.wait_for("the site", lambda: curl(box, "shop-alice.box.test")[0] == 200)
    declare(box, "alice", '{"version": 1, "sites": {}}')
    box.succeed("systemctl stop site-alice-3000.service")
