"""No user gets around the edge, and no service behind it learns or sets what is not its own."""

from __future__ import annotations

import pytest

from agent_box_harness.attack import attack_as_root, attack_from_login, attack_from_session
from agent_box_harness.edge import Ask, Edge, with_cookie

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]


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
        b'Alt-Svc: h3="evil.test:443"\\r\\n'
        b"Access-Control-Allow-Origin: *\\r\\n\\r\\n%s" % (len(data), data))
    client.close()
"""
"""A service in the place of a user's own that tells what it was sent."""


FOR_ALL = "/run/agent-box-status.sock"
"""Tells each user what the kernel says is theirs."""


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
        assert secret not in answer.body
    for name in ("set-cookie", "clear-site-data", "access-control-allow-origin", "server",
                 "alt-svc"):  # fmt: skip
        assert answer.all(name) == []
    assert answer.one("x-frame-options") == "SAMEORIGIN"
    box.succeed(
        f"pkill -f /tmp/[e]cho.py; rm {path}; systemctl start agent-box-settings-alice.socket"
    )


def connect(path: str) -> str:
    """Return a script that connects to a socket of whichever type."""
    types = "socket.SOCK_STREAM, socket.SOCK_DGRAM"
    attempts = f"[socket.socket(socket.AF_UNIX, type).connect_ex('{path}') for type in ({types})]"
    return f'python3 -c "import socket, sys; sys.exit(all({attempts}))"'


def test_sockets(edge: Edge) -> None:
    """No user reaches any socket of the edge, the gate, the bans or somebody else; the edge's admin
    API listens nowhere else.
    """
    scripts = {
        "admin": connect("/run/caddy/admin.sock"),
        "gate": connect("/run/agent-box-gate/gate.sock"),
        "gate-admin": connect("/run/agent-box-gate/admin.sock"),
        "settings": connect("/run/agent-box-settings/alice.sock"),
        "terminal": connect("/run/agent-box-terminal/alice.sock"),
        "admin-port": "curl -sS http://127.0.0.1:2019/config/",
        "logins": "ls /run/agent-box-gate/live",
        "secrets": "cat /var/lib/agent-box-gate/* /var/lib/caddy/.local/share/caddy/pki/*/*/*.key",
    }
    # Whatever else there is, and is not bob's own.
    found = edge.box.succeed("find /run/agent-box* /run/caddy /run/fail2ban -type s").split()
    sockets = [path for path in found if "bob" not in path and path != FOR_ALL]
    own = [connect(path) for path in found if path == "/run/agent-box-terminal/bob.sock"]
    assert own, "not even his own terminals, past the edge"
    scripts["own-terminal"] = own[0]
    assert {scripts["settings"], scripts["gate"]} <= {connect(path) for path in sockets}
    scripts |= {path.replace("/", "_"): connect(path) for path in sockets}
    edge.sign_in("alice")
    for outcomes in (
        attack_from_login(edge.box, "bob", scripts, {}),
        attack_from_session(edge.box, "bob", scripts, {}),
    ):
        assert {name for name, outcome in outcomes.items() if outcome.through} == set()
    as_root = attack_as_root(edge.box, scripts, {})
    assert {name for name, outcome in as_root.items() if not outcome.through} == {"admin-port"}
    listening = edge.box.succeed("ss -Hltn | awk '{print $4}' | sed 's/.*://' | sort -un").split()
    # ssh, the name server of users, and the edge
    assert set(listening) <= {"22", "53", "80", "443"}
