#!/usr/bin/python3 -I
"""Asks the supervisor what somebody outside wants to know, and keeps it busy until the power goes.

    churn.py

It reads HOST, PORT and CONTROL-SOCKET from its standard input, one line. It lives as long as the
machine, since Python takes seconds to start under emulation, and obeys orders, one line of JSON
each, that come over its first connection to HOST:PORT:

    {"op": …, "args": …}                       hand a request on, once the supervisor is there, and
                                               send its answer back as it is
    {"prefix": …, "seed": …, "names": [NAME…]} let the workers loose

Workers share the NAMEs, which they may remove, and add sessions of their own called
`PREFIX-<worker>-<number>`, each with the kickoff prompt `kickoff of <its name>`. Every step is
one line of JSON on a connection of the worker's own, answered with an empty line, once before the
request goes to the supervisor and once after its answer has come:

    {"step": "asks", "op": "add", "name": …}
    {"step": "done", "op": "add", "name": …, "id": …}
    {"step": "refused", "op": "rm", "name": …, "code": …, "error": …}

Only the standard library: the file is copied into the guest as it is and runs there alone.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from typing import Any

WORKERS = 2
FEW, MANY = 1, 2
"""Sessions of one worker: it never removes the last ones, nor adds beyond that."""


class Control:
    """A connection to the supervisor, made once it listens."""

    def __init__(self, path: str) -> None:
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
            except OSError:
                self.socket.close()
                time.sleep(0.1)
            else:
                break
        self.lines = self.socket.makefile("r")

    def request(self, op: str, args: dict[str, Any]) -> str:
        """Have the supervisor carry out an operation; its answer, or nothing if it went away."""
        try:
            self.socket.sendall(json.dumps({"op": op, "args": args}).encode() + b"\n")
            return self.lines.readline()
        except OSError:
            return ""


class Worker:
    """One thread of requests, on connections of its own."""

    def __init__(
        self, outside: tuple[str, int], control: str, prefix: str, seed: str, names: list[str]
    ) -> None:
        self.prefix = prefix
        self.names = names
        self.random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.outside = connected(outside)
        self.outside_lines = self.outside.makefile("r")
        self.control = Control(control)

    def tell(self, **step: Any) -> None:
        """Tell a step, and return when it is known outside."""
        self.outside.sendall(json.dumps(step).encode() + b"\n")
        if not self.outside_lines.readline():
            sys.exit(0)  # nobody listens any more

    def step(self, op: str, name: str, **args: Any) -> None:
        """Carry out one operation, announced before and acknowledged after."""
        self.tell(step="asks", op=op, name=name)
        answer = json.loads(self.control.request(op, {"name": name, **args}))
        if not answer["ok"]:
            error = answer["error"]
            self.tell(step="refused", op=op, name=name, code=error["code"], error=error["message"])
            return
        session = answer["result"]["session"] or {}
        self.tell(step="done", op=op, name=name, id=session.get("id"))

    def run(self) -> None:
        """Go on for ever."""
        number = 0
        while True:
            room = len(self.names) < MANY
            if len(self.names) > FEW and (not room or self.random.random() < 0.5):
                name = self.names.pop(self.random.randrange(len(self.names)))
                self.step("rm", name)
            else:
                name = f"{self.prefix}-{number}"
                number += 1
                # Whether the caller waits for the process makes no difference to the promise.
                wait = self.random.random() < 0.5
                self.step("add", name, agent="claude", prompt=f"kickoff of {name}", wait=wait)
                self.names.append(name)
            time.sleep(self.random.random() * 0.2)


def connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection on which small messages do not wait for each other."""
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main() -> None:
    """Obey until nobody gives orders any more."""
    host, port, control = sys.stdin.readline().split()
    outside = (host, int(port))
    orders = connected(outside)
    orders.sendall(b'{"step": "ready"}\n')
    for line in orders.makefile("r"):
        order = json.loads(line)
        if "op" in order:
            answer = ""
            while not answer:  # a supervisor that has just gone is on its way back
                answer = Control(control).request(order["op"], order["args"])
            orders.sendall(answer.encode())
            continue
        for number in range(WORKERS):
            worker = Worker(
                outside, control, f"{order['prefix']}-{number}", f"{order['seed']}-{number}",
                order["names"][number::WORKERS],
            )  # fmt: skip
            threading.Thread(target=worker.run, daemon=True).start()


if __name__ == "__main__":
    main()
