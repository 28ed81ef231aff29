#!/usr/bin/python3 -I
"""A steerable agent: stands where a real CLI would, and does what a scenario tells it.

It behaves as the real CLIs do where the box depends on it: it takes ``--session-id ID``,
``--resume ID`` and ``-- PROMPT`` (or what codex, opencode and pi take instead), writes its
conversation where the real one does at the first prompt, on disk before it goes on, refuses
to resume a conversation that it does not know, and reads prompts typed or pasted into its
terminal. Everything that it does is recorded below ``~/.stub``:

``launches.jsonl``
    one record per start: argv, environment, pid, working directory, conversation id
``prompts.jsonl``
    one record per prompt received, each on disk (fsync) before the stub goes on
``on-start``
    commands that every start obeys first, one a line
``command``, ``command.ID``
    a command for whichever stub sees it first, or for the one of conversation ID

A line typed into the terminal is a prompt, unless it starts with ``!``: then it is a command.
Commands: ``exit N``, ``kill N`` (a signal to itself), ``eat MIB`` (keeps the memory),
``fork N`` (children that sleep), ``print TEXT``, ``hang`` (deaf until killed), ``dialog TEXT``
(a question that blocks until a line is typed), ``run COMMAND`` (through sh).

Only the standard library: the file is copied into the guest as it is and runs there alone.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
import tty
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

HOME = Path(os.environ.get("HOME", "/"))
STUB = HOME / ".stub"
DATABASE = HOME / ".local/share/opencode/opencode.db"
POLL = 0.2  # seconds between two looks at the command files
PASTE_START, PASTE_END = b"\x1b[200~", b"\x1b[201~"
# options of the real CLIs that take a value and mean nothing to the stub
TAKES_VALUE = {
    "--settings",
    "--channels",
    "--model",
    "--remote-control",
    "-c",
    "--config",
    "-i",
    "--extension",
}


def append(path: Path, record: dict[str, Any]) -> None:
    """Append one JSON line and bring it to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, json.dumps(record).encode() + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_directory(path.parent)


def publish(path: Path, text: str) -> None:
    """Create a file so that after a power cut it is either absent or complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Bring the directory's entries to the disk, its parents' too (they may be new)."""
    for directory in (path, *path.parents):
        if directory == HOME.parent:
            break
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class Arguments:
    """What the command line of a real CLI asks for."""

    def __init__(self, argv: list[str]) -> None:
        self.agent = Path(argv[0]).name
        self.session_id: str | None = None
        self.resume: str | None = None
        self.prompt: str | None = None
        self.version = False
        words = argv[1:]
        if words[:1] == ["resume"]:  # codex: resume … -- ID [PROMPT]
            rest = words[words.index("--") + 1 :] if "--" in words else words[-1:]
            self.resume, self.prompt = rest[0] if rest else None, " ".join(rest[1:]) or None
            return
        while words:
            word = words.pop(0)
            name, _, value = word.partition("=")
            if word == "--":
                self.prompt = " ".join(words) or None
                break
            if name in ("--session-id", "--resume", "--session", "--prompt"):
                value = value or (words.pop(0) if words else "")
                if name == "--session-id":
                    self.session_id = value
                elif name == "--prompt":
                    self.prompt = value
                else:
                    self.resume = value
            elif word in ("--version", "-v", "-V"):
                self.version = True
            elif word in TAKES_VALUE and words and not words[0].startswith("-"):
                words.pop(0)
            elif self.agent == "pi" and not word.startswith("-"):
                self.prompt = word.lstrip(" ")


class Conversation:
    """The conversation file that the real CLI of this name would keep."""

    def __init__(self, agent: str, ident: str) -> None:
        self.agent, self.id = agent, ident

    def path(self) -> Path | None:
        """Where the conversation lies, or None while it has not begun."""
        found: Iterable[Path]
        if self.agent == "codex":
            found = (HOME / ".codex/sessions").glob(f"**/rollout-*-{self.id}.jsonl")
        elif self.agent == "pi":
            found = (HOME / ".pi/agent/sessions").glob(f"*/*_{self.id}.jsonl")
        elif self.agent == "opencode":
            found = [DATABASE] if self._rows() else []
        else:
            found = (HOME / ".claude/projects").glob(f"*/{self.id}.jsonl")
        return next(iter(found), None)

    def add(self, prompt: str) -> None:
        """Record a prompt; the first one makes the file appear, whole or not at all."""
        now = dt.datetime.now(dt.UTC)
        if self.agent == "opencode":
            self._insert(prompt, int(now.timestamp() * 1000))
            return
        existing = self.path()
        line: dict[str, Any]
        if self.agent == "codex":
            meta = {"id": self.id, "timestamp": now.isoformat(), "cwd": str(Path.cwd())}
            head = {"timestamp": now.isoformat(), "type": "session_meta", "payload": meta}
            line = {
                "timestamp": now.isoformat(),
                "type": "event_msg",
                "payload": {"type": "user_message", "message": prompt},
            }
            name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{self.id}.jsonl"
            target = HOME / f".codex/sessions/{now:%Y/%m/%d}" / name
            first = json.dumps(head) + "\n"
        elif self.agent == "pi":
            text = [{"type": "text", "text": prompt}]
            line = {"type": "message", "message": {"role": "user", "content": text}}
            folder = "--" + re.sub(r"[/\\:]", "-", str(Path.cwd()).removeprefix("/")) + "--"
            name = f"{now:%Y-%m-%dT%H-%M-%S}_{self.id}.jsonl"
            target = HOME / ".pi/agent/sessions" / folder / name
            first = json.dumps({"type": "session", "id": self.id, "cwd": str(Path.cwd())}) + "\n"
        else:
            line = {
                "type": "user",
                "sessionId": self.id,
                "cwd": str(Path.cwd()),
                "timestamp": now.isoformat(),
                "message": {"role": "user", "content": prompt},
            }
            folder = re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd()))
            target, first = HOME / ".claude/projects" / folder / f"{self.id}.jsonl", ""
        if existing is None:
            publish(target, first + json.dumps(line) + "\n")
        else:
            append(existing, line)

    def _database(self) -> Any:
        """Open the database of opencode, with what of its tables the box looks at."""
        import sqlite3

        DATABASE.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(DATABASE, timeout=10)
        database.execute("PRAGMA synchronous = EXTRA")
        database.executescript(
            "CREATE TABLE IF NOT EXISTS session (id TEXT, directory TEXT, parent_id TEXT,"
            " time_created INTEGER);"
            "CREATE TABLE IF NOT EXISTS message (id TEXT, session_id TEXT, data TEXT,"
            " time_created INTEGER);"
            "CREATE TABLE IF NOT EXISTS part (message_id TEXT, data TEXT, time_created INTEGER);"
        )
        return database

    def _rows(self) -> list[Any]:
        if not DATABASE.exists():
            return []
        query = "SELECT 1 FROM session WHERE id = ?"
        return list(self._database().execute(query, (self.id,)).fetchall())

    def _insert(self, prompt: str, now: int) -> None:
        message, text = uuid.uuid4().hex, json.dumps({"type": "text", "text": prompt})
        known, database = self._rows(), self._database()
        with database:
            if not known:
                row = (self.id, str(Path.cwd()), now)
                database.execute("INSERT INTO session VALUES (?, ?, NULL, ?)", row)
            role = json.dumps({"role": "user"})
            database.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?)", (message, self.id, role, now)
            )
            database.execute("INSERT INTO part VALUES (?, ?, ?)", (message, text, now))
        sync_directory(DATABASE.parent)


class Stub:
    """One running stub agent."""

    def __init__(self, argv: list[str]) -> None:
        self.arguments = Arguments(argv)
        fresh = f"ses_{uuid.uuid4().hex}" if self.arguments.agent == "opencode" else uuid.uuid4()
        ident = self.arguments.resume or self.arguments.session_id or str(fresh)
        self.conversation = Conversation(self.arguments.agent, ident)
        self.eaten: list[bytearray] = []
        self.children: list[int] = []
        self.terminal: list[Any] | None = None

    def say(self, text: str) -> None:
        """Print a line; the terminal is raw, so it needs its own carriage return."""
        sys.stdout.write(text.replace("\n", "\r\n") + "\r\n")
        sys.stdout.flush()

    def receive(self, prompt: str, via: str) -> None:
        """Take a prompt: conversation first (the evidence that the box looks for), then our log."""
        self.conversation.add(prompt)
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        append(
            STUB / "prompts.jsonl",
            {
                "at": time.time(),
                "pid": os.getpid(),
                "id": self.conversation.id,
                "agent": self.arguments.agent,
                "via": via,
                "resumed": self.arguments.resume is not None,
                "prompt": prompt,
                "sha256": digest,
            },
        )
        self.say(f"stub: prompt of {len(prompt)} characters: {prompt[:60]}")

    def obey(self, command: str) -> None:
        """Carry out one command of a scenario."""
        word, _, rest = command.strip().partition(" ")
        if word == "exit":
            self.leave(int(rest or 0))
        elif word == "kill":
            self.restore()
            os.kill(os.getpid(), int(rest or 9))
        elif word == "eat":
            self.eat(int(rest))
        elif word == "fork":
            self.fork(int(rest))
        elif word == "print":
            self.say(rest)
        elif word == "dialog":
            self.say(rest)
            self.say("stub: answer with a line")
            self.read_line()
        elif word == "hang":
            for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(signum, signal.SIG_IGN)
            while True:
                time.sleep(3600)
        elif word == "run":
            # Each line as it comes: an agent that works shows that it does.
            with subprocess.Popen(  # noqa: S602 - a scenario's own command line
                rest, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process:
                for line in process.stdout or ():
                    self.say(line.rstrip("\n"))
            self.say(f"stub: run ended with {process.returncode}")
        elif word:
            self.say(f"stub: unknown command: {command}")

    def eat(self, mebibytes: int) -> None:
        """Allocate and touch memory, one MiB at a time, so that a limit hits in the middle."""
        for _ in range(mebibytes):
            block = bytearray(1 << 20)
            block[::4096] = b"x" * len(block[::4096])
            self.eaten.append(block)
        self.say(f"stub: holding {len(self.eaten)} MiB")

    def fork(self, count: int) -> None:
        """Fork children that sleep; say how far it went when the kernel refuses."""
        for made in range(count):
            try:
                pid = os.fork()
            except OSError as error:
                self.say(f"stub: fork refused after {made}: {error.strerror}")
                return
            if pid == 0:
                time.sleep(3600)
                os._exit(0)
            self.children.append(pid)
        self.say(f"stub: {count} children")

    def leave(self, status: int) -> None:
        """End with a status, as the CLI does when somebody quits it."""
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        self.restore()
        sys.exit(status)

    def restore(self) -> None:
        """Give the terminal back as it was."""
        if self.terminal is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self.terminal)
            sys.stdout.write("\x1b[?2004l")
            sys.stdout.flush()

    def waiting_command(self) -> str | None:
        """Claim a command file; the rename makes sure that one stub only gets it."""
        for name in (f"command.{self.conversation.id}", "command"):
            claimed = STUB / f".claimed.{os.getpid()}"
            try:
                (STUB / name).rename(claimed)
            except OSError:
                continue
            text = claimed.read_text()
            claimed.unlink()
            return text
        return None

    def read_line(self) -> str | None:
        """Return the next submitted line or paste; obey command files meanwhile; None at EOF.

        The terminal is raw: a cooked one cuts lines at 4096 bytes, and prompts are longer.
        """
        buffer, pasting = b"", False
        while True:
            command = self.waiting_command()
            if command is not None:
                for line in command.splitlines():
                    self.obey(line)
            if not select.select([sys.stdin], [], [], POLL)[0]:
                continue
            data = os.read(sys.stdin.fileno(), 65536)
            if not data:
                return None
            buffer += data
            if PASTE_START in buffer:
                pasting = True
                buffer = buffer.replace(PASTE_START, b"", 1)
            if pasting:
                if PASTE_END not in buffer:
                    continue
                pasting = False
                buffer = buffer.replace(PASTE_END, b"", 1)
            # bracketed pastes carry \n or \r inside; Enter is a \r at the very end
            if buffer.endswith((b"\r", b"\n")):
                text = buffer[:-1].decode(errors="replace").replace("\r", "\n")
                self.say(text[:200])
                return text

    def main(self) -> None:
        """Run until told to end."""
        arguments = self.arguments
        if arguments.version:
            print("0.0.0 (stub agent)")
            return
        append(
            STUB / "launches.jsonl",
            {
                "at": time.time(),
                "pid": os.getpid(),
                "argv": sys.argv,
                "env": dict(os.environ),
                "cwd": str(Path.cwd()),
                "id": self.conversation.id,
                "resumed": arguments.resume is not None,
            },
        )
        if arguments.resume and self.conversation.path() is None:
            print(f"No conversation found with session ID: {arguments.resume}")
            sys.exit(1)
        taken = arguments.session_id and arguments.agent != "pi"  # which takes it up again
        if taken and self.conversation.path() is not None:
            message = f"Error: Session ID {arguments.session_id} is already in use."
            print(message)
            sys.exit(1)
        if sys.stdin.isatty():
            self.terminal = termios.tcgetattr(sys.stdin)
            tty.setraw(sys.stdin)
            sys.stdout.write("\x1b[?2004h")
        self.say(f"stub {arguments.agent}, conversation {self.conversation.id}")
        on_start = STUB / "on-start"
        if on_start.exists():
            for line in on_start.read_text().splitlines():
                self.obey(line)
        if arguments.prompt is not None:
            self.receive(arguments.prompt, "argv")
        self.say("stub: ready")
        while (typed := self.read_line()) is not None:
            if typed.startswith("!"):
                self.obey(typed[1:])
            elif typed.strip():
                self.receive(typed, "terminal")
        self.leave(0)


if __name__ == "__main__":
    Stub(sys.argv).main()
