"""Plays strangers inside a guest who hold what they can hold, and leave whenever it hurts.

Runs on the guest's own Python, with the standard library alone. Takes one job from standard input:

    {"do": "hold", "domain", "address", "path", "connections", "streams", "body", "declared",
     "seconds", "done"}   HTTP/2 connections with so many requests each whose bodies never end; what
                          the edge ends is begun anew. The file "done" tells that they let go now.
                          With 0 streams each is a request of HTTP/1.1
    {"do": "leave", "domain", "address", "paths", "times"}   hangs up in the midst of everything

and tells what came of it: requests, statuses; or the number of connections.
"""

from __future__ import annotations

import collections
import contextlib
import json
import socket
import ssl
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

DATA, HEADERS, RST, SETTINGS, PING = 0, 1, 3, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = "POST {path} HTTP/1.1\r\nHost: {domain}\r\nContent-Type: {kind}\r\nContent-Length: 100\r\n"
KIND = "application/x-www-form-urlencoded"


def connect(job: dict[str, Any], protocol: str) -> ssl.SSLSocket:
    """Open a connection that speaks `protocol`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    plain = socket.create_connection((job["address"], 443), timeout=20)
    return context.wrap_socket(plain, server_hostname=job["domain"])


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def packed(fields: list[tuple[str, str]]) -> bytes:
    """Return header fields, none of them compressed."""
    out = b""
    for name, value in fields:
        out += b"\x10"
        for text in (name.encode(), value.encode()):
            size = len(text)
            out += bytes([size]) if size < 127 else bytes([127, (size - 127) & 0x7F])
            out += text
    return out


class Holder:
    """One connection full of requests that never end."""

    def __init__(self, job: dict[str, Any], end: float) -> None:
        self.job, self.end = job, end
        self.next = 1
        self.open: set[int] = set()
        self.requests = 0
        self.statuses: collections.Counter[str] = collections.Counter()

    def begin(self) -> bytes:
        """Return the bytes of one more request."""
        job = self.job
        fields = [(":method", "POST"), (":scheme", "https"), (":authority", job["domain"]),
                  (":path", job["path"]), ("content-type", KIND),
                  ("content-length", str(job["declared"]))]  # fmt: skip
        data = frame(HEADERS, END_HEADERS, self.next, packed(fields))
        if job["body"]:
            data += frame(DATA, 0, self.next, b"x" * job["body"])
        self.open.add(self.next)
        self.next += 2
        self.requests += 1
        return data

    def run(self) -> None:
        """Hold requests until the end, on a new connection whenever one is ended."""
        while time.monotonic() < self.end:
            try:
                if self.job["streams"]:
                    self.hold()
                else:
                    self.hold_one()
            except OSError:
                self.next = 1
                self.open.clear()
                time.sleep(0.2)

    def hold(self) -> None:
        """Hold requests on one connection."""
        with connect(self.job, "h2") as link:
            link.sendall(PREFACE + frame(SETTINGS, 0, 0))
            rest = b""
            while time.monotonic() < self.end:
                while len(self.open) < self.job["streams"]:
                    link.sendall(self.begin())
                link.settimeout(max(0.05, min(1.0, self.end - time.monotonic())))
                try:
                    chunk = link.recv(65536)
                except TimeoutError:
                    continue
                if not chunk:
                    raise OSError("hung up")
                rest = self.take(link, rest + chunk)
            self.let_go()

    def hold_one(self) -> None:
        """Hold one request of HTTP/1.1."""
        job = self.job
        head = HEAD.format(path=job["path"], domain=job["domain"], kind=KIND)
        head = head.replace("Length: 100", f"Length: {job['declared']}")
        with connect(job, "http/1.1") as link:
            self.requests += 1
            link.sendall(f"{head}\r\n".encode() + b"x" * job["body"])
            link.settimeout(max(0.05, self.end - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                if link.recv(65536):
                    self.statuses["answered"] += 1
                    # Once is enough, to see what one is told.
                    time.sleep(max(0.0, self.end - time.monotonic()))
            self.let_go()

    def let_go(self) -> None:
        """Tell that it is over, before anybody else has something of that."""
        Path(self.job["done"]).touch()

    def take(self, link: ssl.SSLSocket, data: bytes) -> bytes:
        """Take what the edge says; return what is incomplete."""
        while len(data) >= 9:
            size = int.from_bytes(data[:3], "big")
            if len(data) < 9 + size:
                break
            kind, flags = data[3], data[4]
            stream = int.from_bytes(data[5:9], "big")
            content, data = data[9 : 9 + size], data[9 + size :]
            if kind == SETTINGS and not flags & ACK:
                link.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                link.sendall(frame(PING, ACK, 0, content))
            elif kind == HEADERS:
                self.statuses["answered"] += 1
            if kind == RST or (kind in (DATA, HEADERS) and flags & END_STREAM):
                self.open.discard(stream)
        return data


def hold(job: dict[str, Any]) -> dict[str, Any]:
    """Hold requests for some seconds."""
    end = time.monotonic() + job["seconds"]
    holders = [Holder(job, end) for _ in range(job["connections"])]
    threads = [threading.Thread(target=each.run) for each in holders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "requests": sum(each.requests for each in holders),
        "answered": sum(each.statuses["answered"] for each in holders),
    }


def leave(job: dict[str, Any]) -> dict[str, Any]:
    """Hang up at every stage, again and again."""
    count = 0
    for _ in range(job["times"]):
        with contextlib.suppress(OSError):  # before TLS
            socket.create_connection((job["address"], 443), timeout=20).close()
        for path in job["paths"]:
            whole = HEAD.format(path=path, domain=job["domain"], kind=KIND)
            stages = (whole[:30], f"{whole}\r\n", f"{whole}\r\nuser=alice&pass", f"{whole}\r\n"
                      + "user=x&password=".ljust(100, "x"))  # fmt: skip
            for stage in stages:
                with contextlib.suppress(OSError), connect(job, "http/1.1") as link:
                    link.sendall(stage.encode())
                    # Now and then a moment later, when the request is somewhere inside.
                    time.sleep(0.003 * (count % 3))
                    count += 1
            with contextlib.suppress(OSError):
                holder = Holder({**job, "path": path, "body": 10, "declared": 100}, 0)
                with connect(job, "h2") as link:
                    link.sendall(PREFACE + frame(SETTINGS, 0, 0))
                    link.sendall(b"".join(holder.begin() for _ in range(20)))
                    time.sleep(0.01)
                    count += 20
    return {"requests": count}


if __name__ == "__main__":
    JOB = json.load(sys.stdin)
    print(json.dumps({"hold": hold, "leave": leave}[JOB["do"]](JOB)))
