"""Entries, host names and listeners: who may publish what."""

from __future__ import annotations

import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box.errors import UsageError
from agent_box.sites import caddyfile, listeners, model
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
            model.label_of(name, site, user, USERS)
    else:
        assert model.label_of(name, site, user, USERS) == label


def test_a_default_label_is_short_enough():
    with pytest.raises(UsageError, match="too long"):
        model.label_of("n" * 40, Site(port=3000), "u" * 31, ["u" * 31])


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


SAFE = re.compile(r"[A-Za-z0-9._:/\[\]-]*")


@given(
    st.dictionaries(st.text(max_size=50), st.one_of(st.none(), st.integers(), st.text())),
    st.text(max_size=50),
)
def test_nothing_of_the_users_is_written_as_it_is(raw, name):
    """Whatever passes the checks has no character that means anything to Caddy."""
    try:
        site = model.check(name, json.loads(json.dumps(raw)))
        label = model.label_of(name, site, "alice", USERS)
        folder = model.below_sites(site.dir, "/home/alice") if site.dir is not None else ""
    except UsageError:
        return
    assert SAFE.fullmatch(label)
    assert SAFE.fullmatch(folder)


def test_private_sites_ask_the_gate_and_hide_the_password():
    box = caddyfile.Surroundings(("", ":8443"))
    private = caddyfile.Target("a.box.test", "alice", False, "127.0.0.1:3000")
    public = caddyfile.Target("b.box.test", "alice", True, "[::1]:3000")
    text = caddyfile.render([private], box)
    assert "forward_auth" in text
    assert "request_header -Authorization" in text
    assert r"^https://a\.box\.test(|:8443)$" in text
    assert text.index("forward_auth") < text.index("reverse_proxy")
    assert "forward_auth" not in caddyfile.render([public], box)
    assert caddyfile.render([], box) == caddyfile.HEADER
