"""The edge's question: every kind of credential on every kind of route."""

from __future__ import annotations

import itertools
import re

import pytest

from .conftest import ADDRESS, HTML, ORIGIN, PASSWORDS, Make, Running, basic, cookie

UPGRADE = ("X-Agent-Box-Upgrade", "websocket")
SAME = ("Sec-Fetch-Site", "same-origin")

# What the edge routes, by whose it is. A new route needs a line here and nowhere else.
ROUTES = {
    "/": None,
    "/favicon.ico": None,
    "/nosuch/": None,
    **{
        f"/{user}{path}": user
        for user in ("alice", "bob", "carol")
        for path in (
            "",
            "/",
            "/?arg=main",
            "/settings/",
            "/api/sessions",
            "/events",
            "/assets/app-0123.js",
            "/t/main",
            "/t/main/ws",
            "/downloads/",
            "/downloads/a%20b;c%C3%BC.txt",
            "/nothing",
        )
    },
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


def expected(route: str, who: str | None) -> int:
    if who is None:
        return 401
    return 403 if ROUTES[route] not in (None, who) else 200


@pytest.fixture
def credentials(make: Make):
    """A running gate and, by name, the headers of a credential and whose it is (if right)."""
    gate = make()
    alice, bob = gate.login("alice").token, gate.login("bob").token
    gone = gate.login("alice").token
    out = gate.send("POST", "/logout", [cookie(gone), ("Origin", ORIGIN)])
    assert out.status == 303
    tampered = alice[:-1] + ("A" if alice[-1] != "A" else "B")
    kinds = {
        "none": ([], None),
        "alice": ([cookie(alice)], "alice"),
        "bob": ([cookie(bob)], "bob"),
        "revoked": ([cookie(gone)], None),
        "tampered": ([cookie(tampered)], None),
        "shortened": ([cookie(alice[:-1])], None),
        "lengthened": ([cookie(alice + "A")], None),
        "quoted": ([cookie(f'"{alice}"')], None),
        "empty cookie": ([cookie("")], None),
        "two cookies": ([("Cookie", f"__Host-agent_box={alice}; __Host-agent_box={alice}")], None),
        "two cookie headers": ([cookie(alice), cookie(bob)], None),
        "other name": ([("Cookie", f"agent_box={alice}; __host-agent_box={alice}")], None),
        "cookie among others": ([("Cookie", f"a=b; __Host-agent_box={alice}; c")], "alice"),
        "basic": ([basic("alice", PASSWORDS["alice"])], "alice"),
        "basic of bob": ([basic("bob", PASSWORDS["bob"])], "bob"),
        "basic without password": ([basic("alice", "")], None),
        "bearer": ([("Authorization", f"Bearer {alice}")], None),
        "stale cookie, right basic": (
            [cookie(gone), basic("alice", PASSWORDS["alice"])],
            "alice",
        ),
        "right cookie, wrong basic": ([cookie(alice), basic("bob", "wrong")], "alice"),
    }
    return gate, kinds


def test_every_route_method_and_credential(credentials):
    gate, kinds = credentials
    wrong = []
    for route, method, (name, (headers, who)) in itertools.product(ROUTES, METHODS, kinds.items()):
        sent = [*headers, ("Origin", ORIGIN), SAME]
        answer = gate.auth(route, *sent, method=method)
        if answer.status != expected(route, who):
            wrong.append((route, method, name, answer.status))
        if answer.status == 200 and (
            answer.get("x-agent-box-user") != who or not answer.get("x-agent-box-login")
        ):
            wrong.append((route, method, name, "identity"))
        if answer.status != 200 and answer.get("x-agent-box-user") is not None:
            wrong.append((route, method, name, "identity on refusal"))
        assert answer.get("set-cookie") is None
    assert wrong == []
    assert gate.failures() == []


def test_wrong_passwords_are_401_on_every_route(make: Make):
    gate = make()
    names = itertools.cycle(("alice", "nobody", "", "bob"))
    for number, (route, name) in enumerate(zip(ROUTES, names, strict=False)):
        answer = gate.auth(route, basic(name, "wrong"), address=f"198.51.100.{number}")
        assert answer.status == 401
    assert len(gate.failures()) == len(ROUTES)


@pytest.mark.parametrize(
    "broken",
    [
        ("Authorization", "Basic !!!"),
        ("Authorization", "Basic " + "QQ" * 4000),
        ("Authorization", "Basic /////w=="),
    ],
)
def test_broken_basic_counts_once(gate: Running, broken):
    assert gate.auth("/alice/", broken).status == 401
    assert gate.failures() == [f"agent-box-gate: failed login from {ADDRESS}"]


TRICKS = [
    "//alice/",
    "/alice//settings/",
    "//",
    "/./alice/",
    "/bob/../alice/",
    "/bob/%2e%2e/alice/",
    "/bob/%2E%2e/alice/",
    "/bob/..%2falice/",
    "/bob%2f..%2falice/",
    "/%2e/alice/",
    "/ALICE/",
    "/Alice/settings/",
    "/%41lice/",
    "/alice%00/",
    "/bob/%00/../alice",
    "/bob/..\\alice/",
    "/bob/%5c..%5calice/",
    "/bob/%",
    "/bob/%zz",
    "/bob/%c0%af",
    "/bob/%ff",
    "/bob/a%0d%0ab",
    "/bob/%7f",
    "http://box.example/alice/",
    "alice/",
    "*",
    "/bob/#/alice/",
    "/bob/" + "a" * 9000,
]


@pytest.mark.parametrize("trick", TRICKS)
def test_tricky_paths_open_nothing(standing: Running, trick: str):
    assert standing.auth(trick).status == 401
    assert standing.auth(trick, HTML).status == 401
    token = standing.login("bob").token
    assert standing.auth(trick, cookie(token)).status in (403, 404)


def test_an_escaped_name_is_the_name(gate: Running):
    token = gate.login("bob").token
    assert gate.auth("/%61lice/", cookie(token)).status == 403
    assert gate.auth("/%62ob/", cookie(token)).status == 200
    assert gate.auth("/%2561lice/", cookie(token)).status == 200  # nobody's: the edge says 404


def test_the_edge_may_tell_whose_door_it_opens(gate: Running):
    token = gate.login("bob").token
    owner = "X-Agent-Box-Owner"
    assert gate.auth("/bob/", cookie(token), (owner, "bob")).status == 200
    assert gate.auth("/bob/", cookie(token), (owner, "alice")).status == 403
    assert gate.auth("/bob/", cookie(token), (owner, "bob"), (owner, "alice")).status == 403
    assert gate.auth("/", cookie(token), (owner, "alice")).status == 403
    assert gate.auth("/", cookie(token), (owner, "")).status == 200


BAD_ORIGINS = [
    "null",
    "http://box.example",
    "https://box.example.",
    "https://box.example:8443",
    "https://other.example",
    "https://evil.box.example",
    "https://9-9-9-9.example",
    "https://box.example.evil.example",
    "HTTPS://BOX.EXAMPLE",
    "",
]


@pytest.mark.parametrize("origin", BAD_ORIGINS)
def test_only_the_boxs_own_pages_open_websockets_or_change_things(standing: Running, origin: str):
    token = standing.login().token
    for credential in (cookie(token), basic("alice", PASSWORDS["alice"])):
        bad = standing.auth("/alice/t/main/ws", credential, UPGRADE, ("Origin", origin))
        assert bad.status == 403
        bad = standing.auth("/alice/api/x", credential, SAME, ("Origin", origin), method="POST")
        assert bad.status == 403


def test_origins_of_websockets(gate: Running):
    mine = cookie(gate.login().token)
    good = ("Origin", ORIGIN)
    assert gate.auth("/alice/t/main/ws", mine, UPGRADE, good).status == 200
    assert gate.auth("/alice/t/main/ws", mine, UPGRADE).status == 403
    assert gate.auth("/alice/t/main/ws", mine, UPGRADE, good, good).status == 403
    assert gate.auth("/alice/t/main/ws", UPGRADE, good).status == 401
    password = basic("alice", PASSWORDS["alice"])
    assert gate.auth("/alice/t/main/ws", password, UPGRADE).status == 403
    assert gate.auth("/alice/t/main/ws", password, UPGRADE, good).status == 200


@pytest.mark.parametrize(
    ("headers", "with_cookie", "with_basic"),
    [
        ([], 403, 200),
        ([("Origin", ORIGIN)], 200, 200),
        ([SAME], 200, 200),
        ([SAME, ("Origin", ORIGIN)], 200, 200),
        ([("Sec-Fetch-Site", "none")], 403, 403),
        ([("Sec-Fetch-Site", "none"), ("Origin", ORIGIN)], 200, 200),
        ([("Sec-Fetch-Site", "same-site"), ("Origin", ORIGIN)], 403, 403),
        ([("Sec-Fetch-Site", "cross-site"), ("Origin", ORIGIN)], 403, 403),
        ([("Sec-Fetch-Site", "cross-site")], 403, 403),
    ],
)
def test_changes_need_the_boxs_own_page(standing: Running, headers, with_cookie, with_basic):
    mine, password = cookie(standing.login().token), basic("alice", PASSWORDS["alice"])
    assert standing.auth("/alice/api/x", mine, *headers, method="DELETE").status == with_cookie
    assert standing.auth("/alice/api/x", password, *headers, method="DELETE").status == with_basic


def test_other_sites_may_link_but_not_embed(gate: Running):
    mine = cookie(gate.login().token)
    foreign = ("Sec-Fetch-Site", "same-site")
    assert gate.auth("/alice/", mine, foreign, ("Sec-Fetch-Mode", "navigate")).status == 200
    assert gate.auth("/alice/api/x", mine, foreign, ("Sec-Fetch-Mode", "no-cors")).status == 403


def test_a_browser_gets_the_page_and_others_a_challenge(gate: Running):
    page = gate.auth("/alice/?arg=main&x=%22", HTML)
    assert page.status == 401
    assert page.get("content-type") == "text/html; charset=utf-8"
    assert 'name="next" value="/alice/?arg=main&amp;x=%22"' in page.text
    assert 'value="alice"' in page.text
    assert "Basic" not in (page.get("www-authenticate") or "")
    plain = gate.auth("/alice/", ("Accept", "*/*"))
    assert plain.status == 401
    assert plain.get(
        "www-authenticate",
    ).startswith("Basic ")
    assert plain.body == b""
    script = gate.auth("/alice/api/x", ("Accept", "*/*"), ("Sec-Fetch-Mode", "cors"))
    assert script.status == 401
    assert "Basic" not in (script.get("www-authenticate") or "")
    assert gate.failures() == []


def test_the_page_says_when_a_login_has_ended(gate: Running):
    page = gate.auth("/alice/", HTML, cookie("A" * 43), method="GET")
    assert "Your login has ended" in page.text
    posted = gate.auth("/alice/api/x", HTML, cookie("A" * 43), method="POST")
    assert 'name="next" value=""' in posted.text


def test_the_page_is_the_same_for_users_and_strangers(gate: Running):
    pages = [gate.auth(f"/{name}/", HTML) for name in ("alice", "nobody")]
    texts = [pages[0].text.replace("alice", "X"), pages[1].text.replace("nobody", "X")]
    assert texts[0] == texts[1]
    assert pages[0].headers == [
        (key, value if key != "content-length" else pages[0].get(key))
        for key, value in pages[1].headers
    ]


def test_a_link_on_another_site_comes_back_with_the_cookie(gate: Running):
    foreign = ("Sec-Fetch-Site", "cross-site")
    page = gate.auth("/alice/?arg=x&y=1", HTML, foreign, ("Sec-Fetch-Mode", "navigate"))
    assert page.status == 401
    assert 'content="0; url=/alice/?arg=x&amp;y=1"' in page.text
    again = gate.auth("/alice/?arg=x&y=1", HTML, ("Sec-Fetch-Site", "same-origin"))
    assert "refresh" not in again.text


def test_somebody_elses_page_says_who_one_is(gate: Running):
    page = gate.auth("/bob/", HTML, cookie(gate.login().token))
    assert page.status == 403
    assert "<strong>alice</strong>" in page.text
    assert 'action="/logout"' in page.text


def test_an_edge_that_says_too_little_or_too_much_opens_nothing(gate: Running):
    mine = cookie(gate.login().token)
    uri, method = ("X-Forwarded-Uri", "/alice/"), ("X-Forwarded-Method", "GET")
    for headers in ([], [uri], [method], [uri, uri, method], [uri, method, method]):
        assert gate.send("GET", "/auth", [mine, *headers]).status == 400


def test_an_upgrade_request_is_answered_like_any_other(gate: Running):
    mine = cookie(gate.login().token)
    answer = gate.auth(
        "/alice/t/main/ws",
        mine,
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    )
    assert answer.status == 200
    assert answer.get("x-agent-box-user") == "alice"
    assert answer.get("server") is None


def test_every_answer_has_the_same_guards(gate: Running):
    mine = cookie(gate.login().token)
    for answer in (
        gate.auth("/alice/"),
        gate.auth("/alice/", HTML),
        gate.auth("/alice/", mine),
        gate.auth("/bob/", mine),
        gate.send("GET", "/login"),
        gate.login(password="wrong"),
        gate.send("GET", "/gate/logins"),
    ):
        assert answer.get("cache-control") == "no-store"
        assert answer.get("x-content-type-options") == "nosniff"
        assert answer.get("referrer-policy") == "same-origin"
        policy = answer.get("content-security-policy") or ""
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert not re.search(r"<script|style=|\son\w+=", answer.text)
