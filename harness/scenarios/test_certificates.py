"""The certificate that browsers trust: got from a real issuer, and for names of this box alone."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness.edge import Ask, with_cookie

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box
    from agent_box_harness.edge import Edge

pytestmark = pytest.mark.limit(180)

FOLDER = "/opt/issuer"
CONFIG = {
    "pebble": {
        "listenAddress": "127.0.0.1:14000",
        "managementListenAddress": "127.0.0.1:15000",
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
ISSUER = f"pebble -config {FOLDER}/config.json -dnsserver 127.0.0.1:8053"
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


def start_issuer(box: Box) -> str:
    """Start an issuer that finds every name on this machine; return the file of its root."""
    box.succeed(f"mkdir -p {FOLDER}", PREPARE)
    box.machine.write_file(f"{FOLDER}/config.json", json.dumps(CONFIG).encode(), mode=0o644)
    known = box.run("pebble-challtestsrv -h 2>&1").out
    in_background(box, "issuer-names", NAMES + (" -doh ''" if "-doh " in known else ""))
    box.wait_for("names", lambda: box.run("ss -Hlun 'sport = :8053' | grep .").rc == 0)
    in_background(box, "issuer", ISSUER)
    root = f"{FOLDER}/root.pem"
    asking = f"curl -sf --cacert {FOLDER}/own.pem -o {root} https://localhost:15000/roots/0"
    box.wait_until_succeeds(asking)
    box.succeed(f"cat {root} {FOLDER}/own.pem >{FOLDER}/trusted.pem && chmod 0644 {FOLDER}/*.pem")
    return root


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


def issued(box: Box) -> int:
    """Return how many certificates were issued."""
    log: str = box.succeed("journalctl -b -u issuer -o cat --no-pager")
    return log.count("Issued certificate serial")


@pytest.mark.needs("acme-issuer")
def test_from_an_issuer(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """The box gets a certificate by itself, over port 443 alone, shows it in the settings and keeps
    it over restarts, even without the issuer; a site gets one of its own. A stranger who asks for
    any other name makes the box order none.
    """
    box = edge.box
    root = start_issuer(box)
    trust(box, "caddy.service", "agent-box-settings-alice.service")
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

    box.succeed(
        "systemd-run --quiet --uid=alice --unit=shop --working-directory=/usr/share"
        " python3 -m http.server -b 127.0.0.1 3200"
    )
    box.wait_for("the program", lambda: box.run("ss -ltn | grep -q :3200").rc == 0)
    box.in_session("alice", "agent-box-site add shop --port 3200 --public").check("add")
    box.wait_for(
        "the site's certificate",
        lambda: visit(box, root, "shop-alice.box.test") == 404,
        timeout=60,
    )
    assert issued(box) == 2

    box.succeed("systemctl stop issuer.service issuer-names.service")
    box.succeed("systemctl restart caddy.service")
    assert visit(box, root, "box.test") == 200
    assert visit(box, root, "shop-alice.box.test") == 404
