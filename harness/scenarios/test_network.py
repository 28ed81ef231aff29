"""Each user has a localhost of its own and a way out; nothing on the machine is in reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness import outside
from agent_box_harness.attack import attack_from_login, attack_from_session
from agent_box_harness.internet import BOX, BOX6, NAME, WORLD, WORLD6, internet

if TYPE_CHECKING:
    from agent_box_harness.box import Box

PORT, ROOT_PORT, LENT_PORT = 8199, 8200, 8765

SERVER = """\
import socket, threading
def listen(sock):
    while True:
        connection, _ = sock.accept()
        connection.sendall(b"hello\\n")
        connection.close()
for family, address in ((socket.AF_INET, ("0.0.0.0", {port})), (socket.AF_INET6, ("::", {port}))):
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    sock.listen()
    threading.Thread(target=listen, args=(sock,)).start()
sock = socket.socket(socket.AF_UNIX)
sock.bind("\\0probe-{port}")
sock.listen()
listen(sock)
"""
"""Says hello on all addresses, and on an abstract socket."""


def reach(address: str, port: int) -> str:
    """Return a script that succeeds when something says hello there."""
    return (
        "python3 - <<'EOF'\nimport socket\n"
        f"s = socket.create_connection(('{address}', {port}), 2)\n"
        "s.settimeout(2)\nassert s.recv(5) == b'hello'\nEOF"
    )


def reach_abstract(port: int) -> str:
    return (
        "python3 - <<'EOF'\nimport socket\ns = socket.socket(socket.AF_UNIX)\n"
        f"s.connect('\\0probe-{port}')\nassert s.recv(5) == b'hello'\nEOF"
    )


def addresses(box: Box, user: str) -> list[str]:
    """All addresses in the network of a user."""
    told = box.succeed(f"ip -n agent-box-{user} -o addr show | awk '{{print $4}}' | cut -d/ -f1")
    return [address for address in told.split() if not address.startswith("fe80")]


def through(outcomes: dict) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome.through]


@pytest.mark.renewed
def test_localhost_of_each_user(box: Box):
    """What bob serves on any address of his, or on an abstract socket, answers him; alice reaches
    none of it, from a session or from a login.
    """
    box.write_file("/tmp/serve.py", SERVER.format(port=PORT).encode(), mode=0o644)
    text = box.read("/tmp/serve.py")
    box.as_user("bob", "cat >~/serve.py", stdin=text).check()
    box.in_session("bob", "setsid python3 ~/serve.py </dev/null >/dev/null 2>&1 &").check()
    scripts = {
        f"at-{address.replace(':', '-').replace('.', '-')}": reach(address, PORT)
        for address in ("localhost", *addresses(box, "bob"))
    }
    scripts["abstract"] = reach_abstract(PORT)
    box.wait_for(
        "bob's server",
        lambda: set(through(attack_from_session(box, "bob", scripts, {}))) == set(scripts),
    )
    assert through(attack_from_session(box, "alice", scripts, {})) == []
    assert through(attack_from_login(box, "alice", scripts, {})) == []
    # Somebody's firewall may take the rules of all others with it, for a moment or for good.
    box.succeed("nft delete table inet agent-box-network")
    try:
        assert through(attack_from_session(box, "alice", scripts, {})) == []
    finally:
        box.succeed("systemctl reload agent-box-network")


@pytest.mark.renewed
def test_a_firewall_that_empties_all_tables(box: Box):
    """Whatever a firewall does to the tables of others, all of ours are there again when it is
    done.
    """
    tables = ("network", "metadata", "connections", "bans")
    box.write_file("/etc/nftables.conf", b"flush ruleset\n")
    try:
        for verb in ("start", "reload", "restart"):
            box.succeed(f"systemctl {verb} nftables.service")
            for table in tables:
                box.wait_until_succeeds(f"nft list table inet agent-box-{table}")
            box.wait_until_succeeds("nft list chain inet agent-box-network from-user")
    finally:
        box.succeed("systemctl stop nftables.service; systemctl reload agent-box-network")


@pytest.mark.renewed
def test_the_machine_is_out_of_reach(box: Box):
    """What root serves on every address of the machine reaches no session, except for the edge,
    and for a port that the config lends to one user.
    """
    with internet(box):
        for port in (ROOT_PORT, LENT_PORT):
            box.write_file(f"/run/serve-{port}.py", SERVER.format(port=port).encode())
            box.succeed(f"setsid -f python3 /run/serve-{port}.py </dev/null >/dev/null 2>&1")
        told = box.succeed("ip -o addr show | awk '{print $4}' | cut -d/ -f1").split()
        local = [address for address in told if not address.startswith("fe80")]
        assert {BOX, BOX6, "127.0.0.1", "198.18.0.1"} <= set(local)
        scripts = {
            f"at-{n}-{port}": reach(address, port)
            for n, address in enumerate(local)
            for port in (ROOT_PORT, LENT_PORT)
        }
        scripts["abstract"] = reach_abstract(ROOT_PORT)
        scripts["ssh"] = "python3 -c \"import socket; socket.create_connection(('{}', 22), 2)\""
        scripts |= {f"ssh-{n}": scripts["ssh"].format(address) for n, address in enumerate(local)}
        del scripts["ssh"]
        edge = "curl -sk -o /dev/null --resolve box.test:443:{} https://box.test/login"
        try:
            for user in box.users:
                got = through(attack_from_session(box, user, scripts, {}))
                lent = [f"at-{local.index('127.0.0.1')}-{LENT_PORT}"] if user == "alice" else []
                assert got == lent, user
                box.in_session(user, edge.format(BOX)).check("the edge is for everybody")
            control = attack_from_login(box, "bob", scripts, {})
            assert set(through(control)) == set(scripts), "not even a login reaches them"
        finally:
            box.run("pkill -f /run/[s]erve-")


@pytest.mark.renewed
def test_the_way_out(box: Box):
    """Sessions reach the world by IPv4 and IPv6, by name too, under the address of the machine;
    nobody in the world reaches what a session serves.
    """
    with internet(box) as world:
        world.serve(8300)
        text = SERVER.format(port=PORT)
        box.as_user("bob", "cat >~/serve.py", stdin=text).check()
        box.in_session("bob", "setsid python3 ~/serve.py </dev/null >/dev/null 2>&1 &").check()
        for user in box.users:
            for host in (WORLD, f"[{WORLD6}]"):
                box.in_session(user, f"curl -sS -m 5 -o /dev/null http://{host}:8300/").check(host)
            box.wait_for(
                "a name",
                lambda user=user: (
                    box.in_session(user, f"curl -sS -m 5 -o /dev/null http://{NAME}:8300/").rc == 0
                ),
            )
        clients = {line.split()[0] for line in world.seen(8300).splitlines() if "GET" in line}
        assert clients <= {BOX, f"::ffff:{BOX}", BOX6}
        # A neighbour at the provider knows which addresses are used behind the box.
        for address in (
            a for a in addresses(box, "bob") if not a.startswith(("127", "fe80", "::1"))
        ):
            via = (
                f"-6 route replace {address}/128 via {BOX6}"
                if ":" in address
                else (f"route replace {address}/32 via {BOX}")
            )
            world.run(f"ip {via}").check()
            assert world.run(reach(address, PORT)).rc != 0, address
        world.run(f"ip route replace 198.18.0.1/32 via {BOX}").check()
        ask = (
            "python3 - <<'EOF'\nimport socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
        )
        ask += "\ns.settimeout(2)\ns.sendto(bytes.fromhex('00010100000100000000000007736572766963"
        ask += "65076578616d706c650000010001'), ('198.18.0.1', 53))\ns.recv(512)\nEOF"
        assert world.run(ask).rc != 0, "the name server of users answers the world"
        box.in_session("bob", ask).check()


@pytest.mark.renewed
@pytest.mark.limit(200)
def test_no_network_no_session(box: Box):
    """Where a user's network is missing, or is not what the unit runs in, or the rules that close
    it are gone, the sandbox does not start and says why; what runs is left alone.
    """
    unit, network = outside.sandbox("bob"), "agent-box-network-bob.service"
    pid = outside.main_pid(box, unit)
    box.succeed("systemctl daemon-reload")
    # The name leads to another network than the one that the unit is put into.
    box.succeed(
        "mkdir -p /run/systemd/system/agent-box-bob.service.d && "
        "printf '[Service]\\nNetworkNamespacePath=/run/netns/agent-box-alice\\n' "
        ">/run/systemd/system/agent-box-bob.service.d/wrong.conf && systemctl daemon-reload"
    )
    assert outside.main_pid(box, unit) == pid
    assert box.run(f"systemctl restart {unit}").rc != 0
    box.expect_in(box.succeed(f"journalctl -b -o cat -u {unit}"), "not in the network of bob")
    box.succeed("rm -r /run/systemd/system/agent-box-bob.service.d; systemctl daemon-reload")
    box.succeed(f"systemctl stop {unit}; systemctl reset-failed; systemctl start {unit}")
    # Somebody's firewall took the rules with it.
    box.succeed(f"nft delete table inet agent-box-network; systemctl stop {unit} {network}")
    try:
        assert box.run(f"systemctl start {unit}").rc != 0
        box.expect_in(box.succeed(f"journalctl -b -o cat -u {network}"), "nft list chain")
    finally:
        box.succeed("systemctl reload agent-box-network")
    box.succeed(f"systemctl reset-failed; systemctl start {unit}")
    box.wait_session("bob", "main", "running")
    # In time, nothing of bob's runs outside of it.
    namespace = box.succeed("stat -L -c %i /run/netns/agent-box-bob").strip()
    for one in (unit, "agent-box-terminal-bob.service"):
        box.succeed(f"systemctl start {one}")
        inode = box.succeed(f"stat -L -c %i /proc/{outside.main_pid(box, one)}/ns/net").strip()
        assert inode == namespace, one


@pytest.mark.renewed
def test_one_unit_restarts_alone(box: Box):
    """Terminal and sandbox restart in any order, and stay in the one network of their user."""
    namespace = box.succeed("stat -L -c %i /run/netns/agent-box-alice").strip()
    for unit in ("agent-box-terminal-alice.service", outside.sandbox("alice")) * 2:
        box.succeed(f"systemctl daemon-reload; systemctl restart {unit}")
        inode = box.succeed(f"stat -L -c %i /proc/{outside.main_pid(box, unit)}/ns/net").strip()
        assert inode == namespace, unit
