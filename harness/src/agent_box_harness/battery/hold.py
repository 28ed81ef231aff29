"""Connections that somebody takes and does nothing with."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any

from agent_box_harness.battery import edge_config, inside, rude, sockets
from agent_box_harness.battery.ground import ATTACKER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.battery.ground import Ground
    from agent_box_harness.battery.inside import Stand

Job = list[dict[str, Any]]

EACH = 40
"""Connections to each socket of a user's own, by that user."""
IDLE = 300
"""Connections of each kind by a stranger."""
CONNECTIONS, STREAMS = 8, 230
"""Connections of HTTP/2, and requests on each."""


def own_sockets(ground: Ground) -> Job:
    """Return what hangs every socket that bob may connect to: silent, and with half a head."""
    view = sockets.look(ground.box)
    found = []
    paths = [socket.path for socket in view.sockets]
    told = inside.run(ground.box, "touch", {"connect": paths}, stand=inside.Stand.LOGIN)
    for socket in view.sockets:
        if told["connect"][socket.path] == "connected":
            number = EACH if socket.of_the_box else EACH // 10
            half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n"
            found += [_job("unix", number, raw, path=socket.path) for raw in (b"", half)]
    return found


def idle(ground: Ground) -> Job:
    """Return what a stranger can hold without a word, with half a handshake, with half a head."""
    domain = ground.edge.domain
    half = f"GET /login HTTP/1.1\r\nHost: {domain}\r\nX-Slow: ".encode()
    return [
        _job("plain", IDLE, b""),
        _job("plain", IDLE, b"GET / HTTP/1.1\r\n", port=80),
        _job("plain", IDLE, bytes.fromhex("16030102000100")),
        _job("tls", IDLE // 3, half, domain=domain),
    ]


def without_bodies(ground: Ground, target: str, *, signed_in: bool = False) -> Job:
    """Return many requests for one address over HTTP/2 whose bodies never come."""
    more = ground.as_attacker if signed_in else ()
    headers = [
        (":method", "POST"), (":scheme", "https"), (":authority", ground.edge.domain),
        (":path", target), ("content-type", "application/x-www-form-urlencoded"),
        ("content-length", "100"), ("origin", ground.edge.origin),
        ("sec-fetch-site", "same-origin"),
        *((name, value) for name, value in more if name == "Cookie"),
    ]  # fmt: skip
    asks = [[list(pair) for pair in headers]]
    return [_job("http2", CONNECTIONS, b"", domain=ground.edge.domain, streams=STREAMS, asks=asks)]


def open_targets(ground: Ground) -> list[str]:
    """Return one address for each service behind the edge that bob's and strangers' requests reach.

    Where a login is asked for, a stranger's goes to the gate.
    """
    found: dict[str, str] = {}
    reached = rude.targets(ground)
    for way in edge_config.ways(ground.box):
        mine = [target for target in way.targets if target in reached]
        if way.socket and mine:
            found.setdefault(way.socket, mine[0])
    return list(found.values())


@contextlib.contextmanager
def held(ground: Ground, job: Job, *, stand: Stand = inside.Stand.ROOT) -> Iterator[dict[str, Any]]:
    """Hold connections for a while; yields how many were taken, and how many refused."""
    told = inside.run(ground.box, "hold", job, stand=stand, user=ATTACKER)
    try:
        yield told
    finally:
        inside.end(ground.box, told["pid"])


def _job(kind: str, number: int, raw: bytes, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "number": number, "raw": base64.b64encode(raw).decode(), **more}
