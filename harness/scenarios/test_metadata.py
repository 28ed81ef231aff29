"""The addresses at which clouds hand out credentials: root reaches them, and nobody for a user.

The cloud is a network namespace beside the guest, its metadata service a web server there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

pytestmark = [pytest.mark.renewed, pytest.mark.limit(180)]

PORT = 8169
PAGE = "credentials-of-the-machine"
V4, V6, LOCAL = "169.254.169.254", "[fd00:ec2::254]", "[fe80::a9fe:a9fe%25cloud]"
METADATA = (V4, V6, LOCAL)
ELSEWHERE = "192.0.2.1"
RESOLVER = "168.63.129.16"
"""Where one cloud has its names, too."""

BUILDER, BELOW, NOBODY = "nixbld1", "165540", "nobody"
"""A builder of Nix, an id below those of a user, an account of some service."""

SERVER = f"""\
import http.server, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{PAGE}")
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
Server(("::", int(sys.argv[1])), Handler).serve_forever()
"""

NETWORK = (
    # the cloud
    "ip netns add sky",
    "ip link add cloud type veth peer name here netns sky",
    "ip address add 192.0.2.9/24 dev cloud",
    "ip address add fd09::9/64 dev cloud nodad",
    "ip link set cloud up",
    "ip -n sky link set lo up",
    "ip -n sky link set here up",
    f"ip -n sky address add {ELSEWHERE}/24 dev here",
    *(f"ip -n sky address add {a}/32 dev here" for a in (V4, RESOLVER)),
    "ip -n sky address add fd09::1/64 dev here nodad",
    "ip -n sky address add fd00:ec2::254/128 dev here nodad",
    "ip -n sky address add fe80::a9fe:a9fe/64 dev here nodad",
    *(f"ip route add {a}/32 via {ELSEWHERE}" for a in (V4, RESOLVER)),
    "ip route add fd00:ec2::254/128 via fd09::1",
    # a network of somebody behind this machine
    "ip netns add behind",
    "ip link add ab-behind type veth peer name out netns behind",
    "ip address add 198.51.100.1/24 dev ab-behind",
    "ip address add fd0a::1/64 dev ab-behind nodad",
    "ip link set ab-behind up",
    "ip -n behind link set lo up",
    "ip -n behind address add 198.51.100.2/24 dev out",
    "ip -n behind address add fd0a::2/64 dev out nodad",
    "ip -n behind link set out up",
    "ip -n behind route add default via 198.51.100.1",
    "ip -n behind route add default via fd0a::1",
    "ip -n sky route add default via 192.0.2.9",
    "ip -n sky route add default via fd09::9",
    "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
)


@pytest.fixture
def sky(box: Box) -> Iterator[Box]:
    """Put a cloud beside the box that answers root at each of its addresses."""
    box.wait_for_unit("agent-box-metadata.service")
    box.succeed(*NETWORK, f"id {BUILDER} 2>/dev/null || useradd --system {BUILDER}")
    box.write_file("/run/sky.py", SERVER.encode())
    for port in (PORT, 53):
        box.succeed(
            f"setsid -f ip netns exec sky python3 /run/sky.py {port} </dev/null >/dev/null 2>&1"
        )
    for address in (*METADATA, RESOLVER, ELSEWHERE):
        box.wait_until_succeeds(fetch(address))
    yield box
    box.run("pkill -f /run/[s]ky.py; ip address del 169.254.170.2/32 dev lo")
    box.succeed("ip link del cloud", "ip link del ab-behind", "ip netns del sky")
    box.succeed("ip netns del behind", f"userdel {BUILDER}")
    if box.run("systemctl cat nftables.service").rc == 0:
        box.succeed("systemctl stop nftables.service")
    box.succeed("systemctl restart agent-box-metadata.service")


def fetch(address: str, port: int = PORT) -> str:
    return f"curl -gsS --connect-timeout 3 -m 5 http://{address}:{port}/ | grep -qx {PAGE}"


def as_account(account: str, command: str) -> str:
    return f"setpriv --reuid {account} --clear-groups sh -c '{command}'"


def reached(box: Box, *, prefix: str = "", account: str = "") -> set[str]:
    """Return which addresses answer, the one elsewhere among those that are asked."""
    found = set()
    for address in (*METADATA, RESOLVER, ELSEWHERE):
        command = as_account(account, fetch(address)) if account else f"sh -c '{fetch(address)}'"
        if box.run(f"{prefix} {command}").rc == 0:
            found.add(address)
    return found


def test_nobody_but_root(sky: Box) -> None:
    """A login, a builder of Nix, an id below those of a user and an account of another service
    reach none of the addresses, over IPv4, IPv6 and the link, though they reach others; names they
    still get there.
    """
    for account in (*sky.users, BUILDER, BELOW, NOBODY):
        assert reached(sky, account=account) == {ELSEWHERE}, account
        names = [sky.run(as_account(account, fetch(each, 53))).rc for each in (V4, RESOLVER)]
        assert names == [0, 0], account
    assert reached(sky) == {*METADATA, RESOLVER, ELSEWHERE}


def test_networks_behind_the_machine(sky: Box) -> None:
    """What this machine passes on for others, root of a container among them, gets there as
    little; from an interface that the owner has named it does.
    """
    behind = "ip netns exec behind"
    assert reached(sky, prefix=behind) == {ELSEWHERE}
    # also where it ends on this machine, as with an agent that hands out credentials
    sky.succeed("ip address add 169.254.170.2/32 dev lo")
    sky.succeed(f"setsid -f python3 /run/sky.py {PORT} </dev/null >/dev/null 2>&1")
    sky.wait_until_succeeds(fetch("169.254.170.2"))
    assert sky.run(f"{behind} sh -c '{fetch('169.254.170.2')}'").rc != 0
    sky.succeed("nft add element inet agent-box-metadata interfaces '{ \"ab-behind\" }'")
    assert reached(sky, prefix=behind) >= {V4, V6, RESOLVER, ELSEWHERE}


def test_a_firewall_that_empties_all_tables(sky: Box) -> None:
    """A firewall of the owner's that flushes the whole ruleset, when it loads its rules again or
    starts again, leaves the wall standing.
    """
    if sky.run("systemctl cat nftables.service").rc != 0:
        pytest.skip("the firewall of this machine is another one")
    for verb in ("start", "reload", "restart"):
        sky.succeed(f"systemctl {verb} nftables.service")
        sky.wait_until_succeeds("nft list table inet agent-box-metadata")
        assert reached(sky, account="alice") == {ELSEWHERE}, verb
    sky.succeed("systemctl stop nftables.service", "systemctl start nftables.service")
    sky.wait_until_succeeds("nft list table inet agent-box-metadata")
    assert reached(sky, account="bob") == {ELSEWHERE}
