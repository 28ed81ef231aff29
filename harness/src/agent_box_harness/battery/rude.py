"""Requests that are no good: cut off anywhere, or lying about how long they are."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness.battery import edge_config, inside
from agent_box_harness.battery.ground import ATTACKER, VICTIM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.battery.ground import Ground
    from agent_box_harness.edge import Headers

EACH = 3
"""Addresses for each way of the edge's."""
BODY = b"user=alice&password=" + b"x" * 80
_HELLO = bytes.fromhex("160301020001000001fc0303") + b"x" * 32
"""The beginning of a TLS handshake that promises half a kilobyte."""


@dataclass(frozen=True)
class Rude:
    """One request that is no good."""

    name: str
    who: str
    raw: bytes
    tls: bool = True
    reset: bool = False
    wait: float = 0.0
    """Seconds to wait for an answer; 0: whoever it is does not."""


def targets(ground: Ground) -> list[str]:
    """Return addresses on every way of the edge's, one each that bob may have or that is open."""
    found = []
    for way in edge_config.ways(ground.box):
        if way.hosts and ground.edge.domain not in way.hosts:
            continue
        mine = [target for target in way.targets if not target.startswith(f"/{VICTIM}")]
        found += mine[:EACH]
    return list(dict.fromkeys(found))


def ends(ground: Ground) -> Iterator[tuple[str, Headers]]:
    """Yield who may come: somebody whom nobody knows, and bob."""
    yield "a stranger", ()
    yield ATTACKER, ground.as_attacker


def cuts(ground: Ground) -> list[Rude]:
    """Return every request cut off after each part of it, by a close and by a reset."""
    found = [
        Rude("nothing sent", "a stranger", b"", tls=False),
        Rude("mid-hello", "a stranger", _HELLO, tls=False),
        Rude("mid-hello, reset", "a stranger", _HELLO, tls=False, reset=True),
        Rude("no TLS at all", "a stranger", b"GET / HTTP/1.1\r\n\r\n", tls=False),
        Rude("handshake only", "a stranger", b""),
    ]
    for who, headers in ends(ground):
        for target in targets(ground):
            for method in ("GET", "POST"):
                raw, head = _request(ground, method, target, headers)
                at = {
                    "mid-line": 6,
                    "mid-head": head // 2,
                    "end of head": head,
                    "mid-body": head + len(BODY) // 2,
                    "after body": len(raw),
                }
                for name, size in at.items():
                    if size > len(raw):
                        continue
                    what = f"{method} {target} cut {name}"
                    found.append(Rude(what, who, raw[:size], reset=name != "mid-head"))
    return found


LIES = {
    "huge": "Content-Length: 99999999999\r\n\r\nx",
    "beyond 64 bits": "Content-Length: 99999999999999999999999\r\n\r\nx",
    "negative": "Content-Length: -1\r\n\r\nx",
    "hexadecimal": "Content-Length: 0x10\r\n\r\nxxxxxxxxxxxxxxxx",
    "signed": "Content-Length: +5\r\n\r\nxxxxx",
    "empty": "Content-Length: \r\n\r\nx",
    "twice": "Content-Length: 1\r\nContent-Length: 9\r\n\r\nx",
    "both": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks of nonsense": "Transfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n0\r\n\r\n",
    "huge chunk": "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
    "negative chunk": "Transfer-Encoding: chunked\r\n\r\n-5\r\nxxxxx\r\n0\r\n\r\n",
    "chunk without end": "Transfer-Encoding: chunked\r\n\r\n5\r\nxx",
    "long extension": "Transfer-Encoding: chunked\r\n\r\n1;" + "y" * 20000 + "\r\nx\r\n0\r\n\r\n",
    "many trailers": "Transfer-Encoding: chunked\r\n\r\n0\r\n" + "a: b\r\n" * 3000 + "\r\n",
    "encoding of encodings": "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "body where none is": "Content-Length: 50\r\nExpect: 100-continue\r\n\r\n",
}
"""What a head may say about its body, and the body."""


def lies(ground: Ground) -> list[Rude]:
    """Return requests on every way of the edge's that lie about how long they are."""
    found = []
    for who, headers in ends(ground):
        for target in targets(ground):
            for name, rest in LIES.items():
                lines = _head(ground, "POST", target, headers)
                raw = ("\r\n".join(lines) + "\r\n" + rest).encode()
                found.append(Rude(f"POST {target}, {name}", who, raw, reset=True, wait=1.0))
    return found


def send(ground: Ground, requests: list[Rude]) -> list[int]:
    """Send requests; return the status of each, 0 for an end, -1 for silence."""
    job: list[dict[str, Any]] = [
        {"raw": base64.b64encode(each.raw).decode(), "tls": each.tls, "reset": each.reset,
         "wait": each.wait, "domain": ground.edge.domain}
        for each in requests
    ]  # fmt: skip
    answers: list[int] = inside.run(ground.box, "rude", job, timeout=90)
    return answers


def _head(ground: Ground, method: str, target: str, headers: Headers) -> list[str]:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {ground.edge.domain}"]
    kind = ("Content-Type", "application/x-www-form-urlencoded")
    given = dict([*headers, kind]) if headers else {
        "Origin": ground.edge.origin, "Sec-Fetch-Site": "same-origin", kind[0]: kind[1]
    }  # fmt: skip
    return [*lines, *(f"{name}: {value}" for name, value in given.items())]


def _request(ground: Ground, method: str, target: str, headers: Headers) -> tuple[bytes, int]:
    """Return a request to the byte, and where its head ends."""
    lines = _head(ground, method, target, headers)
    body = BODY if method == "POST" else b""
    if body:
        lines.append(f"Content-Length: {len(body)}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    return head + body, len(head)
