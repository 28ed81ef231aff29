"""`agent-box-sites`: turns what users declare into the edge's configuration, as root.

Users hand their lists over, each on a socket of their own: nothing here ever opens a path that a
user has a say in. Each entry is judged by itself, so that a bad one harms nobody, and each user
has a share of what this may cost, so that nobody waits for another. A new file takes the place of
the former only after the edge has loaded it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pwd
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box import config
from agent_box.activation import activated
from agent_box.errors import AgentBoxError, UsageError
from agent_box.sites import caddyfile, handover, judge, model, ports
from agent_box.sites.pace import Pace
from agent_box.sites.publish import publish, write

if TYPE_CHECKING:
    import socket

    from agent_box.sites.judge import Declaration, Verdict

STATE = Path("/var/lib/agent-box-sites")
"""The edge's file and each user's last good list, root's alone."""

RESULTS = Path("/run/agent-box-sites")
"""What became of each user's entries: `<user>.json`."""

IDLE = 60.0
"""Seconds without a list after which it ends; systemd keeps the sockets."""

PATIENCE = 5.0
"""Seconds for a list to arrive."""

MOST_WAITING = 1000
"""Connections of a user that are looked at in one go."""

FREE, PAUSE = 10, 1.0
"""Lists that a user can hand over one after the other; then one in so many seconds."""

SOON = 5.0
"""Seconds that a list may wait without a word about it."""

_LONGEST_PROBLEM = 200


def main() -> None:
    """Serve until nobody has handed anything over for a while."""
    try:
        box = config.load()
        if box.web is None:
            return
        sockets = activated()
        asyncio.run(Helper(box, box.web).run(sockets))
    except AgentBoxError as error:
        print(f"agent-box-sites: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


class Helper:
    """The lists in force, and those that are on their way."""

    def __init__(self, box: config.Box, web: config.Web) -> None:
        self._web = web
        self.pace = Pace(RESULTS / "pace.json")
        self.kept: dict[str, Declaration] = {}
        for name in sorted(web.users):
            with contextlib.suppress(KeyError):
                gid = pwd.getpwnam(name).pw_gid
                self.kept[name] = _kept(judge.Declaration(box.user(name), gid))
        self.coming: dict[str, Declaration] = {}
        self._documents = {name: _document(name) for name in self.kept}
        self._told: set[str] = set()
        self._news = asyncio.Event()
        self._busy = 0
        self._last = time.monotonic()

    async def run(self, sockets: dict[str, socket.socket]) -> None:
        """Take lists and bring them to the edge until nothing happens any more."""
        tasks = [
            asyncio.create_task(self._listen(name, sock))
            for name, sock in sockets.items()
            if name in self.kept
        ]
        # The edge's file may be one of an earlier version, the sockets went with a reboot.
        if (STATE / "sites.caddy").exists():
            await asyncio.to_thread(self.take_up, {})
        try:
            while True:
                wait = self.next_round()
                if wait is None and not self._busy and time.monotonic() - self._last >= IDLE:
                    return
                if wait == 0.0:
                    await asyncio.to_thread(self.take_up, self.pick())
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE if wait is None else wait):
                        await self._news.wait()
                self._news.clear()
        finally:
            for task in tasks:
                task.cancel()

    # Taking lists ------------------------------------------------------------

    async def _listen(self, name: str, sock: socket.socket) -> None:
        """Take one list of a user after the other, and never faster than is good for others."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        credit, since = float(FREE), time.monotonic()
        while True:
            try:
                connection = _newest(sock, (await loop.sock_accept(sock))[0])
            except OSError as error:
                print(f"no list of {name} can be taken: {error.strerror}", file=sys.stderr)
                await asyncio.sleep(PAUSE)
                continue
            self._busy += 1
            try:
                with connection, contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        self.take(name, await _read(connection))
            finally:
                self._busy -= 1
                self._last = time.monotonic()
            now = time.monotonic()
            credit, since = min(FREE, credit + (now - since) / PAUSE) - 1.0, now
            if credit < 0.0:
                await asyncio.sleep(-credit * PAUSE)

    def take(self, name: str, message: bytes) -> None:
        """Remember what a user handed over for the next round."""
        before = self.kept[name]
        kind, _, data = message.partition(b"\n")
        found = judge.Declaration(before.user, before.gid)
        problem: str | None = None
        if kind + b"\n" == handover.PROBLEM:
            text = data[:_LONGEST_PROBLEM].decode("ascii", "replace")
            problem = "".join(each if each.isprintable() else "?" for each in text)
        elif kind + b"\n" == handover.LIST:
            found.digest, found.data = hashlib.sha256(data).hexdigest(), data
            try:
                found.sites = model.parse(data)
            except UsageError as error:
                problem = str(error)
        else:
            return
        if problem is not None:
            found.problem = f"{problem}; the last good version stays in force"
        self.coming.pop(name, None)
        self._told.discard(name)
        known = self._documents[name]
        if (known.get("digest"), known.get("problem")) == (found.digest, found.problem):
            return
        self.coming[name] = found
        self._news.set()

    # Bringing them to the edge -------------------------------------------------

    def next_round(self) -> float | None:
        """Return the seconds until something may be taken up; `None` when nothing is to be."""
        now = time.time()
        waits = {name: self.pace.wait(name, now) for name in self.coming}
        for name, wait in waits.items():
            if wait > SOON and name not in self._told:
                self._told.add(name)
                until = {"digest": self.coming[name].digest, "until": now + wait}
                self._leave(self.coming[name], {**self._documents[name], "waits": until})
        return min(waits.values(), default=None)

    def pick(self) -> dict[str, Declaration]:
        """Return the lists whose users have something left of their share."""
        now = time.time()
        ready = [name for name in self.coming if self.pace.wait(name, now) <= 0.0]
        return {name: self.coming.pop(name) for name in ready}

    def take_up(self, picked: dict[str, Declaration]) -> None:
        """Bring the edge up to date with these lists and leave the results."""
        lists = self.kept | {name: each for name, each in picked.items() if not each.problem}
        claims = judge.read_claims(STATE / "claims.json")
        verdicts, targets = judge.judge(list(lists.values()), self._web, claims)
        ports.start(_ports(targets))
        surroundings = caddyfile.Surroundings(judge.box_ports(self._web))
        trouble, asked = publish(caddyfile.render(targets, surroundings), STATE, RESULTS)
        if asked:
            self.pace.note(picked)
        if trouble is not None and len(picked) > 1:
            # One of them is what the edge does not like.
            for name, each in picked.items():
                self.take_up({name: each})
            return
        if trouble is not None:
            verdicts, targets = judge.judge(list(self.kept.values()), self._web, claims)
        else:
            kept = judge.claim(targets, claims, time.time())
            if kept != claims:
                write(STATE / "claims.json", judge.dump_claims(kept), 0o600)
            for name, each in picked.items():
                if not each.problem:
                    write(STATE / f"{name}.last-good.json", each.data, 0o600)
            self.kept = lists
        ports.stop_all_but(_ports(targets))
        for name, each in self.kept.items():
            self._report(picked.get(name, each), verdicts[name], trouble, asked=name in picked)

    def _report(
        self, found: Declaration, verdicts: list[Verdict], trouble: str | None, *, asked: bool
    ) -> None:
        """Leave what the user's command shows, if that is anything new."""
        before = self._documents[found.user.name]
        document: dict[str, Any] = {
            "version": 1,
            "digest": found.digest,
            "problem": found.problem or trouble,
            "sites": [vars(verdict) for verdict in verdicts],
        }
        if not asked:
            document = {**document, **before, "sites": document["sites"]}
        if document == before or not (asked or document["sites"] or before):
            return
        self._documents[found.user.name] = document
        self._leave(found, document)
        for verdict in verdicts:
            if verdict.state == "refused":
                text = f"{verdict.name!r}: {verdict.reason}"
                print(f"site of {found.user.name} refused: {text}")

    def _leave(self, found: Declaration, document: dict[str, Any]) -> None:
        path = RESULTS / f"{found.user.name}.json"
        write(path, json.dumps({**document, "at": time.time()}).encode() + b"\n", 0o640)
        if os.geteuid() == 0:
            os.chown(path, 0, found.gid)


def _ports(targets: list[caddyfile.Target]) -> set[tuple[str, int]]:
    return {(each.user, each.port) for each in targets if each.port is not None}


def _document(name: str) -> dict[str, Any]:
    """Return what was last said about a user's list."""
    try:
        found = dict(json.loads((RESULTS / f"{name}.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
    return {key: found[key] for key in found if key not in ("at", "waits")}


def _kept(found: Declaration) -> Declaration:
    """Return the list of a user that is in force."""
    with contextlib.suppress(OSError, UsageError):
        found.data = (STATE / f"{found.user.name}.last-good.json").read_bytes()
        found.sites = model.parse(found.data)
        found.digest = hashlib.sha256(found.data).hexdigest()
    return found


def _newest(sock: socket.socket, connection: socket.socket) -> socket.socket:
    """Return the connection that came last: of several lists, only that one is to be in force."""
    for _ in range(MOST_WAITING):
        try:
            newer = sock.accept()[0]
        except BlockingIOError:
            break
        connection.close()
        connection = newer
    return connection


async def _read(connection: socket.socket) -> bytes:
    """Return all that a user has to say, at most a little more than is allowed."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    found = bytearray()
    while len(found) <= model.MOST_BYTES + len(handover.PROBLEM):
        data = await loop.sock_recv(connection, 64 * 1024)
        if not data:
            break
        found += data
    return bytes(found)
