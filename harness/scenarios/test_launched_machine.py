"""A machine as a template of hosts/aws launches it, with a public name that browsers have to trust.

The issuer of its certificate is played: it leaves what Let's Encrypt would have issued.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from agent_box_harness import launch, outside
from agent_box_harness.edge import PASSWORDS, Ask, Edge

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.host("cloud")

USER = "agent"
CERTIFICATES = "/var/lib/caddy/.local/share/caddy/certificates"
ISSUER = "acme-v02.api.letsencrypt.org-directory"
ROOT = "/etc/issuer"


def issue(box: Box, domain: str) -> None:
    """Leave a certificate of an issuer that nobody knows yet where the edge keeps its own."""
    folder = f"{CERTIFICATES}/{ISSUER}/{domain}"
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    box.succeed(
        f"install -d {ROOT} && install -d -m 0700 {folder} && cd {ROOT}"
        f" && openssl req -x509 {key} -days 99 -subj /CN=issuer"
        f" -addext keyUsage=critical,keyCertSign -keyout root.key -out root.pem"
        f" && openssl req -x509 {key} -days 90 -subj /CN={domain} -CA root.pem -CAkey root.key"
        f" -addext subjectAltName=DNS:{domain} -addext basicConstraints=critical,CA:FALSE"
        f" -keyout {folder}/{domain}.key -out {folder}/{domain}.crt"
    )
    known = json.dumps({"sans": [domain], "issuer_data": {"url": "https://issuer.test/1"}})
    box.machine.write_file(f"{folder}/{domain}.json", known.encode(), mode=0o600)
    box.succeed(f"chown -R caddy:caddy {CERTIFICATES.split('/.local')[0]}")


def trust(box: Box) -> None:
    """Have the end of the launch know the issuer, as every machine knows Let's Encrypt."""
    folder = f"/run/systemd/system/{launch.UNIT}.d"
    box.succeed(f"install -d {folder}")
    setting = f"[Service]\nEnvironment=SSL_CERT_FILE={ROOT}/root.pem\n"
    box.machine.write_file(f"{folder}/issuer.conf", setting.encode(), mode=0o644)
    box.succeed("systemctl daemon-reload")


def test_launch_of_a_machine(box: Box) -> None:
    """Every unit is up. The launch hears nothing while browsers would not trust the certificate,
    then a set-up code, which outlives a restart, opens the box once, and is in no log.
    """
    domain = box.document["web"]["domain"]
    assert box.wait_ready() == "running"
    assert box.users == [USER]
    for unit in (outside.sandbox(USER), outside.supervisor(USER), "caddy.service"):
        box.require_unit_state(unit)

    launch.leave(box)
    box.succeed("systemctl stop caddy.service", f"rm -rf {CERTIFICATES}")
    issue(box, domain)
    box.succeed("systemctl start caddy.service", f"systemctl start {launch.UNIT}")
    launch.wait_for_word(box, f"no certificate for {domain} yet")
    assert launch.told(box) == []

    trust(box)
    box.succeed(f"systemctl restart {launch.UNIT}")
    launch.wait_for_end(box)
    said = launch.told(box)[-1]
    assert said["Status"] == "SUCCESS"
    code = said["Data"]
    assert re.fullmatch("(?:[0-9A-Z]{4}-){3}[0-9A-Z]{4}", code)
    assert box.succeed(f"ls {launch.FOLDER}") == ""
    assert code not in box.succeed("journalctl -b -o cat --no-pager")
    box.succeed("systemctl restart agent-box-gate.service")
    box.wait_until_succeeds("agent-box-gate status")
    said_again = box.succeed("journalctl -b -o cat -u agent-box-gate.service | tail -5")
    assert "with the set-up code that you were given" in said_again

    edge = Edge(box)
    new = PASSWORDS[USER]
    fields = {"setup": "1", "user": USER, "code": code, "new": new, "again": new}
    form = edge.form(USER, "")
    attempt = Ask("/login", "POST", form.headers, urlencode(fields))
    assert [edge.ask([attempt])[0].status for _ in range(2)] == [303, 401]
    edge.sign_in(USER)


def test_launch_of_an_earlier_template(box: Box) -> None:
    """The password that it left opens the box."""
    box.wait_ready()
    launch.leave(box, PASSWORDS[USER])
    trust(box)
    box.succeed("systemctl stop caddy.service")
    issue(box, box.document["web"]["domain"])
    box.succeed("systemctl start caddy.service", f"systemctl start {launch.UNIT}")
    launch.wait_for_end(box)
    assert box.succeed(f"ls {launch.FOLDER}") == ""
    Edge(box).sign_in(USER)


def test_updates_of_a_machine(box: Box) -> None:
    """Its one user may start an update, of the flake that the launch wrote; an update of a
    machine without that flake ends with the reason.
    """
    assert box.document["update"]["flake"] == "/etc/nixos"
    assert box.document["update"]["users"] == [USER]
    done = box.as_user(USER, "agent-box-update start")
    assert done.rc == 1
    box.expect_in(done, "/etc/nixos/flake.lock is missing")
