"""An internet for a box that has none: a network namespace behind a pair of interfaces.

The box has the one end as its way out, like the interface of a provider; the other end is the
rest of the world, with a name server, and with whatever a scenario starts there.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.apart import Result
    from agent_box_harness.box import Box

from contextlib import contextmanager

NAMESPACE = "internet"
LINK = "wan0"
BOX, BOX6 = "203.0.113.1", "2001:db8:113::1"
"""Addresses of the box, as the world sees it."""
WORLD, WORLD6 = "203.0.113.2", "2001:db8:113::2"
"""Addresses at which everything in the world is found."""
NAME = "service.example"
"""A name that the world's name server knows."""

_UP = f"""\
ip netns add {NAMESPACE}
ip link add {LINK} type veth peer name eth0 netns {NAMESPACE}
ip addr add {BOX}/24 dev {LINK}
ip -6 addr add {BOX6}/64 dev {LINK} nodad
ip link set {LINK} up
ip -n {NAMESPACE} link set lo up
ip -n {NAMESPACE} addr add {WORLD}/24 dev eth0
ip -n {NAMESPACE} -6 addr add {WORLD6}/64 dev eth0 nodad
ip -n {NAMESPACE} link set eth0 up
cat /etc/resolv.conf >/run/resolv.conf.before 2>/dev/null || true
ip route show default >/run/default.before
ip route replace default via {WORLD} dev {LINK}
ip -6 route replace default via {WORLD6} dev {LINK}
echo 'nameserver {WORLD}' >/etc/resolv.conf
setsid -f ip netns exec {NAMESPACE} dnsmasq --keep-in-foreground --conf-file=/dev/null --no-hosts \
  --no-resolv --listen-address={WORLD} --bind-interfaces --pid-file=/run/internet-names.pid \
  --address=/{NAME}/{WORLD} --address=/{NAME}/{WORLD6} >/dev/null 2>&1 </dev/null
"""

_DOWN = f"""\
ip netns pids {NAMESPACE} | xargs -r kill -9
ip link del {LINK}
ip netns del {NAMESPACE}
cat /run/resolv.conf.before >/etc/resolv.conf
if [ -s /run/default.before ]; then ip route replace $(cat /run/default.before); fi
"""


class Internet:
    """What is outside of a box."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def run(self, command: str) -> Result:
        """Run a command line as root out there."""
        return self._box.run(f"ip netns exec {NAMESPACE} sh -c {shlex.quote(command)}")

    def serve(self, port: int, folder: str = "/var/empty") -> None:
        """Serve a folder by HTTP out there, over IPv4 and IPv6."""
        server = f"python3 -m http.server -b :: {port} --directory {folder}"
        self.run(f"setsid -f {server} </dev/null >/run/internet-{port}.log 2>&1").check()
        self._box.wait_until_succeeds(f"curl -sS -o /dev/null http://{WORLD}:{port}/")

    def seen(self, port: int) -> str:
        """Return the log of a server there: it tells the addresses of clients."""
        return self._box.run(f"cat /run/internet-{port}.log").out


@contextmanager
def internet(box: Box) -> Iterator[Internet]:
    """Connect a box to the world, and take it off again."""
    box.succeed(f"mkdir -p /var/empty\n{_UP}")
    try:
        yield Internet(box)
    finally:
        box.run(_DOWN)
