#!/usr/bin/python3 -I
"""Asks the supervisor what somebody outside wants to know, and keeps it busy until the power goes.

    churn.py

It reads HOST, PORT and CONTROL-SOCKET from its standard input, one line. It lives as long as the
machine, since Python takes seconds to start under emulation, and obeys orders, one line of JSON
each, that come over its first connection to HOST:PORT:

    {"op": …, "args": …}                       hand a request on, once the supervisor is there, and
                                               send its answer back as it is
    {"receipts": true}                         send every kickoff prompt that any agent has stored,
                                               as often as it stands there, in the same form:
                                               {"receipts": [[AGENT, TEXT]…]}
    {"prefix": …, "seed": …, "names": [NAME…], "first": N}
                                               let the workers loose

Workers share the NAMEs, which they may remove, and add sessions of their own called
`PREFIX-<worker>-<number>`, each with the kickoff prompt `kickoff of <its name>`, of one agent
after the other from AGENTS[N] on. Now and then they look at the list, as a person does. Every step
is one line of JSON on a connection of the worker's own, answered with an empty line, once before
the request goes to the supervisor and once after its answer has come:

    {"step": "asks", "op": "add", "name": …, "agent": …}
    {"step": "done", "op": "add", "name": …, "id": …}
    {"step": "refused", "op": "rm", "name": …, "code": …, "error": …}

What the supervisor tells those who subscribe goes outside as it is, on a connection that begins
with {"step": "watch"}: it costs less than to ask again and again.

It keeps opencode's database, too, for `brief_agents.py`: see `Database`.

Only the standard library: the file is copied into the guest as it is and runs there alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import socket
import sqlite3
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

AGENTS = ("claude", "codex", "opencode", "pi")
KICKOFF = "kickoff of "
"""How each kickoff prompt begins; the name of its session follows."""
STORE = "/opt/brief-store"
"""A named pipe on which agents say what is to be written into opencode's database."""
WORKERS = 2
FEW, MANY = 1, 2
"""Sessions of one worker: it never removes the last ones, nor adds beyond that."""
LOOKS = 0.3
"""How many of its steps a worker follows by a look at the list."""


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


class Database:
    """The database of opencode, with what of its tables agent-box looks at.

    It is used as by the real one: with a log of what was written (WAL) that is left to the kernel,
    and open for as long as somebody may be at work. Lines of the pipe are its orders:

        say DIRECTORY TEXT    begin a conversation with these words
        resume ID             tell outside if there is none of this id
    """

    def __init__(self, home: Path, outside: socket.socket) -> None:
        self.path = home / ".local/share/opencode/opencode.db"
        self.outside = outside
        # Two that make it at once would be in each other's way: SQLite waits for nobody then.
        self.opening = threading.Lock()

    def open(self) -> sqlite3.Connection:
        """Return a connection, set up as opencode sets it up."""
        database = sqlite3.connect(self.path, timeout=5)
        with self.opening:
            database.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                "CREATE TABLE IF NOT EXISTS session (id TEXT, directory TEXT, parent_id TEXT,"
                " time_created INTEGER);"
                "CREATE TABLE IF NOT EXISTS message (id TEXT, session_id TEXT, data TEXT,"
                " time_created INTEGER);"
                "CREATE TABLE IF NOT EXISTS part"
                " (message_id TEXT, data TEXT, time_created INTEGER);"
            )
        return database

    def serve(self) -> None:
        """Obey for ever."""
        # For writing, too: that there is nobody at the other end is no end.
        with open(os.open(STORE, os.O_RDWR)) as pipe:  # noqa: PTH123
            database = None
            for line in pipe:
                # Not earlier: whoever comes first sees to what a power cut has left.
                database = database or self.open()
                word, what, *text = line.rstrip("\n").split(" ", 2)
                if word == "say":
                    self.say(database, what, *text)
                elif not database.execute("SELECT 1 FROM session WHERE id = ?", (what,)).fetchone():
                    error = f"opencode was to resume {what}, which it does not know"
                    step = {"step": "refused", "op": "resume", "name": what, "error": error}
                    self.outside.sendall(json.dumps({**step, "code": "not_found"}).encode() + b"\n")

    def say(self, database: sqlite3.Connection, directory: str, text: str) -> None:
        """Begin a conversation: each row of its own, as opencode writes them."""
        session, message, now = f"ses_{uuid.uuid4().hex}", uuid.uuid4().hex, int(time.time() * 1000)
        rows: list[tuple[Any, ...]] = [
            ("session (id, directory, time_created)", session, directory, now),
            (
                "message (id, session_id, data, time_created)",
                *(message, session, json.dumps({"role": "user"}), now),
            ),
            (
                "part (message_id, data, time_created)",
                *(message, json.dumps({"type": "text", "text": text}), now),
            ),
        ]
        for table, *values in rows:
            places = ", ".join("?" * len(values))
            database.execute(f"INSERT INTO {table} VALUES ({places})", values)  # noqa: S608
            database.commit()

    def texts(self) -> list[str]:
        """Return all that was ever said."""
        if not self.path.exists():
            return []
        rows = self.open().execute("SELECT json_extract(data, '$.text') FROM part").fetchall()
        return [str(text) for (text,) in rows]


def receipts(home: Path, database: Database) -> list[tuple[str, str]]:
    """Return agent and text of every kickoff prompt that an agent of this user has stored."""
    found = [("opencode", text) for text in database.texts()]
    for agent, pattern in (
        ("claude", ".claude/projects/*/*.jsonl"),
        ("codex", ".codex/sessions/*/*/*/rollout-*.jsonl"),
        ("pi", ".pi/agent/sessions/*/*.jsonl"),
    ):
        for path in home.glob(pattern):
            for line in path.read_bytes().splitlines():
                try:
                    record = json.loads(line)
                    inner = record["payload"] if agent == "codex" else record["message"]
                    text = inner["message"] if agent == "codex" else inner["content"]
                    found.append((agent, text[0]["text"] if agent == "pi" else text))
                except (ValueError, KeyError, TypeError):
                    continue  # what describes a conversation, or what a power cut has left
    return [(agent, text) for agent, text in found if KICKOFF in text]


class Worker:
    """One thread of requests, on connections of its own."""

    def __init__(
        self, outside: tuple[str, int], control: str, prefix: str, seed: str, names: list[str],
        agents: list[str],
    ) -> None:  # fmt: skip
        self.prefix = prefix
        self.names = names
        self.agents = agents
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
        self.tell(step="asks", op=op, name=name, agent=args.get("agent"))
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
                agent = self.agents[number % len(self.agents)]
                number += 1
                # Whether the caller waits for the process makes no difference to the promise.
                wait = self.random.random() < 0.5
                self.step(
                    "add", name, agent=agent, prompt=f"{KICKOFF}{name}", resumePrompt="", wait=wait
                )
                self.names.append(name)
            if self.random.random() < LOOKS:
                # Whoever looks is told which prompts have arrived, which has to stay true.
                self.control.request("ls", {})
            time.sleep(self.random.random() * 0.2)


def watch(outside: tuple[str, int], path: str) -> None:
    """Hand on what subscribers are told, for as long as anybody listens."""
    teller = connected(outside)
    teller.sendall(b'{"step": "watch"}\n')
    while True:
        control = Control(path)
        with contextlib.suppress(OSError):
            control.socket.sendall(b'{"op": "subscribe", "args": {}}\n')
        with contextlib.suppress(OSError):
            for line in control.lines:
                try:
                    teller.sendall(line.encode())
                except OSError:
                    return


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
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    database = Database(home, orders)
    threading.Thread(target=database.serve, daemon=True).start()
    threading.Thread(target=watch, args=(outside, control), daemon=True).start()
    for line in filter(str.strip, orders.makefile("r")):
        order = json.loads(line)
        if "op" in order:
            answer = ""
            while not answer:  # a supervisor that has just gone is on its way back
                answer = Control(control).request(order["op"], order["args"])
            orders.sendall(answer.encode())
            continue
        if "receipts" in order:
            found = {"receipts": receipts(home, database)}
            orders.sendall(json.dumps(found).encode() + b"\n")
            continue
        for number in range(WORKERS):
            # One worker begins where the other one's round is half over.
            first = (order["first"] + number * len(AGENTS) // WORKERS) % len(AGENTS)
            worker = Worker(
                outside, control, f"{order['prefix']}-{number}", f"{order['seed']}-{number}",
                order["names"][number::WORKERS], [*AGENTS[first:], *AGENTS[:first]],
            )  # fmt: skip
            threading.Thread(target=worker.run, daemon=True).start()


if __name__ == "__main__":
    main()
