"""Plays browsers inside a guest: carries out steps from standard input, tells what came of each.

Runs on the guest's own Python, so it uses the standard library alone. Requests are written byte by
byte, because libraries would clean up the very addresses that scenarios try.

    {"do": "ask", "method", "target", "headers": [[name, value]], "body", "source",
     "seconds", "bodies"}                              -> status, headers, body, and headers
                                                       of what came before the answer (early)
    {"do": "open", "as", "target", "headers"}          a WebSocket to a terminal -> status
    {"do": "type", "as", "text"}
    {"do": "read", "as", "until", "seconds"}           -> text, closed (without "until": to the end)
    {"do": "close", "as"}
    {"do": "run", "command"}                           -> rc, output, seconds
    {"do": "fetch", "version": "2" or "3", "asks", "source", "seconds"}
                                                       -> answers: status, version and headers of
                                                       each, all by one curl, in order
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import time
import zlib
from typing import Any

PATIENCE = 20.0
LARGE = 50_000
"""Characters from which results go packed: what a console of QEMU's has no room for is lost."""
HEAD_ONLY = "text/event-stream"


class Browsers:
    """Open connections, by name."""

    def __init__(self, domain: str, address: str, port: int) -> None:
        self.domain, self.address, self.port = domain, address, port
        self.open: dict[str, socket.socket] = {}
        self.left: dict[str, bytes] = {}
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without reading any authorities
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def connect(self, source: str = "", seconds: float = PATIENCE) -> socket.socket:
        """Open a connection, from an address; the certificate does not matter here."""
        plain = socket.create_connection(
            (self.address, self.port), timeout=seconds, source_address=(source, 0)
        )
        # As browsers do; otherwise a first request may wait for the peer's delayed acknowledgement.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(plain, server_hostname=self.domain)

    def request(
        self, step: dict[str, Any], more: list[list[str]], connection: socket.socket | None = None
    ) -> socket.socket:
        """Send one request, on a connection of its own unless there is one."""
        body = step.get("body", "").encode()
        given = [list(pair) for pair in step.get("headers", [])]
        names = {name.lower() for name, _ in given}
        head = [] if "host" in names else [["Host", self.domain]]
        if body and "content-length" not in names:
            head.append(["Content-Length", str(len(body))])
        lines = [f"{step.get('method', 'GET')} {step['target']} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in [*head, *more, *given]]
        if connection is None:
            connection = self.connect(step.get("source", ""), step.get("seconds", PATIENCE))
        # What is too large is refused, and the connection ended, before all of it was sent.
        with contextlib.suppress(BrokenPipeError):
            connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return connection

    def ask(self, step: dict[str, Any]) -> dict[str, Any]:
        """Send a request and read the answer; of a stream only its head."""
        with self.request(step, [["Connection", "close"]]) as connection:
            head, rest = read_head(connection)
            status, headers = parse_head(head)
            early = []
            while 100 <= status < 200 and status != 101:
                early += headers
                head, rest = read_head(connection, rest)
                status, headers = parse_head(head)
            if HEAD_ONLY not in dict(headers).get("content-type", "") and status != 101:
                while chunk := _receive(connection):
                    rest += chunk
        body = rest.decode("utf-8", "replace") if step.get("bodies", True) else ""
        return {"status": status, "headers": headers, "body": body, "early": early}

    def ws(self, step: dict[str, Any]) -> dict[str, Any]:
        """Open the WebSocket of a terminal."""
        key = base64.b64encode(os.urandom(16)).decode()
        more = [["Connection", "Upgrade"], ["Upgrade", "websocket"],
                ["Sec-WebSocket-Version", "13"], ["Sec-WebSocket-Key", key],
                ["Sec-WebSocket-Protocol", "tty"]]  # fmt: skip
        connection = self.request(step, more)
        head, rest = read_head(connection)
        status, headers = parse_head(head)
        if status == 101:
            hello = {"AuthToken": "", "columns": 100, "rows": 30}
            connection.sendall(_frame(json.dumps(hello), text=True))
            self.open[step["as"]], self.left[step["as"]] = connection, rest
        else:
            connection.close()
        return {"status": status, "headers": headers}

    def type(self, step: dict[str, Any]) -> dict[str, Any]:
        """Type into a terminal."""
        self.open[step["as"]].sendall(_frame("0" + step["text"]))
        return {}

    def read(self, step: dict[str, Any]) -> dict[str, Any]:
        """Read until a text was shown, the connection ended, or time is over."""
        connection, data, closed = self.open[step["as"]], self.left[step["as"]], False
        end = time.monotonic() + step.get("seconds", PATIENCE)
        until = step.get("until")
        while not closed and time.monotonic() < end:
            if until is not None and until in _shown(data):
                break
            connection.settimeout(max(end - time.monotonic(), 0.01))
            try:
                chunk = connection.recv(65536)
            except TimeoutError:
                break
            except OSError:
                chunk = b""
            closed, data = not chunk, data + chunk
        self.left[step["as"]] = b""
        return {"text": _shown(data), "closed": closed}

    def close(self, step: dict[str, Any]) -> dict[str, Any]:
        """Hang up."""
        self.open.pop(step["as"]).close()
        return {}

    def run(self, step: dict[str, Any]) -> dict[str, Any]:
        """Run a command in between."""
        began = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", step["command"]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        output = done.stdout.decode("utf-8", "replace")
        return {"rc": done.returncode, "output": output, "seconds": time.monotonic() - began}

    def fetch(self, step: dict[str, Any]) -> dict[str, Any]:
        """Have curl send requests over a newer HTTP, on as few connections as it can."""
        told = r'{"status":"%{http_code}","version":"%{http_version}","headers":%{header_json}}\n'
        options = [
            *("silent", "insecure", "path-as-is", "globoff", "output = /dev/null"),
            {"2": "http2", "3": "http3-only"}[step["version"]],
            f"resolve = {self.domain}:{self.port}:{self.address}",
            f"max-time = {step.get('seconds', PATIENCE)}",
            f"write-out = {_quoted(told)}",
        ]
        lines: list[str] = []
        for ask in step["asks"]:
            method = ask.get("method", "GET")
            lines += ["next", *options, f"url = https://{self.domain}:{self.port}/"]
            lines += [f"request-target = {_quoted(ask['target'])}"]
            source = ask.get("source") or step.get("source")
            lines += [f"interface = {source}"] if source else []
            lines += ["head"] if method == "HEAD" else [f"request = {_quoted(method)}"]
            lines += [f"header = {_quoted(f'{name}: {value}')}" for name, value in ask["headers"]]
            lines += [f"data-raw = {_quoted(ask['body'])}"] if ask.get("body") else []
        done = subprocess.run(
            ["curl", "--disable", "--config", "-"],
            input="\n".join(lines[1:]).encode(), capture_output=True, check=False,
        )  # fmt: skip
        answers = [
            {
                "status": int(found["status"]),
                "version": found["version"],
                "headers": [
                    [name, each] for name in found["headers"] for each in found["headers"][name]
                ],
            }
            for found in _documents(done.stdout.decode())
        ]
        return {"answers": answers, "rc": done.returncode}

    def carry_out(self, step: dict[str, Any]) -> dict[str, Any]:
        """Carry out one step; an accident is a result, too."""
        try:
            name = {"open": "ws"}.get(step["do"], step["do"])
            result: dict[str, Any] = getattr(self, name)(step)
        except (OSError, ValueError, LookupError) as error:
            return {"status": 0, "error": f"{type(error).__name__}: {error}", "headers": []}
        return result


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', r"\"")
    return f'"{escaped}"'


def _documents(text: str) -> list[Any]:
    """Return the JSON documents that stand one after the other."""
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def read_head(connection: socket.socket, data: bytes = b"") -> tuple[bytes, bytes]:
    """Read the head of an answer that begins with `data`; return it, and what came with it."""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(4096)
        if not chunk:
            break
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def parse_head(head: bytes) -> tuple[int, list[tuple[str, str]]]:
    """Return the status and the headers, their names in lower case."""
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    return int(first.split()[1]), [(name.lower(), value.strip()) for name, _, value in pairs]


def _frame(content: str, *, text: bool = False) -> bytes:
    data, mask = content.encode(), os.urandom(4)
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
    return bytes([0x81 if text else 0x82]) + length + mask + masked


def _shown(data: bytes) -> str:
    """Return what a terminal got to show, without what steers it."""
    text = data.decode("utf-8", "replace")
    return re.sub(r"\x1b(\[[0-9;?>=]*[A-Za-z]|\][^\x1b\x07]*(\x07|\x1b\\)|[()].|[=>78])", "", text)


def run(job: dict[str, Any], kind: type[Browsers]) -> list[dict[str, Any]]:
    """Carry out a list of steps."""
    browsers = kind(job["domain"], job["address"], job["port"])
    return [browsers.carry_out(step) for step in job["steps"]]


def deliver(results: list[dict[str, Any]]) -> None:
    """Write results where `Edge.steps` reads them."""
    text = json.dumps(results)
    if len(text) > LARGE:
        text = base64.b64encode(zlib.compress(text.encode())).decode()
    sys.stdout.write(text)


if __name__ == "__main__":
    deliver(run(json.load(sys.stdin), Browsers))
