"""Who guesses passwords is banned at the packet filter, and nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.limit(180)


NEIGHBOURS = ("2001:db8:7:1::2", "2001:db8:7:1::3", "2001:db8:7:1:ffff::4")
"""Addresses of one /64."""


def test_bans(box: Box) -> None:
    """Five wrong passwords ban an address, and of IPv6 its /64: packets are really dropped. Four
    wrong and one right do not, nor do requests without credentials; who may, lifts the ban.
    """
    # Another host, since fail2ban never bans an address of its own machine.
    box.succeed(
        "ip netns add out && ip link add inner type veth peer name outer netns out && "
        "ip address add 198.51.100.1/24 dev inner && "
        "ip address add 2001:db8:7::1/48 dev inner nodad && "
        "ip link set inner up && ip -n out link set lo up && ip -n out link set outer up && "
        "ip -n out address add 198.51.100.2/24 dev outer && "
        "ip -n out address add 198.51.100.3/24 dev outer && "
        + " && ".join(f"ip -n out address add {a}/48 dev outer nodad" for a in NEIGHBOURS)
        + " && ip -n out address add 2001:db8:7:2::2/48 dev outer nodad"
    )
    for unit in ("caddy", "agent-box-gate", "fail2ban"):
        box.wait_for_unit(f"{unit}.service")
    box.wait_until_succeeds("fail2ban-client status agent-box-gate")
    box.succeed(
        "printf '%s\\n' tulip-Anchor-vexing-orbit-maple | agent-box-gate set-password alice"
    )

    def curl(source: str, options: str) -> str:
        host = "[2001:db8:7::1]" if ":" in source else "198.51.100.1"
        return (
            f"ip netns exec out curl -sk --max-time 3 --interface {source} "
            f"--connect-to ::{host}:443 -o /dev/null -w '%{{http_code}}' {options} "
            "https://box.test/alice/ || true"
        )

    def ask(source: str, options: str = "") -> str:
        return str(box.succeed(curl(source, options)))

    wrong, right = "-u alice:wrong-%d", "-u alice:tulip-Anchor-vexing-orbit-maple"

    def is_banned(text: str) -> bool:
        return text in box.succeed("fail2ban-client get agent-box-gate banip").split()

    # Who asks without a credential is no guesser.
    assert {ask("198.51.100.3") for _ in range(10)} == {"401"}
    assert ask("198.51.100.3", right) == "200"

    for number in range(8):
        ask("198.51.100.2", wrong % number)
        box.sleep(2)
        if is_banned("198.51.100.2"):
            break
    box.wait_for("a ban", lambda: is_banned("198.51.100.2"), timeout=20)
    assert ask("198.51.100.2", right) == "000"
    assert ask("198.51.100.3", right) == "200"
    box.succeed("agent-box-gate unban 198.51.100.2")
    assert ask("198.51.100.2", right) == "200"

    for number, source in zip(range(9), NEIGHBOURS * 3, strict=False):
        ask(source, wrong % number)
        box.sleep(2)
        if is_banned("2001:db8:7:1::/64"):
            break
    box.wait_for("a ban of the /64", lambda: is_banned("2001:db8:7:1::/64"), timeout=20)
    assert {ask(source, right) for source in NEIGHBOURS} == {"000"}
    assert ask("2001:db8:7:2::2", right) == "200"
    # The gate asks for it on behalf of a user who is signed in from elsewhere.
    name = "20010db8000700010000000000000002"
    box.succeed(
        "runuser -u agent-box-gate -- sh -c 'mkdir -p -m 0700 /run/agent-box-gate/unban && "
        f"touch /run/agent-box-gate/unban/{name}'"
    )
    box.wait_for("the ban to be lifted", lambda: not is_banned("2001:db8:7:1::/64"), timeout=20)
    assert ask(NEIGHBOURS[1], right) == "200"
