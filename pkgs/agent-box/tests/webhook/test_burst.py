"""Many deliveries at once to many sessions: in order, none lost, and little memory.

AGENT_BOX_BURST says how many deliveries; 5000 is what the receiver was built for.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from webhook_stand import key_of, push, sign, wait_for

TOTAL = int(os.environ.get("AGENT_BOX_BURST", "1000"))
PEERS, BRIDGED, SENDERS = 17, 3, 8
MIB = 1 << 20


def peak(stand: Any) -> int:
    status = Path(f"/proc/{stand.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) * 1024


def send(stand: Any, first: int) -> None:
    """Deliver every SENDERS-th event over one connection that stays open."""
    import http.client
    import socket

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(str(stand.socket_path))

    link = Connection("x", timeout=60)
    for number in range(first, TOTAL, SENDERS):
        body = json.dumps(push(number) | {"filler": "x" * 4000}).encode()
        headers = {"X-Hub-Signature-256": sign(body), "X-GitHub-Event": "push",
                   "X-GitHub-Delivery": str(uuid.uuid4()), "X-Forwarded-For": "x"}  # fmt: skip
        link.request("POST", "/github", body, headers)
        answer = link.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok")
    link.close()


def test_a_burst_reaches_everybody_in_order(stand: Any) -> None:
    """20 sessions get all of it in one order; one that is stopped harms nobody, nor itself."""
    peers = [stand.peer(f"p{number}") for number in range(PEERS)]
    for number in range(BRIDGED):
        ident = stand.supervisor.add(f"b{number}")
        stand.subscribe(key_of(ident), "acme/*")
    stopped = peers[0]
    stopped.reading.clear()
    began = time.monotonic()
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            send(stand, first)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    accepted = time.monotonic() - began
    for peer in peers[1:]:
        wait_for(lambda peer=peer: len(peer.lines) >= TOTAL, 120)
    seconds = time.monotonic() - began
    reference = peers[1].lines
    assert sorted(event["payload"]["number"] for event in peers[1].events()) == list(range(TOTAL))
    assert all(peer.lines == reference for peer in peers[2:])
    assert all(peer.connections == 1 for peer in peers[1:])
    for number in range(BRIDGED):
        count = lambda: sum(  # noqa: E731
            text.count("[UNTRUSTED") for name, text in stand.supervisor.told()
            if name == f"b{number}"  # noqa: B023
        )  # fmt: skip
        wait_for(lambda: count() >= min(TOTAL, 500), 60)  # noqa: B023
    memory = peak(stand)
    print(
        f"{TOTAL} deliveries to {PEERS + BRIDGED} sessions: {TOTAL / accepted:.0f} a second,"
        f" all there after {seconds:.1f} s, peak {memory / MIB:.0f} MiB"
    )
    assert memory < 60 * 1000 * 1000
    stopped.reading.set()
    wait_for(lambda: len(stopped.lines) >= TOTAL, 60)
    assert stopped.lines == reference
