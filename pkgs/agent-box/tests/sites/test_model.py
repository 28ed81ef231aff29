"""Entries, host names and listeners: who may publish what."""

from __future__ import annotations

import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box.errors import UsageError
from agent_box.sites import caddyfile, listeners, model, names
from agent_box.sites.listeners import Listener
from agent_box.sites.model import Site

USERS = ["alice", "bob", "x-bob", "li_ng"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "1",
        "{}",
        '{"version": 2, "sites": {}}',
        '{"version": 1, "sites": []}',
        '{"version": 1, "more": {}}',
        '{"version": 1, "sites": {"a": 1, "a": 2}}',
        "[" * 100_000,
        "\xff",
        " " * (model.MOST_BYTES + 1),
    ],
)
def test_what_is_no_list(text):
    with pytest.raises(UsageError):
        model.parse(text.encode("latin-1"))


def test_empty_lists():
    for text in (b"", b" \n", b'{"version": 1}', b'{"version": 1, "sites": {}}'):
        assert model.parse(text) == {}


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"port": 3000, "dir": "x"},
        {"port": "3000"},
        {"port": True},
        {"port": 3000.5},
        {"port": 1023},
        {"port": 65536},
        {"port": -1},
        {"port": 3000, "public": 1},
        {"port": 3000, "other": 1},
        {"port": 3000, "host": "a.b"},
        {"port": 3000, "host": "evil.example"},
        {"port": 3000, "host": "x\n"},
        {"port": 3000, "host": ""},
        [],
        None,
        "3000",
    ],
)
def test_bad_entries(raw):
    with pytest.raises(UsageError):
        model.check("name", raw)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a" * 41, "a\n", "ä", "a b"])
def test_bad_names(name):
    with pytest.raises(UsageError):
        model.check(name, {"port": 3000})


@pytest.mark.parametrize(
    "path", ["", ".", "..", "../x", "a/../b", "/etc", "/home/alice", "/home/alice/sites", ".git",
             "a/.git", "a b", "a\nb", "a{b", "/home/alice/sites/../x", "x" * 101, "a/" * 300]
)  # fmt: skip
def test_bad_folders(path):
    with pytest.raises(UsageError):
        model.below_sites(path, "/home/alice")


def test_folders():
    for path in ("blog/dist", "/home/alice/sites/blog/dist", "blog//dist/"):
        assert model.below_sites(path, "/home/alice") == "blog/dist"


@pytest.mark.parametrize(
    ("user", "name", "host", "label"),
    [
        ("alice", "shop", None, "shop-alice"),
        ("alice", "shop", "letters", "letters"),
        ("alice", "shop", "x-alice", "x-alice"),
        ("alice", "shop", "shop-bob", None),
        ("bob", "shop", "shop-bob", "shop-bob"),
        # the longer name wins, or whose site this is would depend on who asks
        ("bob", "shop-x", None, None),
        ("x-bob", "shop", None, "shop-x-bob"),
        ("li_ng", "shop", None, "shop-li-ng"),
        ("alice", "shop", "shop-li-ng", None),
    ],
)
def test_labels(user, name, host, label):
    site = Site(port=3000, host=host)
    if label is None:
        with pytest.raises(UsageError):
            names.label_of(name, site, user, USERS)
    else:
        assert names.label_of(name, site, user, USERS) == label


def test_a_default_label_is_short_enough():
    with pytest.raises(UsageError, match="too long"):
        names.label_of("n" * 40, Site(port=3000), "u" * 31, ["u" * 31])


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1
   1: 00000000:0FA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 2 1
   2: 0100007F:0BB8 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1002        0 3 1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:0BB9 00000000000000000000000000000000:0000 0A 0:0 0:0 0 1000 0 4
   1: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 0:0 0:0 0 1001 0 5
"""  # noqa: E501


def test_listeners(tmp_path):
    (tmp_path / "tcp").write_text(TCP)
    assert len(listeners.listeners(tmp_path)) == 2
    (tmp_path / "tcp6").write_text(TCP6)
    found = listeners.listeners(tmp_path)
    assert found[0] == Listener("127.0.0.1", 3000, 1000)
    assert found[2] == Listener("::1", 3001, 1000)
    reached = {target: each.uid for target, each in listeners.reached(3000, found).items()}
    assert reached == {"127.0.0.1": 1000, "::1": 1001}
    assert listeners.reached(4000, found)["127.0.0.1"].uid == 1001
    assert listeners.reached(5000, found) == {}


def test_this_machine_can_be_read():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listeners.reached(port, listeners.listeners())["127.0.0.1"].uid == os.getuid()


def test_whom_a_connection_is_with():
    import socket

    me = os.getuid()
    for address in ("127.0.0.1", "::1"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket.create_server((address, 0), family=family)
        with server, socket.create_connection(server.getsockname()[:2]) as connection:
            assert listeners.is_with(connection, me)
            assert not listeners.is_with(connection, me + 1)
            accepted = server.accept()[0]
            assert listeners.is_with(connection, me)
            server.close()
            assert not listeners.is_with(connection, me), "whose port it is now, nobody knows"
            accepted.close()


OWN = [
    ("alice", "login", None), ("alice", "api", None), ("alice", "x", "alice"),
    ("alice", "x", "alice-shop"), ("alice", "x", "shop"), ("alice", "x", "malice"),
    ("bob", "x", "bobsleigh"), ("x-bob", "x", "x-bob"), ("x-bob", "shop", "x-bob-shop"),
    ("alice", "x", "blog"), ("alice", "x", "api-of-mine"), ("alice", "x", "gateway"),
]  # fmt: skip
OTHERS = [
    ("bob", "x", "alice"), ("bob", "x", "alice-shop"), ("bob", "alice", None),
    ("bob", "x", "a1ice"),
    ("bob", "x", "allce-x"), ("bob", "x", "x-bob"), ("bob", "x", "li-ng"),
    ("alice", "x", "bob-bob"),
    ("bob", "xn--80ak6aa92e", None), ("bob", "x", "xn--80ak6aa92e"), ("bob", "x", "ab--cd"),
    *(("bob", "x", host) for host in ("login", "auth", "gate", "www", "admin", "api", "mail",
      "account", "secure", "support", "box", "log-in", "l0gin", "my-login", "login-page", "sign-in",
      "secure-alice-x", "admin-bob", "agent-box")),
]  # fmt: skip


@pytest.mark.parametrize(("user", "name", "host"), OWN)
def test_names_that_mislead_nobody(user, name, host):
    assert names.label_of(name, Site(port=3000, host=host), user, USERS, domain="box.test")


@pytest.mark.parametrize(("user", "name", "host"), OTHERS)
def test_names_that_mislead(user, name, host):
    with pytest.raises(UsageError):
        names.label_of(name, Site(port=3000, host=host), user, USERS, domain="box.test")


def test_who_has_an_official_name_keeps_it_unless_people_sign_in_there():
    def held(host):
        return names.label_of("x", Site(port=3000, host=host), "bob", USERS, held=True)

    assert held("api") == "api"
    for host in ("login", "alice", "xn--80ak6aa92e"):
        with pytest.raises(UsageError):
            held(host)


SAFE = re.compile(r"[A-Za-z0-9._:/\[\]-]*")


@given(
    st.dictionaries(st.text(max_size=50), st.one_of(st.none(), st.integers(), st.text())),
    st.text(max_size=50),
)
def test_nothing_of_the_users_is_written_as_it_is(raw, name):
    """Whatever passes the checks has no character that means anything to Caddy."""
    try:
        site = model.check(name, json.loads(json.dumps(raw)))
        label = names.label_of(name, site, "alice", USERS)
        folder = model.below_sites(site.dir, "/home/alice") if site.dir is not None else ""
    except UsageError:
        return
    assert SAFE.fullmatch(label)
    assert SAFE.fullmatch(folder)


def test_private_sites_ask_the_gate_and_hide_the_password():
    box = caddyfile.Surroundings(("", ":8443"))
    private = caddyfile.Target("a.box.test", "alice", False, "unix//run/s")
    public = caddyfile.Target("b.box.test", "alice", True, "unix//run/t")
    text = caddyfile.render([private], box)
    assert "forward_auth" in text
    assert "request_header -Authorization" in text
    assert r"^https://a\.box\.test(|:8443)$" in text
    assert "header_down" not in text, "answers before the last one are not seen by it"
    assert text.index("forward_auth") < text.index("reverse_proxy")
    assert "forward_auth" not in caddyfile.render([public], box)
    assert caddyfile.render([], box) == caddyfile.HEADER
