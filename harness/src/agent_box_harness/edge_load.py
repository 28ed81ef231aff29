"""Plays many browsers at once inside a guest: floods of sign-ins, open event streams, echoes.

Takes the steps of `edge_client`, beside which it lies in the guest, and these:

    {"do": "flood", "as", "requests": [step], "rounds"}   sends them all at once, in a process of
                                                          its own, which `join` waits for
    {"do": "join", "as"}                                  -> statuses, seconds
    {"do": "echo", "as", "count", "while"}                -> milliseconds of each key typed
    {"do": "stream", "as", "target", "headers"}           an open stream of events -> status
    {"do": "heard", "as", "text"}                         -> text: the part of the stream with it,
                                                          of those not heard yet
    {"do": "change", …, "until"}                          a request like `ask`
                                                          -> status, answered, delays: milliseconds
                                                          until the answer, until the text "until"
                                                          was in each open stream; sizes: bytes of
                                                          the events until then
    {"do": "repeat", …, "count", "socket"}                a request like `ask`, on one connection,
                                                          to the edge or to a UNIX socket
                                                          -> statuses, milliseconds, sizes
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from agent_box_harness.edge_client import (
        PATIENCE,
        Browsers,
        deliver,
        parse_head,
        read_head,
        run,
    )
else:  # in the guest
    from edge_client import PATIENCE, Browsers, deliver, parse_head, read_head, run

LETTERS = "wyzvpk"

PONG = b"\x8a\x80\0\0\0\0"
"""Tells the terminal service that the browser is there still; it gives up those that are not."""


class Stream:
    """One open stream of events."""

    def __init__(self, connection: socket.socket, rest: bytes) -> None:
        self.changed = threading.Condition()
        self.heard = 0
        self.arrivals = [(time.monotonic(), rest)]
        """When each piece came, and what."""
        connection.settimeout(None)
        threading.Thread(target=self._follow, args=(connection,), daemon=True).start()

    def _follow(self, connection: socket.socket) -> None:
        while chunk := connection.recv(65536):
            with self.changed:
                self.arrivals.append((time.monotonic(), chunk))
                self.changed.notify_all()

    def seen(self, text: bytes, since: float) -> float | None:
        """Return when a text came after a moment, or None if it does not come in time."""
        with self.changed:
            while True:
                for at, chunk in self.arrivals:
                    if at >= since and text in chunk:
                        return at
                if not self.changed.wait(max(0.0, since + PATIENCE - time.monotonic())):
                    return None

    def received(self, since: float) -> int:
        """Return how many bytes have come since a moment."""
        with self.changed:
            return sum(len(chunk) for at, chunk in self.arrivals if at >= since)

    def hear(self, text: bytes) -> str:
        """Return the first event with a text that was not returned yet; "" if none comes."""
        end = time.monotonic() + PATIENCE
        with self.changed:
            while True:
                events = b"".join(chunk for _, chunk in self.arrivals).split(b"\n\n")
                for index, event in enumerate(events[:-1]):
                    if index >= self.heard and text in event:
                        self.heard = index + 1
                        return event.decode()
                if not self.changed.wait(max(0.0, end - time.monotonic())):
                    return ""


class Crowd(Browsers):
    """Many browsers."""

    def __init__(self, domain: str, address: str, port: int) -> None:
        super().__init__(domain, address, port)
        self.streams: dict[str, Stream] = {}
        self.floods: dict[str, tuple[Any, Any]] = {}

    def flood(self, step: dict[str, Any]) -> dict[str, Any]:
        """Begin to send requests, all at once."""
        receiver, sender = multiprocessing.Pipe(duplex=False)
        # Of its own, so that it does not slow down what is measured beside it.
        process = multiprocessing.Process(target=self._flood, args=(step, sender), daemon=True)
        process.start()
        self.floods[step["as"]] = process, receiver
        return {}

    def _flood(self, step: dict[str, Any], sender: Any) -> None:
        statuses: list[int] = []

        def one(request: dict[str, Any]) -> None:
            statuses.append(self.carry_out(request)["status"])

        began = time.monotonic()
        for _ in range(step.get("rounds", 1)):
            threads = [threading.Thread(target=one, args=(each,)) for each in step["requests"]]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        sender.send({"statuses": statuses, "seconds": time.monotonic() - began})

    def join(self, step: dict[str, Any]) -> dict[str, Any]:
        """Wait for the end of a flood."""
        process, receiver = self.floods.pop(step["as"])
        result: dict[str, Any] = receiver.recv()
        process.join()
        return result

    def echo(self, step: dict[str, Any]) -> dict[str, Any]:
        """Type letters one by one, each when the one before is shown; at least as long as a flood.

        The letters are not among those that end the commands to a terminal.
        """
        connection = self.open[step["as"]]
        found: list[float] = []
        flood = self.floods.get(step.get("while", ""))
        connection.settimeout(PATIENCE)
        alive = time.monotonic()
        while len(found) < step["count"] or (flood is not None and flood[0].is_alive()):
            letter = LETTERS[len(found) % len(LETTERS)]
            if found and len(found) % 60 == 0:  # the line has an end
                self.type({"as": step["as"], "text": "\x15"})
                self._forget(connection)
            began = time.monotonic()
            if began - alive > 2:
                connection.sendall(PONG)
                alive = began
            self.type({"as": step["as"], "text": letter})
            data = b""
            while letter.encode() not in data:
                chunk = connection.recv(65536)
                if not chunk:
                    raise OSError("the terminal was closed")
                data += chunk
            found.append((time.monotonic() - began) * 1000)
            time.sleep(0.02)  # a person does not type faster
        return {"milliseconds": found}

    def _forget(self, connection: socket.socket) -> None:
        connection.settimeout(0.1)
        try:
            while connection.recv(65536):
                pass
        except TimeoutError:
            connection.settimeout(PATIENCE)

    def stream(self, step: dict[str, Any]) -> dict[str, Any]:
        """Open a stream of events."""
        connection = self.request(step, [])
        head, rest = read_head(connection)
        status, headers = parse_head(head)
        if status == 200:
            self.streams[step["as"]] = Stream(connection, rest)
        return {"status": status, "headers": headers}

    def heard(self, step: dict[str, Any]) -> dict[str, Any]:
        """Wait for an event with a text in it, after the one that was last waited for."""
        stream = self.streams[step["as"]]
        return {"text": stream.hear(step["text"].encode())}

    def change(self, step: dict[str, Any]) -> dict[str, Any]:
        """Send a request and time its answer, and its effect in every open stream."""
        connection = self.connect()
        began = time.monotonic()
        with self.request(step, [["Connection", "close"]], connection):
            status, _ = parse_head(read_head(connection)[0])
            answered = time.monotonic() - began
        text = step["until"].encode()
        times = [stream.seen(text, began) for stream in self.streams.values()]
        delays = [None if at is None else (at - began) * 1000 for at in times]
        sizes = [stream.received(began) for stream in self.streams.values()]
        return {"status": status, "answered": answered * 1000, "delays": delays, "sizes": sizes}

    def repeat(self, step: dict[str, Any]) -> dict[str, Any]:
        """Send one request again and again on one connection, as a page does."""
        if "socket" in step:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(step["socket"])
        else:
            connection = self.connect()
        statuses, milliseconds, sizes = [], [], []
        for _ in range(step["count"]):
            began = time.monotonic()
            self.request(step, [], connection)
            head, rest = read_head(connection)
            status, headers = parse_head(head)
            length = int(dict(headers).get("content-length", "0"))
            while len(rest) < length:
                rest += connection.recv(65536)
            statuses.append(status)
            milliseconds.append((time.monotonic() - began) * 1000)
            sizes.append(len(head) + 4 + len(rest))
        connection.close()
        return {"statuses": statuses, "milliseconds": milliseconds, "sizes": sizes}


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    deliver(run(json.load(sys.stdin), Crowd))
