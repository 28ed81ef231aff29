#!/usr/bin/python3 -I
"""Adds and removes sessions until the power goes, and tells somebody outside each step.

    churn.py HOST PORT CONTROL-SOCKET PREFIX SEED [NAME…]

Workers share the NAMEs, which they may remove, and add sessions of their own called
`PREFIX-<worker>-<number>`, each with the kickoff prompt `kickoff of <its name>`. Every step is
one line of JSON to HOST:PORT, answered with an empty line, once before the request goes to the
supervisor and once after its answer has come:

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


class Worker:
    """One thread of requests, on connections of its own."""

    def __init__(
        self, outside: tuple[str, int], control: str, prefix: str, seed: str, names: list[str]
    ) -> None:
        self.prefix = prefix
        self.names = names
        self.random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.outside = socket.create_connection(outside)
        self.outside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.outside_lines = self.outside.makefile("r")
        self.control = socket.socket(socket.AF_UNIX)
        self.control.connect(control)
        self.control_lines = self.control.makefile("r")

    def tell(self, **step: Any) -> None:
        """Tell a step, and return when it is known outside."""
        self.outside.sendall(json.dumps(step).encode() + b"\n")
        if not self.outside_lines.readline():
            sys.exit(0)  # nobody listens any more

    def request(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """Have the supervisor carry out an operation."""
        self.control.sendall(json.dumps({"op": op, "args": args}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self.control_lines.readline())
        return answer

    def step(self, op: str, name: str, **args: Any) -> None:
        """Carry out one operation, announced before and acknowledged after."""
        self.tell(step="asks", op=op, name=name)
        answer = self.request(op, {"name": name, **args})
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


def main() -> None:
    """Run the workers until the process is killed."""
    host, port, control, prefix, seed, *names = sys.argv[1:]
    threads = []
    for number in range(WORKERS):
        worker = Worker(
            (host, int(port)), control, f"{prefix}-{number}", f"{seed}-{number}",
            names[number::WORKERS],
        )  # fmt: skip
        threads.append(threading.Thread(target=worker.run))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
