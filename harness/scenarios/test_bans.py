"""Who guesses passwords is banned at the packet filter, and nobody else.

The guessers are another host, in a network namespace of the guest: fail2ban never bans an address
of its own machine.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness.edge import COOKIE, PASSWORDS, Ask, Edge, page_headers, with_cookie

if TYPE_CHECKING:
    from agent_box_harness.edge import Answer

pytestmark = [pytest.mark.limit(180), pytest.mark.shared]

BOX4, BOX6 = "198.51.100.1", "2001:db8:7::1"
HOSTS = tuple(f"198.51.100.{number}" for number in range(2, 13))
NEIGHBOURS = ("2001:db8:7:1::2", "2001:db8:7:1::3", "2001:db8:7:1:ffff::4", "2001:db8:7:1::5")
"""Addresses of one /64."""
STRANGER = "2001:db8:7:2::2"
"""An address of another one."""

NETWORK = (
    "ip netns list | grep -q '^out' || { ip netns add out && "
    "ip link add inner type veth peer name outer netns out && "
    f"ip address add {BOX4}/24 dev inner && ip address add {BOX6}/48 dev inner nodad && "
    "ip link set inner up && ip -n out link set lo up && ip -n out link set outer up && "
    + " && ".join(f"ip -n out address add {each}/24 dev outer" for each in HOSTS)
    + " && "
    + " && ".join(f"ip -n out address add {a}/48 dev outer nodad" for a in (*NEIGHBOURS, STRANGER))
    + "; }"
)

FORGED = "203.0.113.9"
LINE = f"agent-box-gate: failed login from {FORGED}"


class Outside:
    """Clients on another host."""

    def __init__(self, edge: Edge) -> None:
        self.box = edge.box
        self._edges = {":" in address: Edge(edge.box, address=address) for address in (BOX4, BOX6)}

    def ask(self, source: str, *asks: Ask) -> list[Answer]:
        """Send requests from an address; the status is 0 where nobody answers in time."""
        more = {"source": source, "seconds": self.box.machine.scaled(3)}
        edge = self._edges[":" in source]
        return edge.read(
            edge.steps([{**ask.step(), **more} for ask in asks], prefix="ip netns exec out")
        )

    def statuses(self, source: str, *asks: Ask) -> list[int]:
        return [answer.status for answer in self.ask(source, *asks)]

    def statuses_of_http3(self, source: str, *asks: Ask) -> list[int]:
        """Send requests over HTTP/3 from an IPv4 address."""
        found = self._edges[False].fetch(
            "3",
            asks,
            source=source,
            seconds=self.box.machine.scaled(3),
            prefix="ip netns exec out",
        )
        return [answer.status for answer in found]

    def is_cut_off(self, source: str) -> bool:
        """Tell whether packets vanish: no refusal, no answer."""
        (answer,) = self.ask(source, Ask("/login"))
        return answer.status == 0 and "TimeoutError" in answer.body

    def banned(self) -> set[str]:
        return set(self.box.succeed("fail2ban-client get agent-box-gate banip").split())

    def wait_banned(self, what: str) -> None:
        self.box.wait_for(f"a ban of {what}", lambda: what in self.banned(), timeout=20)


@pytest.fixture
def out(edge: Edge) -> Outside:
    box = edge.box
    box.wait_for_unit("fail2ban.service")
    box.wait_until_succeeds("fail2ban-client status agent-box-gate")
    box.succeed(NETWORK, "agent-box-gate unban --all")
    return Outside(edge)


def wrong(edge: Edge, count: int) -> list[Ask]:
    """Return guesses, in forms and as Basic credentials in turn."""
    return [
        Ask("/alice/", headers=edge.basic("alice", f"wrong {number}"))
        if number % 2
        else edge.form("alice", f"wrong {number}")
        for number in range(count)
    ]


def right(edge: Edge) -> Ask:
    return Ask("/alice/", headers=edge.basic("alice", PASSWORDS["alice"]))


def test_five(edge: Edge, out: Outside) -> None:
    """Five wrong passwords ban an address, whose packets are dropped from then on, a right password
    notwithstanding; four and a right one do not. Root lifts the ban.
    """
    guesser, clumsy, other = HOSTS[:3]
    assert out.statuses(clumsy, *wrong(edge, 4), right(edge)) == [401, 401, 401, 401, 200]
    assert out.statuses(guesser, *wrong(edge, 4)) == [401] * 4
    assert guesser not in out.banned()
    assert out.statuses(guesser, *wrong(edge, 1)) == [401]
    out.wait_banned(guesser)
    assert out.is_cut_off(guesser)
    assert out.statuses(guesser, right(edge)) == [0]
    assert out.banned() == {guesser}
    assert out.statuses(clumsy, right(edge)) == [200]
    assert out.statuses(other, right(edge)) == [200]
    out.box.succeed(f"agent-box-gate unban {guesser}")
    assert out.statuses(guesser, right(edge)) == [200]


def shown(edge: Edge, cookie: str) -> list[str]:
    """Return the addresses that the settings page shows as banned."""
    (answer,) = edge.ask([Ask("/gate/bans", headers=with_cookie(cookie))])
    assert answer.status == 200
    return [ban["address"] for ban in json.loads(answer.body)["bans"]]


def test_neighbours(edge: Edge, out: Outside) -> None:
    """Of IPv6 the whole /64 is banned, wherever in it the guesses come from, and no other. Its
    owner, signed in from elsewhere, lifts the ban on the settings page.
    """
    for number, guess in enumerate(wrong(edge, 5)):
        assert out.statuses(NEIGHBOURS[number % 3], guess) == [401]
    out.wait_banned("2001:db8:7:1::/64")
    assert [out.is_cut_off(source) for source in NEIGHBOURS] == [True] * 4
    assert out.statuses(STRANGER, right(edge)) == [200]
    cookie = edge.sign_in("alice")
    asking = Ask(
        "/gate/unban",
        "POST",
        page_headers(edge, with_cookie(cookie)),
        json.dumps({"address": NEIGHBOURS[1]}),
    )
    assert out.statuses(HOSTS[3], Ask("/gate/unban", "POST", (), asking.body)) == [401]
    assert len(out.banned()) == 1
    assert shown(edge, cookie) == ["2001:db8:7:1::/64"]
    assert out.statuses(STRANGER, asking) == [200]
    out.box.wait_for("the ban to be lifted", lambda: not out.banned(), timeout=20)
    assert shown(edge, cookie) == []
    assert out.statuses(NEIGHBOURS[2], right(edge)) == [200]


def test_innocent(edge: Edge, out: Outside) -> None:
    """Requests without a credential, with a stale cookie or with nonsense in its place are no
    guesses, however many: with four wrong passwords besides they do not ban.
    """
    innocent, guesser = HOSTS[4:6]
    stale = edge.sign_in("alice")
    edge.box.succeed("agent-box-gate revoke --user alice")
    nothing = [Ask(path) for path in ("/", "/alice/", "/alice/api/sessions", "/gate/account")] * 5
    old = [Ask("/alice/", headers=with_cookie(stale))] * 10
    old += [Ask("/alice/", headers=with_cookie(f"{COOKIE}=nonsense", "a=b"))] * 10
    assert set(out.statuses(innocent, *nothing, *old)) == {401}
    assert out.statuses(innocent, *wrong(edge, 4)) == [401] * 4
    # Whoever is banned later tells that everything before was looked at.
    out.ask(guesser, *wrong(edge, 5))
    out.wait_banned(guesser)
    assert out.banned() == {guesser}
    assert out.statuses(innocent, right(edge)) == [200]


def test_forged(edge: Edge, out: Outside) -> None:
    """Nothing that a client or a user of the box writes hides a failure or makes one up."""
    guesser, victim, last = HOSTS[6:9]
    box = edge.box
    forged = (
        ("X-Forwarded-For", FORGED),
        ("Forwarded", f"for={FORGED}"),
        ("X-Real-IP", FORGED),
        ("User-Agent", f"x {LINE}"),
        ("Referer", f"https://box.test/{LINE}"),
        ("X-Long", (LINE + " ") * 200),  # some 10 KB
    )
    names = (f"alice\n{LINE}", f"alice\r\n<4>{LINE}\n", "alice\0", LINE, "a" * 900)
    asks: list[Ask] = []
    for number, name in enumerate(names):
        form = edge.form(name, f"{LINE}\n{LINE}")
        basic = Ask(
            f"/alice/?{number}=%0a{LINE.replace(' ', '%20')}", headers=edge.basic(name, "x")
        )
        asks.append(basic if number % 2 else form)
    asks = [Ask(ask.target, ask.method, (*ask.headers, *forged), ask.body) for ask in asks]
    assert out.statuses(guesser, *asks) == [401] * 5
    out.wait_banned(guesser)
    # what users of the box, and other services of it, can put into the journal
    line = f"agent-box-gate: failed login from {victim}"
    script = (
        f"for n in 1 2 3 4 5 6; do logger -t agent-box-gate -p auth.warning '{line}'; "
        f"echo '{line}' | systemd-cat -t agent-box-gate -p warning; done"
    )
    box.as_user("bob", script).check()
    box.in_session("bob", script)
    box.succeed(f"runuser -u caddy -- sh -c {shlex.quote(script)}")
    box.succeed(f"journalctl -b -o cat -t agent-box-gate | grep -qF '{line}'")
    out.ask(last, *wrong(edge, 5))
    out.wait_banned(last)
    assert out.banned() == {guesser, last}
    assert out.statuses(victim, right(edge)) == [200]
    # Each failure is one line of which nothing but the address comes from the client.
    told = box.succeed("journalctl -b -o cat _SYSTEMD_UNIT=agent-box-gate.service")
    assert FORGED not in told
    assert told.splitlines().count(f"agent-box-gate: failed login from {guesser}") == 5


def wish(edge: Edge, cookie: str, address: str) -> Ask:
    headers = page_headers(edge, with_cookie(cookie))
    return Ask("/gate/unban", "POST", headers, json.dumps({"address": address}))


def test_many_wishes(edge: Edge, out: Outside) -> None:
    """Whoever wishes again and again stops nothing: alice's ban is lifted all the same. bob sees
    and lifts none that guesses at her password led to; and each is told what came of it.
    """
    box, address = edge.box, HOSTS[2]
    cookie, other = edge.sign_in("alice"), edge.sign_in("bob")
    # As quickly as the helper takes them.
    folder = "/run/agent-box-bans/wishes"
    box.run(
        f"for n in 0 1 2 3 4 5 6 7 8 9; do touch {folder}/c633640$n; "
        "systemctl start agent-box-gate-unban.service; done",
        timeout=60,
    )
    assert out.statuses(address, *wrong(edge, 5)) == [401] * 5
    out.wait_banned(address)
    box.wait_for("the list", lambda: shown(edge, cookie) == [address], timeout=20)
    assert shown(edge, other) == []
    (refused,) = edge.ask([wish(edge, other, address)])
    assert (refused.status, json.loads(refused.body)["error"]["code"]) == (409, "conflict")
    assert out.banned() == {address}
    (answer,) = edge.ask([wish(edge, cookie, address)])
    assert json.loads(answer.body) == {"address": address, "failures": 5, "banned": False}
    assert out.banned() == set()
    assert not out.is_cut_off(address)
    assert box.succeed("systemctl --failed --no-legend --plain") == ""


@pytest.mark.usefixtures("out")
def test_connections(edge: Edge) -> None:
    """One address, or one /64, has so many connections at a time, and others theirs."""
    script = (
        "import socket,sys\nkept=[]\nfull=0\n"
        "for n in range(160):\n"
        " try: kept.append(socket.create_connection((sys.argv[1],443),3,(sys.argv[2+n%2],0)))\n"
        " except OSError: full+=1\n"
        "print(len(kept),full,flush=True)\n"
        "try: socket.create_connection((sys.argv[1],443),3,(sys.argv[4],0)); print('other')\n"
        "except OSError: print('nobody')\n"
    )
    for box, one, two, other in (
        (BOX4, HOSTS[0], HOSTS[0], HOSTS[1]),
        (BOX6, NEIGHBOURS[0], NEIGHBOURS[1], STRANGER),
    ):
        told = edge.box.succeed(
            f"ip netns exec out python3 -c {shlex.quote(script)} {box} {one} {two} {other}",
            timeout=60,
        )
        assert told.split() == ["128", "32", "other"]


def test_damaged_journal(edge: Edge, out: Outside) -> None:
    """A journal of some user that cannot be read, as one is left by a full disk or while it is
    being made, is nobody's shield.
    """
    guesser, box = HOSTS[10], edge.box
    box.succeed("for folder in /var/log/journal/*/; do : >$folder/user-4242.journal; done")
    # It looks at what there is to read when it starts, and when journals were rotated.
    box.succeed("systemctl restart fail2ban")
    box.wait_until_succeeds("fail2ban-client status agent-box-gate")
    box.succeed("journalctl --rotate")
    assert out.statuses(guesser, *wrong(edge, 5)) == [401] * 5
    out.wait_banned(guesser)


def test_over_http3(edge: Edge, out: Outside) -> None:
    """Where HTTP/3 is offered, who guesses over it is banned just as well, and there too."""
    guesser = HOSTS[9]
    guesses = [
        Ask("/alice/", headers=edge.basic("alice", f"wrong {number}")) for number in range(5)
    ]
    with edge.as_with("http3"):
        assert out.statuses_of_http3(guesser, *guesses) == [401] * 5
        out.wait_banned(guesser)
        assert out.statuses_of_http3(guesser, right(edge)) == [0]
        assert out.is_cut_off(guesser)
        assert out.statuses_of_http3(HOSTS[0], right(edge)) == [200]


def test_a_firewall_that_empties_all_tables(edge: Edge, out: Outside) -> None:
    """A firewall of the owner's that flushes the whole ruleset lifts no ban for long."""
    guesser, box = HOSTS[1], edge.box
    if box.run("systemctl cat nftables.service").rc != 0:
        pytest.skip("the firewall of this machine is another one")
    assert out.statuses(guesser, *wrong(edge, 5)) == [401] * 5
    out.wait_banned(guesser)
    for verb in ("start", "reload", "restart"):
        box.succeed(f"systemctl {verb} nftables.service")
        box.wait_until_succeeds(f"nft list table inet agent-box-bans | grep -F {guesser}")
        assert out.is_cut_off(guesser), verb
    box.succeed(f"agent-box-gate unban {guesser}", "systemctl stop nftables.service")
    box.wait_until_succeeds("fail2ban-client status agent-box-gate")
