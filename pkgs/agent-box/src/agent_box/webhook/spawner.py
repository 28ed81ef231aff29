"""Starts the sessions of standing watches: one for a burst, never too many, none forgotten.

Events wait in the spool, by source and key. The first one of a quiet group starts a session at
once; what comes within the next minute waits for the next one, and is looked at again then: by
that time a session may have taken it on. While there are too many sessions everything waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
import uuid
from typing import TYPE_CHECKING, Any

from agent_box.config import SHELL
from agent_box.errors import AgentBoxError, ConflictError, UsageError
from agent_box.locking import atomic_write
from agent_box.subscriptions import files, spawning, topics
from agent_box.subscriptions.place import filter_path, key_of, spool_dir, state_dir
from agent_box.subscriptions.predicates import look
from agent_box.webhook.payload import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box.config import Box, User
    from agent_box.webhook.sessions import Sessions
    from agent_box.webhook.spool import Item, Spool

log = logging.getLogger(__name__)

WINDOW = 60.0
"""Seconds from the start of a session in which its group gets no other one."""

PATIENCE = 86400.0
"""Seconds that an event waits for a session before it is dropped."""

MAX_PENDING = 200
"""Events of one group that wait; beyond that the oldest go."""

FRESH = 1.0
"""Seconds for which it stays true that nobody owns an event."""

RETRY = 5.0
SEED_TTL = 2.0
"""Hours without an event after which a new session's own subscription ends."""

_OBJECTS = ("issue.number", "pull_request.number", "discussion.number")
_BRANCHES = ("workflow_run.head_branch", "pull_request.head.ref")

Group = tuple[str, str]


class Spawner:
    """Works off the events that wait for a session, for one user."""

    def __init__(
        self,
        box: Box,
        user: User,
        sessions: Sessions,
        spool: Spool,
        owned: Callable[[Envelope], str | None],
    ) -> None:
        self._box = box
        self._user = user
        self._sessions = sessions
        self._spool = spool
        self._owned = owned
        self._directory = state_dir(user.home)
        self._news = asyncio.Event()
        self._started: dict[Group, float] = {}
        """When a group last got a session (unix time)."""
        self._refused = False

    @property
    def able(self) -> bool:
        """Whether sessions can be started here: a shell takes no task."""
        return spawning.agent(self._box) != SHELL

    def wake(self) -> None:
        """Look for events that wait."""
        self._news.set()

    async def run(self) -> None:
        """Start sessions for as long as the receiver runs."""
        await self._sessions.known.wait()
        for spawn in self._spool.spawns():
            group = (spawn["source"], spawn["key"])
            self._started[group] = max(spawn["at"], self._started.get(group, 0))
        while True:
            self._news.clear()
            try:
                pause = await self._round()
            except UsageError as error:
                log.error("no session can be started for a standing watch: %s", error)
                pause = WINDOW
            except (AgentBoxError, OSError, sqlite3.Error) as error:
                log.warning("no session can be started now: %s", error)
                pause = RETRY
            try:
                async with asyncio.timeout(pause):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _round(self) -> float | None:
        """Serve every group that may be served now; return when to look again."""
        # What was asked for and never answered comes first, under the same id.
        for spawn in self._spool.spawns():
            if not spawn["done"]:
                group = (spawn["source"], spawn["key"])
                items = [item for item in self._spool.batch(group) if item.id <= spawn["last"]]
                if items:
                    await self._ask_for(spawn["session"], spawn["name"], group, items)
                else:
                    self._spool.abandon(spawn["session"])
        pause: float | None = None
        now = time.time()
        self._started = {key: at for key, at in self._started.items() if now - at < WINDOW}
        for group in self._spool.wanted():
            opens = self._started.get(group, 0) + WINDOW - now
            if opens > 0:
                pause = min(pause or opens, opens)
                continue
            items = self._still_wanted(group)
            if not items:
                continue
            limit = spawning.ceiling(self._box, self._user)
            live = len(self._sessions.hooks())
            if live >= limit:
                self._refuse(group, items[-1], live, limit)
                pause = min(pause or RETRY, RETRY)
                continue
            self._refused = False
            ident, name = str(uuid.uuid4()), spawning.session_name(group[1])
            self._spool.starting(ident, name, group, items[-1].id)
            await self._ask_for(ident, name, group, items)
        return pause

    def _still_wanted(self, group: Group) -> list[Item]:
        """Return the events of a group that nobody took on meanwhile."""
        items, drop = self._spool.batch(group), []
        if len(items) > MAX_PENDING:
            drop = [item.id for item in items[:-MAX_PENDING]]
            log.warning(
                "%s: pending batch hit the %d-line cap; dropping %d event(s)",
                group[1] or "(none)", MAX_PENDING, len(drop),
            )  # fmt: skip
            items = items[-MAX_PENDING:]
        kept = []
        for item in items:
            old = time.time() - item.at
            if old > PATIENCE:
                log.warning(
                    "dropping 1 event(s) on %s: it waited %d s for a session", group[1], old
                )
                drop.append(item.id)
                continue
            # Only what had to wait: others were looked at a moment ago.
            line = self._spool.line(item.delivery) if old > FRESH else None
            envelope = Envelope.parse(line) if line is not None else None
            owner = self._owned(envelope) if envelope is not None else None
            if envelope is not None and owner is not None:
                log.info(
                    "not spawning for %s on %s \N{EM DASH} session %s claimed it while the batch"
                    " waited",
                    envelope.event or "(none)", group[1] or "(none)", owner,
                )  # fmt: skip
                drop.append(item.id)
            else:
                kept.append(item)
        if drop:
            self._spool.drop(drop)
        return kept

    def _refuse(self, group: Group, item: Item, live: int, limit: int) -> None:
        """Tell once that there are too many sessions; the events wait."""
        if self._refused:
            return
        self._refused = True
        log.warning(
            "%d hook-* sessions are running or queued to start, the limit is %d: events on %s are"
            " queued until one is removed (agent-box-session rm NAME)",
            live, limit, group[1] or "(none)",
        )  # fmt: skip
        path = spool_dir(self._user.home).parent / "webhook-spawn-refused.json"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            before = json.loads(path.read_bytes())
        except (OSError, ValueError):
            before = {}
        record = {
            "//": "When a standing watch last had to wait because of too many hook-* sessions.",
            "at": now,
            "firstAt": before.get("firstAt", now),
            "count": int(before.get("count", 0)) + 1,
            "live": live,
            "max": limit,
            "topic": item.topic,
            "key": group[1],
        }
        try:
            atomic_write(path, json.dumps(record, indent=2).encode() + b"\n", durable=False)
        except OSError as error:
            log.info("cannot write %s: %s", path, error.strerror)

    async def _ask_for(self, ident: str, name: str, group: Group, items: list[Item]) -> None:
        """Have the supervisor start a session; asking again for the same one is harmless."""
        seeded = self._seed(ident, group, items)
        texts = [item.text for item in items]
        last = items[-1]
        prompt = spawning.task(name, last.topic, last.note, group, texts, seeded=seeded)
        link = self._sessions.link
        try:
            result = await link.call(
                "add", id=ident, name=name, agent=spawning.agent(self._box), prompt=prompt,
                extraArgs=spawning.arguments(self._box, self._user)[0], wait=False,
            )  # fmt: skip
        except (UsageError, ConflictError):
            # A conflict with itself: the answer to an earlier request never came.
            views = (await link.call("ls"))["sessions"]
            result = {"session": next((view for view in views if view["id"] == ident), None)}
            if result["session"] is None:
                self._spool.abandon(ident)
                filter_path(self._directory, key_of(ident)).unlink(missing_ok=True)
                raise
        self._spool.started(ident)
        self._started[group] = time.time()
        self._sessions.views[result["session"]["name"]] = result["session"]
        log.info("started session %s for %d event(s) on %s", name, len(items), ":".join(group))

    def _seed(self, ident: str, group: Group, items: list[Item]) -> bool:
        """Subscribe the session to its own events before it exists; return whether it is."""
        topic = ":".join(group)
        # A sentence of the task names it, and so do the frames of later events.
        if not topics.plain(topic) or topics.problem(topic) or topic.endswith("/*"):
            return False
        now = time.time()
        owner = files.Entry(
            topic,
            note=f"seeded at spawn (owner of {topic})"[: files.NOTE_MAX],
            renew=True,
            ignore=["@self"],
            subscribed=now,
            active=now,
        )
        entries = [owner]
        rule = self._object_rule(items)
        if rule is not None:
            note = "seeded at spawn: object claim"
            entries.append(files.Entry(topic, note=note, renew=True, include=rule, subscribed=now))
        content = files.Filter("ok", ttl=SEED_TTL, entries=entries)
        path = filter_path(self._directory, key_of(ident))
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write(path, files.serialize(content, now))
        except OSError as error:
            log.warning("the session is not subscribed to its own events: %s", error.strerror)
            return False
        return True

    def _object_rule(self, items: list[Item]) -> dict[str, Any] | None:
        """Return the rule that claims the very issue, pull request or branch of the events."""
        numbers: set[int] = set()
        branches: set[str] = set()
        for item in items:
            line = self._spool.line(item.delivery)
            document = Envelope.parse(line).payload if line is not None else None
            for path in _OBJECTS:
                number = look(document, path)
                if isinstance(number, int) and not isinstance(number, bool):
                    numbers.add(number)
            for path in _BRANCHES:
                branch = look(document, path)
                if isinstance(branch, str) and branch:
                    branches.add(branch)
        rules = [{"path": path, "in": sorted(numbers)} for path in _OBJECTS if numbers]
        rules += [{"path": path, "in": sorted(branches)} for path in _BRANCHES[:1] if branches]
        return {"any": rules} if rules else None
