"""Sites: what users publish under host names of their own, and what they cannot publish."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agent_box_harness.edge import PASSWORDS, Edge
from agent_box_harness.sites import add, curl, declare, listen, listing, network, serve

pytestmark = pytest.mark.limit(180)


CHAT = """
import base64, hashlib, socketserver
class H(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.readline()
        head = {}
        while line := self.rfile.readline().strip().decode():
            name, _, value = line.partition(": ")
            head[name.lower()] = value
        secret = head["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        key = base64.b64encode(hashlib.sha1(secret.encode()).digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Go\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
            f"Sec-WebSocket-Accept: {key}\\r\\nSec-WebSocket-Protocol: tty\\r\\n\\r\\n").encode())
        names = " ".join(sorted(head)).encode()
        self.wfile.write(bytes([0x81, 126]) + len(names).to_bytes(2, "big") + names)
        while frame := self.rfile.read(2):
            mask = self.rfile.read(4)
            data = self.rfile.read(frame[1] & 127)
            data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
            self.wfile.write(bytes([0x81, len(data)]) + data)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", 3100), H).serve_forever()
"""
"""A program that repeats what it hears over a WebSocket."""


@pytest.mark.renewed
def test_websocket(edge: Edge) -> None:
    """A WebSocket goes through a private site with the user's password, from pages of that site
    alone; the program learns no credential.
    """
    box = edge.box
    box.machine.write_file("/opt/chat.py", CHAT.encode(), mode=0o644)
    serve(box, "alice", "chat", "python3 /opt/chat.py", 3100)
    add(box, "alice", "chat --port 3100")
    host = "chat-alice.box.test"

    def opening(name: str, user: str | None, origin: str) -> dict[str, Any]:
        headers = [("Host", host), ("Origin", origin)]
        if user is not None:
            text = base64.b64encode(f"{user}:{PASSWORDS[user]}".encode()).decode()
            headers.append(("Authorization", f"Basic {text}"))
        return {"do": "open", "as": name, "target": "/", "headers": headers}

    own = f"https://{host}"
    found = edge.steps(
        [opening("a", None, own), opening("b", "bob", own), opening("c", "alice", edge.origin),
         opening("d", "alice", "https://evil.test"), opening("good", "alice", own),
         {"do": "type", "as": "good", "text": "hello there"},
         {"do": "read", "as": "good", "until": "hello there"}]
    )  # fmt: skip
    assert [result["status"] for result in found[:5]] == [401, 403, 403, 403, 101]
    assert "hello there" in found[-1]["text"]
    assert "sec-websocket-key" in found[-1]["text"]
    assert "authorization" not in found[-1]["text"]
    box.as_user("alice", "agent-box-site rm chat").check("rm")
    box.succeed("systemctl stop chat.service")


def basic(user: str) -> str:
    return f"-u '{user}:{PASSWORDS[user]}'"


def still_answers(edge: Edge) -> None:
    """The box itself, and the site that was there before."""
    assert curl(edge.box, "box.test", "/login")[0] == 200
    status, body = curl(edge.box, "shop-alice.box.test")
    assert (status, "alice 3000" in body) == (200, True)


@pytest.mark.needs("reboot")
def test_sites(edge: Edge) -> None:
    """A user's own port and folder are served, with the password unless public; whatever is not
    the user's is refused with a reason, and nothing of it harms the others, not after a reboot.
    """
    box = edge.box
    listen(box, "alice", 3000)
    listen(box, "bob", 4000)

    # her own port, for everybody
    site = add(box, "alice", "shop --port 3000 --public")
    assert (site["state"], site["url"]) == ("served", "https://shop-alice.box.test/")
    still_answers(edge)
    status, body = curl(box, "shop-alice.box.test", options="-H 'X-Agent-Box-User: bob'")
    assert "set-cookie: a=b; Path=/" in body
    assert "X-Agent-Box-User" not in body
    assert box.as_user("alice", "agent-box-site add shop --port 3000").rc == 4
    assert box.as_user("alice", "agent-box-site add low --port 80").rc == 2
    assert box.as_user("alice", "agent-box-site add 'a b' --port 3000").rc == 2
    assert box.as_user("alice", "agent-box-site add x --dir /etc").rc == 2
    assert box.as_user("alice", "agent-box-site rm nothing").rc == 3

    # behind the login: the user's own password only, and never shown to the program
    add(box, "alice", "desk --port 3000")
    host = "desk-alice.box.test"
    status, body = curl(box, host, options="-H 'Accept: text/html' -H 'Sec-Fetch-Mode: navigate'")
    assert status == 401
    assert "www-authenticate: Basic" in body
    assert curl(box, host, options=f"-b '{edge.sign_in('alice')}'")[0] == 401
    assert curl(box, host, options=basic("bob"))[0] == 403
    for path in ("/", "/bob/", "/bob/t/main", "//x", "/../y"):
        status, body = curl(box, host, path, basic("alice"))
        assert (status, "alice 3000" in body) == (200, True), path
        assert "Authorization" not in body
    good = basic("alice")
    assert curl(box, host, options=f"{good} -X POST -H 'Origin: https://{host}'")[0] == 200
    for origin in ("https://box.test", "https://shop-alice.box.test", "null", f"https://{host}.x"):
        for method in ("GET", "POST"):
            options = f"{good} -X {method} -H 'Origin: {origin}'"
            assert curl(box, host, options=options)[0] == 403, origin
    assert curl(box, host, options=f"{good} -H 'Sec-Fetch-Site: same-site'")[0] == 403

    # a folder
    home = box.home("alice")
    box.as_user(
        "alice",
        f"mkdir -p {home}/sites/blog/.git && cd {home}/sites/blog && echo hello >index.html &&"
        " echo secret >.git/config && echo private >~/private && ln -s ~/private leak &&"
        " ln -s /etc/passwd passwd && ln -s /etc ../etc",
    ).check("folder")
    add(box, "alice", "blog --dir blog --public --host letters")
    status, body = curl(box, "letters.box.test")
    assert (status, "hello" in body) == (200, True)
    for path in ("/leak", "/passwd", "/.git/config", "/../../private", "/%2e%2e/%2e%2e/private"):
        status, body = curl(box, "letters.box.test", path)
        assert status in (400, 404), path
        assert "private" not in body
    result = box.as_user("alice", "agent-box-site add etc --dir etc --public")
    assert (result.rc, "leads out of" in result.err) == (4, True)

    # what is bob's: his port, his name, a host name that alice has
    result = box.as_user("alice", "agent-box-site add spy --port 4000 --public")
    if network(box, "alice") is None:
        assert (result.rc, "another user's program" in result.err) == (4, True)
        reason = "another user's program listens"
    else:  # It has that port for itself.
        assert result.rc == 0
        reason = "nothing listens"
    spy = {"shop": {"port": 3000, "public": True}, "spy": {"port": 4000, "public": True}}
    spy["etc"] = {"dir": "etc", "public": True}
    found = declare(box, "alice", json.dumps({"version": 1, "sites": spy}))
    assert reason in found["sites"][1]["reason"]
    status, body = curl(box, "spy-alice.box.test")
    assert (status, "bob" in body) == (502, False)
    assert "leads out of" in found["sites"][2]["reason"]
    assert curl(box, "etc-alice.box.test", "/passwd")[0] == 404
    still_answers(edge)
    for label in ("shop-bob", "letters"):
        found = declare(
            box,
            "bob" if label == "letters" else "alice",
            json.dumps(
                {
                    "version": 1,
                    "sites": {
                        "shop": {"port": 3000, "public": True},
                        "x": {"port": 3000, "host": label},
                        "letters": {"dir": "blog", "public": True, "host": "letters"},
                    }
                    if label == "shop-bob"
                    else {"x": {"port": 4000, "host": label}, "mine": {"port": 4000}},
                }
            ),
        )
        states = {each["name"]: each["state"] for each in found["sites"]}
        assert states["x"] == "refused", found
        still_answers(edge)
    assert listing(box, "bob")["sites"][1]["state"] == "served"
    assert "hello" in curl(box, "letters.box.test")[1]
    pens = {"port": 4000, "public": True, "host": "pens"}
    declare(box, "bob", json.dumps({"version": 1, "sites": {"mine": pens}}))
    shop = {"port": 3000, "public": True}
    late = {"version": 1, "sites": {"shop": shop, "x": {**shop, "host": "pens"}}}
    found = declare(box, "alice", json.dumps(late))
    assert [each["state"] for each in found["sites"]] == ["served", "refused"]
    assert "bob 4000" in curl(box, "pens.box.test")[1]

    # data of every kind: each bad entry is refused, the good one among them is served
    bad: dict[str, Any] = {
        "port as text": {"port": "3000"}, "both": {"port": 3000, "dir": "blog"}, "none": {},
        "Upper": {"port": 3000}, "foreign": {"port": 3000, "host": "evil.example"},
        "inject": {"port": 3000, "host": "a {\nrespond hi\n}"}, "more": {"port": 3000, "x": 1},
        "dots": {"dir": "../.ssh"}, "far": {"dir": "/home/bob/sites/x"}, "list": [], "null": None,
        "high": {"port": 70000}, "bool": {"port": True}, "new\nline": {"port": 3000},
        "brace": {"dir": "blog}"},
    }  # fmt: skip
    good_one = {"shop": {"port": 3000, "public": True}}
    found = declare(box, "alice", json.dumps({"version": 1, "sites": {**bad, **good_one}}))
    states = {each["name"]: each["state"] for each in found["sites"]}
    assert states == {**dict.fromkeys(bad, "refused"), "shop": "served"}
    assert all(each["reason"] for each in found["sites"] if each["state"] == "refused")
    still_answers(edge)

    # no list at all: the last good one stays in force
    for text in ("{", "[]", '{"version": 1, "sites": {"a": {}, "a": {}}}', "[" * 100_000, "\0" * 9):
        found = declare(box, "alice", text)
        assert "last good" in found["problem"]
        still_answers(edge)
    assert box.as_user("alice", "agent-box-site add late --port 3000").rc == 4

    # a flood
    many = {f"s{number}": {"port": 3000, "public": True} for number in range(1000)}
    found = declare(box, "alice", json.dumps({"version": 1, "sites": {**good_one, **many}}))
    assert len(found["sites"]) == 21
    assert "20 sites at most" in found["sites"][-1]["reason"]
    still_answers(edge)

    # a port that somebody else takes over shows nothing, from that moment on
    declare(box, "alice", json.dumps({"version": 1, "sites": good_one}))
    box.succeed("systemctl stop site-alice-3000")
    status, body = curl(box, "shop-alice.box.test")
    assert (status, "server: Caddy" in body, "does not answer" in body) == (502, False, True)
    assert listing(box, "alice")["sites"][0]["state"] == "waiting"
    listen(box, "bob", 3000)
    status, body = curl(box, "shop-alice.box.test")
    assert (status, "bob" in body) == (502, False)
    assert reason in listing(box, "alice")["sites"][0]["reason"]
    box.succeed("systemctl stop site-bob-3000")
    listen(box, "alice", 3000, "::1")
    still_answers(edge)
    box.succeed("systemctl stop site-alice-3000")
    listen(box, "alice", 3000)
    still_answers(edge)

    assert box.succeed("systemctl --failed --no-legend --plain") == ""

    # the edge reads its file at the start, before anybody looks at the lists again
    box.succeed("systemctl restart caddy")
    still_answers(edge)
    box.reboot()
    box.wait_for_unit("caddy.service")
    listen(box, "alice", 3000)
    box.wait_for("the port", lambda: curl(box, "shop-alice.box.test")[0] == 200)
    still_answers(edge)
    removed = box.as_user("alice", "agent-box-site rm shop")
    # A machine that has just started may take longer than the command waits, which says so.
    assert removed.rc == 0 or "has not taken it up yet" in removed.err, removed
    box.wait_for("its end", lambda: curl(box, "shop-alice.box.test")[0] in (0, 421), timeout=60)
    assert curl(box, "box.test", "/login")[0] == 200
