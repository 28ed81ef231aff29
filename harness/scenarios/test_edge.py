"""The edge lets in who is signed in, and nobody else; it reads addresses as the gate does.

The requests are made from one table of routes. What a route answers to whom follows from the kind
of route and the credential, and is written down once.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import matrix, outside
from agent_box_harness.edge import COOKIE, PASSWORDS, Ask, Edge, with_cookie
from agent_box_harness.routes import opened, paths, served, tricks, wrong

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]

OTHER_METHODS = ("TRACE", "CONNECT", "PROPFIND", "get")

KEPT = "/var/lib/agent-box-assets/assets"
EARLIER = "fedcba9876543210"


def test_routes(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """Every route answers as it should to nobody, to its owner and to somebody else, and to
    cookies that are empty, made up, doubled, revoked, too old or unused for too long; every answer
    has the headers of the box.
    """
    expected = matrix.by_credential(edge, matrix.credentials(edge))
    answers = edge.ask(expected, timeout=120)
    assert wrong(expected, answers) == []
    measured("requests of the matrix", len(expected))
    assert matrix.bad_headers(list(expected), answers) == []
    # Nothing listens where newer versions of HTTP would be asked for.
    assert edge.box.succeed("ss -Hlun 'sport = :443'") == ""


def test_every_address(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """Every address that the services say they answer, with every method, is closed to whatever is
    no login and to other users, and changes nothing for its owner's cookie without a page of the
    box; no address is missing from the table of those that answer.
    """
    known = {path for _, path in paths("alice")}
    plain = {path for path in served(edge, "alice") if "x" not in path.split("/")}
    assert plain - known == {"/alice/t/main/ws"}  # which is no page
    count = 0
    for who, expected in matrix.by_service(edge, matrix.credentials(edge)).items():
        count += len(expected)
        assert wrong(expected, edge.fetch("2", expected, timeout=120)) == [], who
    measured("requests over all addresses and methods", count)
    assert [view["name"] for view in edge.box.sessions("alice")] == ["main"]
    edge.box.succeed("agent-box-gate unban --all")


def test_units(edge: Edge) -> None:
    """The units of the browser side are up, and none of them is in a group that opens more than
    the sockets it needs.
    """
    box = edge.box
    assert box.succeed("systemctl --failed --no-legend --plain") == ""
    for unit in ("caddy", "agent-box-gate", "agent-box-terminal-alice"):
        pid = outside.main_pid(box, f"{unit}.service")
        status = box.read(f"/proc/{pid}/status")
        groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
        group = next(line for line in status.splitlines() if line.startswith("Gid:")).split()[1]
        assert set(groups.split()[1:]) <= {group}, unit


def test_methods(edge: Edge) -> None:
    """No method gets anything without a login; those that HTTP hardly knows get nothing at all."""
    expected = matrix.by_method("alice")
    assert wrong(expected, edge.ask(expected, timeout=120)) == []
    cookie = with_cookie(edge.sign_in("alice"))
    strange = [Ask("/alice/", method, cookie) for method in OTHER_METHODS]
    assert {answer.status for answer in edge.ask(strange)} <= {400, 405, 501}


def test_paths(edge: Edge) -> None:
    """No spelling of an address opens anything: to nobody, and to alice nothing of bob's."""
    nobody, alice = tricks(with_cookie(edge.sign_in("alice")))
    assert opened(nobody, edge.ask(nobody)) == []
    assert opened(alice, edge.ask(alice)) == []


def test_foreign_pages(edge: Edge) -> None:
    """A page of another origin changes nothing with the visitor's cookie, whatever it calls itself,
    and reads nothing either.
    """
    cookie = with_cookie(edge.sign_in("alice"))
    kind = ("Content-Type", "application/json")
    body = '{"name": "planted", "agent": "shell"}'
    foreign = [
        (("Origin", origin), *site)
        for origin in ("https://evil.test", "https://a.box.test", "https://box.test:8443",
                       "http://box.test", "null", "https://box.test.")
        for site in ((), (("Sec-Fetch-Site", "same-site"),), (("Sec-Fetch-Site", "none"),))
    ]  # fmt: skip
    foreign += [(), (("Sec-Fetch-Site", "cross-site"),), (("Sec-Fetch-Site", "same-site"),),
                (("Origin", edge.origin), ("Sec-Fetch-Site", "cross-site")),
                (("Origin", edge.origin), ("Origin", "https://evil.test"))]  # fmt: skip
    targets = ("/alice/api/sessions", "/alice/api/restart-all", "/gate/password", "/gate/unban",
               "/logout")  # fmt: skip
    asks = [
        Ask(target, "POST", (*cookie, kind, *headers), body)
        for target, headers in itertools.product(targets, foreign)
    ]
    asks += [Ask("/alice/api/sessions/main", "DELETE", (*cookie, kind, *each)) for each in foreign]
    fetched = ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")
    asks += [Ask("/alice/api/env", headers=(*cookie, *fetched))]
    for ask, answer in zip(asks, edge.ask(asks, timeout=90), strict=True):
        assert answer.status == 403, (ask, answer)
    assert [view["name"] for view in edge.box.sessions("alice")] == ["main"]
    assert edge.ask([Ask("/alice/", headers=cookie)])[0].status == 200
    # The login form itself: nobody is signed in from elsewhere.
    form = edge.form("alice", PASSWORDS["alice"])
    content = ("Content-Type", "application/x-www-form-urlencoded")
    asks = [Ask("/login", "POST", (content, *headers), form.body) for headers in foreign if headers]
    assert {answer.status for answer in edge.ask(asks)} == {403}


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


def test_http2(edge: Edge) -> None:
    """Over HTTP/2 the routes are closed as well, to every method."""
    expected = matrix.by_method("bob")
    assert wrong(expected, edge.fetch("2", expected, timeout=120)) == []


def test_compression(edge: Edge) -> None:
    """Pages, scripts and the terminal come compressed to who can read that, whole either way;
    events, which would be held back, do not.
    """
    cookie = with_cookie(edge.sign_in("alice"))
    targets = ["/alice/", "/alice/t/main/", "/alice/api/box", "/alice/events", "/login"]
    (page,) = edge.ask([Ask("/alice/", headers=cookie)])
    targets += re.findall(r'(?:href|src)="(/alice/assets/[^"]+[.](?:css|js))"', page.body)
    assert len(targets) > 6, page.body
    for coding in ("gzip", "zstd"):
        asks = [
            Ask(path, headers=(*(cookie if path != "/login" else ()), ("Accept-Encoding", coding)))
            for path in targets
        ]
        for ask, answer in zip(asks, edge.ask(asks, bodies=False), strict=True):
            wanted = [] if ask.target.endswith("/events") else [coding]
            assert answer.all("content-encoding") == wanted, (ask.target, answer.headers)
    fetch = f"curl -sk --resolve {edge.domain}:443:127.0.0.1 -b '{cookie[0][1]}'"
    for path in ("/alice/t/main/", targets[-1]):
        plain, packed = (
            edge.box.succeed(f"{fetch} {headers} {edge.origin}{path} | sha256sum")
            for headers in ("", "--compressed -H 'Accept-Encoding: gzip'")
        )
        assert plain == packed, path


def test_scripts_of_an_earlier_version(edge: Edge) -> None:
    """A page that is open over an update gets the scripts that it began with; one from before those
    that are kept gets the present ones, and does not keep them.
    """
    box, cookie = edge.box, with_cookie(edge.sign_in("alice"))
    unit = "systemctl show -P ExecStart agent-box-assets"
    pages = box.succeed(f"{unit} | grep -o '/[^ ]*agent-box-pages' | head -1").strip()
    box.wait_until_succeeds(f"cmp {KEPT}/*/core.js {pages}/assets/current/core.js")
    box.write_file(f"{KEPT}/{EARLIER}/core.js", "earlier\n", mode=0o644)
    box.succeed(f"chmod 0755 {KEPT}/{EARLIER}")
    paths = [f"/alice/assets/{version}/core.js" for version in (EARLIER, "0" * 16)]
    kept, gone = edge.ask([Ask(path, headers=cookie) for path in paths])
    box.succeed(f"rm -r {KEPT}/{EARLIER}")
    assert (kept.status, kept.body) == (200, "earlier\n")
    assert kept.all("cache-control") == ["private, max-age=31536000, immutable"]
    assert kept.all("content-type") == ["text/javascript; charset=utf-8"]
    assert gone.status == 200
    assert "export const user" in gone.body
    assert "immutable" not in "".join(gone.all("cache-control"))
    stranger = edge.ask([Ask(paths[0])])[0]
    assert stranger.status == 401


def test_password(edge: Edge) -> None:
    """A right name and password work as Basic credentials, wrong ones do not."""
    asks = {
        Ask("/bob/api/sessions", headers=edge.basic("bob", PASSWORDS["bob"])): 200,
        Ask("/alice/api/sessions", headers=edge.basic("bob", PASSWORDS["bob"])): 403,
        Ask("/alice/api/sessions", headers=edge.basic("alice", PASSWORDS["bob"])): 401,
        Ask("/alice/api/sessions", headers=edge.basic("nosuch", PASSWORDS["bob"])): 401,
    }
    assert wrong(asks, edge.ask(asks)) == []
    edge.box.succeed("agent-box-gate unban --all")


def test_sizes(edge: Edge) -> None:
    """What is too large is refused at once, and the log of requests has no secret in it."""
    long = "x" * 40_000
    cookie = edge.sign_in("alice")
    asks = {
        Ask("/login", "POST", (("Origin", edge.origin),), long): 413,
        # Room for all cookies of a domain, whoever set them, and for nothing else.
        Ask("/alice/", headers=(("X-Long", "x" * 100_000),)): 400,
        Ask("/alice/", headers=(("X-Long", "x" * 1_200_000),)): 431,
        Ask("/alice/api/sessions?token=very-secret", headers=with_cookie(cookie)): 200,
    }
    assert wrong(asks, edge.ask(asks)) == []
    written = "journalctl -b -u caddy.service -o cat --no-pager"
    # The journal takes what the edge writes a little later.
    edge.box.wait_for(
        "the request in the log",
        lambda: '"uri":"/alice/api/sessions?..."' in edge.box.succeed(written),
    )
    log = edge.box.succeed(written)
    for secret in ("very-secret", cookie.partition("=")[2], COOKIE, PASSWORDS["alice"]):
        assert secret not in log
