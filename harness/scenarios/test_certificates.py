"""The certificate that browsers trust: got from a real issuer, and for names of this box alone."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness.edge import Ask, with_cookie
from agent_box_harness.sites import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box
    from agent_box_harness.edge import Edge

pytestmark = pytest.mark.limit(180)

FOLDER = "/opt/issuer"
PORTS = {"issuer": 14000, "fallback": 14443}
"""Of the directories that hosts/test.nix names."""
CONFIG = {
    "pebble": {
        "certificate": f"{FOLDER}/own.pem",
        "privateKey": f"{FOLDER}/own.key",
        "httpPort": 81,  # the firewall of the box closes port 80
        "tlsPort": 443,
    }
}
PREPARE = (
    f"openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=localhost"
    f" -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    f" -keyout {FOLDER}/own.key -out {FOLDER}/own.pem 2>/dev/null"
)
NAMES = (
    "pebble-challtestsrv -defaultIPv4 127.0.0.1 -defaultIPv6 '' -http01 '' -https01 ''"
    " -tlsalpn01 '' -management 127.0.0.1:8055"
)
"""Answers on port 8053 that every name is this machine."""
TRUST = """\
[Service]
Environment=SSL_CERT_FILE={}
"""


def in_background(box: Box, unit: str, command: str) -> None:
    """Run a command as a unit of its own."""
    settings = "-E PEBBLE_VA_NOSLEEP=1 -E PEBBLE_WFE_NONCEREJECT=0"
    program, *rest = shlex.split(command)
    words = shlex.join([box.succeed(f"command -v {program}").strip(), *rest])
    box.succeed(f"systemd-run --quiet --unit={unit} {settings} {words}")


def start_issuers(box: Box) -> dict[str, str]:
    """Start issuers that find every name on this machine; return the files of their roots."""
    box.succeed(f"mkdir -p {FOLDER}", PREPARE)
    known = box.run("pebble-challtestsrv -h 2>&1").out
    in_background(box, "issuer-names", NAMES + (" -doh ''" if "-doh " in known else ""))
    box.wait_for("names", lambda: box.run("ss -Hlun 'sport = :8053' | grep .").rc == 0)
    roots = {}
    for name, port in PORTS.items():
        more = {
            "listenAddress": f"127.0.0.1:{port}",
            "managementListenAddress": f"127.0.0.1:{port + 1}",
        }
        config = json.dumps({"pebble": {**CONFIG["pebble"], **more}}).encode()
        box.machine.write_file(f"{FOLDER}/{name}.json", config, mode=0o644)
        command = f"pebble -config {FOLDER}/{name}.json -dnsserver 127.0.0.1:8053"
        in_background(box, name, command)
        roots[name] = f"{FOLDER}/{name}-root.pem"
        asking = f"curl -sf --cacert {FOLDER}/own.pem -o {roots[name]}"
        box.wait_until_succeeds(f"{asking} https://localhost:{port + 1}/roots/0")
    box.succeed(
        f"cat {' '.join(roots.values())} {FOLDER}/own.pem >{FOLDER}/trusted.pem",
        f"chmod 0644 {FOLDER}/*.pem",
    )
    return roots


def trust(box: Box, *units: str) -> None:
    """Have services trust the issuer, as they do Let's Encrypt."""
    for unit in units:
        folder = f"/run/systemd/system/{unit}.d"
        box.succeed(f"mkdir -p {folder}")
        box.machine.write_file(
            f"{folder}/issuer.conf", TRUST.format(f"{FOLDER}/trusted.pem").encode(), mode=0o644
        )
    box.succeed("systemctl daemon-reload")


def visit(box: Box, root: str, host: str) -> int:
    """Return the status of a page, 0 without a certificate that is trusted."""
    seconds = box.machine.scaled(5)
    command = f"curl -s --max-time {seconds} --cacert {root} --resolve {host}:443:127.0.0.1"
    done = box.run(f"{command} -o /dev/null -w '%{{http_code}}' https://{host}/login")
    return int(done.out or 0)


def issued(box: Box, issuer: str = "issuer") -> int:
    """Return how many certificates were issued."""
    log: str = box.succeed(f"journalctl -b -u {issuer} -o cat --no-pager")
    return log.count("Issued certificate serial")


@pytest.mark.needs("acme-issuer")
def test_from_an_issuer(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """The box gets a certificate by itself, over port 443 alone, shows it in the settings and keeps
    it over restarts, even without the issuer; a site gets one of its own, from another issuer
    where the first does not answer. A stranger who asks for any other name makes the box order
    none.
    """
    box = edge.box
    root, other = start_issuers(box).values()
    trust(box, "caddy.service", "agent-box-status.service")
    # As from its first start.
    box.succeed("systemctl stop caddy.service", "rm -rf /var/lib/caddy/.local")
    caddyfile = box.read("/etc/agent-box/edges/acme.Caddyfile")
    box.succeed("rm -f /etc/caddy/Caddyfile")
    box.machine.write_file("/etc/caddy/Caddyfile", caddyfile.encode(), mode=0o444)
    began = box.succeed("date +%s.%N")
    box.succeed("systemctl start caddy.service")
    box.wait_for("a certificate", lambda: visit(box, root, "box.test") == 200, timeout=60)
    measured("until the certificate is there", float(box.succeed("date +%s.%N")) - float(began))
    assert issued(box) == 1
    assert box.succeed("ss -Hltn 'sport = :80'") == ""
    cookie = with_cookie(edge.sign_in("alice"))
    (facts,) = edge.ask([Ask("/alice/api/box", headers=cookie)])
    certificate = json.loads(facts.body)["certificate"]
    assert certificate["trusted"], certificate
    assert "Pebble" in certificate["issuer"]

    # Whoever asks for other names costs the box nothing with its issuer.
    for host in ("evil.test", "www.box.test", "shop-alice.box.test"):
        assert visit(box, root, host) == 0, host
    assert issued(box) == 1

    serve(box, "alice", "shop", "python3 -m http.server -d /usr/share -b 127.0.0.1 3200", 3200)
    box.in_session("alice", "agent-box-site add shop --port 3200 --public").check("add")
    box.wait_for(
        "the site's certificate",
        lambda: visit(box, root, "shop-alice.box.test") == 404,
        timeout=60,
    )
    assert issued(box) == 2

    assert issued(box, "fallback") == 0

    box.succeed("systemctl stop issuer.service")
    box.in_session("alice", "agent-box-site add desk --port 3200 --public").check("add")
    box.wait_for(
        "a certificate of the other issuer",
        lambda: visit(box, other, "desk-alice.box.test") == 404,
        timeout=90,
    )
    box.succeed("systemctl stop fallback.service issuer-names.service")
    box.succeed("systemctl restart caddy.service")
    assert visit(box, root, "box.test") == 200
    assert visit(box, root, "shop-alice.box.test") == 404
    assert visit(box, other, "desk-alice.box.test") == 404
