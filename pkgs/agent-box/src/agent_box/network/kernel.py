"""What the network of a user is in the kernel: a named namespace and a pair of interfaces."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box.errors import InternalError
from agent_box.network.addresses import GATEWAY6

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_box.network.addresses import Place

NAMESPACES = Path("/run/netns")
"""Where `ip netns` keeps namespaces by name."""

SYSCTL = Path("/proc/sys/net")

RULE_PRIORITY = "30000"
"""Behind the table of what is the machine's own, before the one with ways to elsewhere."""

_PREFIX = "ab-"
_COPIED = ("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start")
"""Settings that a new namespace does not inherit and that programs notice."""

_OTHERS = "add rule inet agent-box-network others meta {side}kind {{ {kinds} }} accept"
_KINDS = (
    *("bridge", "veth", "tun", "wireguard", "vlan", "bond"),
    *("macvlan", "ipvlan", "vxlan", "vrf", "team", "ppp"),
)


def run(argv: Sequence[str], text: str | None = None) -> str:
    """Run a program and return what it prints; raises `InternalError` with what it complained."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InternalError(f"{argv[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise InternalError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def has_ipv6() -> bool:
    """Tell whether the machine speaks IPv6 at all."""
    switch = SYSCTL / "ipv6/conf/all/disable_ipv6"
    return switch.exists() and switch.read_text().strip() == "0"


def prepare(rules: Path, address: str, state: Path) -> None:
    """Have the machine forward packets of users by `rules`, and answer at `address`.

    Whether it forwarded before is noted in `state`, once per boot: a machine that did not must
    not become a router between its other networks.
    """
    run(["ip", "address", "replace", f"{address}/32", "dev", "lo"])
    # Units of users look there whether they are where they should be.
    NAMESPACES.mkdir(exist_ok=True)
    NAMESPACES.chmod(0o755)
    note = state / "forwarded-before"
    if not note.exists():
        forwarded = (SYSCTL / "ipv4/ip_forward").read_text().strip() == "1"
        note.write_text("yes\n" if forwarded else "no\n")
    text = rules.read_text()
    if note.read_text().strip() == "no":
        kinds = ", ".join(f'"{kind}"' for kind in _KINDS)
        sides = [_OTHERS.format(side=side, kinds=kinds) for side in ("iif", "oif")]
        text += "\n".join([*sides, "add rule inet agent-box-network others drop", ""])
    # Before forwarding is on: between the two, packets would pass unjudged.
    run(["nft", "-f", "-"], text)
    _write("ipv4/ip_forward", "1")
    if has_ipv6() and (SYSCTL / "ipv6/conf/all/forwarding").read_text().strip() != "1":
        _keep_router_advertisements()
        _write("ipv6/conf/all/forwarding", "1")


def _keep_router_advertisements() -> None:
    """Let interfaces go on to learn their addresses: the kernel stops that on a router."""
    for setting in SYSCTL.glob("ipv6/conf/*/accept_ra"):
        if setting.read_text().strip() == "1":
            setting.write_text("2\n")


def _write(setting: str, value: str) -> None:
    path = SYSCTL / setting
    if path.read_text().strip() != value:
        path.write_text(f"{value}\n")


def up(place: Place, gateway: str, ranges: Sequence[str]) -> None:
    """Make the namespace of a user and the way out of it. What exists is made anew, except for
    the namespace itself: programs may be in it. `ranges` are those of all users.
    """
    if not is_namespace(NAMESPACES / place.namespace):
        (NAMESPACES / place.namespace).unlink(missing_ok=True)
        run(["ip", "netns", "add", place.namespace])
    subprocess.run(["ip", "link", "delete", place.interface], capture_output=True, check=False)
    _forbid(place, ranges)
    _batch([], _outside(place))
    _batch(["-n", place.namespace], _inside(place, gateway))
    settings = [
        f"{name}={run(['sysctl', '-n', name]).strip()}"
        for name in _COPIED
        if (SYSCTL.parent / name.replace(".", "/")).exists()
    ]
    run(["ip", "netns", "exec", place.namespace, "sysctl", "-qw", *settings])


def _forbid(place: Place, ranges: Sequence[str]) -> None:
    """Have the kernel find no way from this user to another, whatever becomes of the firewall."""
    for addresses in ranges:
        family = "-6" if ":" in addresses else "-4"
        if family == "-6" and not has_ipv6():
            continue
        rule = ["iif", place.interface, "to", addresses, "type", "prohibit"]
        argv = ["ip", family, "rule"]
        subprocess.run([*argv, "delete", *rule], capture_output=True, check=False)
        run([*argv, "add", "priority", RULE_PRIORITY, *rule])


def _outside(place: Place) -> Iterable[str]:
    interface = place.interface
    yield f"link add {interface} type veth peer name eth0 netns {place.namespace}"
    yield f"link set {interface} alias agent-box:{place.user}"
    yield f"link set {interface} group {place.group}"
    yield f"link set {interface} up"
    yield f"route replace {place.address}/32 dev {interface}"
    if has_ipv6():
        # Only now: an interface that is down joins no group, and would not be asked.
        yield f"address add {GATEWAY6}/64 dev {interface} nodad"
        yield f"route replace {place.address6}/128 dev {interface}"


def _inside(place: Place, gateway: str) -> Iterable[str]:
    yield "link set lo up"
    yield f"address replace {place.address}/32 dev eth0"
    yield "link set eth0 up"
    yield f"route replace {gateway}/32 dev eth0 scope link"
    yield f"route replace default via {gateway} dev eth0"
    if has_ipv6():
        yield f"address replace {place.address6}/128 dev eth0 nodad"
        yield f"route replace ::/0 via {GATEWAY6} dev eth0"


def _batch(options: Sequence[str], lines: Iterable[str]) -> None:
    run(["ip", *options, "-batch", "-"], "".join(f"{line}\n" for line in lines))


def down(place: Place) -> None:
    """Take the network of a user away. Programs that are in it stay, without a way out."""
    subprocess.run(["ip", "link", "delete", place.interface], capture_output=True, check=False)
    for family in ("-4", "-6"):
        rule = ["ip", family, "rule", "delete", "iif", place.interface]
        subprocess.run(rule, capture_output=True, check=False)
    if (NAMESPACES / place.namespace).exists():
        run(["ip", "netns", "delete", place.namespace])


def is_namespace(path: Path) -> bool:
    """Tell whether a name leads to a network namespace other than the machine's."""
    try:
        found = path.stat()
    except OSError:
        return False
    own = Path("/proc/self/ns/net").stat()
    mounted = re.search(
        rf" {re.escape(str(path))} .* nsfs ", Path("/proc/self/mountinfo").read_text()
    )
    return mounted is not None and (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino)
