"""Decides who gets a delivery: plugin processes, bridged sessions, or a new session."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from typing import TYPE_CHECKING

from agent_box.subscriptions import actions, files, routing
from agent_box.subscriptions.place import DISPATCH, filter_path, known_login, state_dir
from agent_box.webhook import render
from agent_box.webhook.payload import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_box.config import Box, User
    from agent_box.subscriptions.files import Entry, Filter
    from agent_box.subscriptions.routing import Event
    from agent_box.webhook.bridge import Bridge
    from agent_box.webhook.peers import Peers
    from agent_box.webhook.sessions import Sessions
    from agent_box.webhook.spool import Spool

log = logging.getLogger(__name__)

RETRY = 2.0
"""Seconds until a delivery is tried again whose outcome could not be written down."""

STAMP_EVERY = 30.0
"""Seconds between two notes in a file that its subscription is in use."""


class Router:
    """Works off accepted deliveries, one after another, for one user."""

    def __init__(
        self, box: Box, user: User, spool: Spool, peers: Peers, sessions: Sessions, bridge: Bridge
    ) -> None:
        self._home = user.home
        self._directory = state_dir(user.home)
        self._policy = box.webhook.watch_policy if box.webhook else {}
        self._spool = spool
        self._peers = peers
        self._sessions = sessions
        self._bridge = bridge
        self.spawns = True
        """Whether standing watches can start sessions."""
        self.wanted: Callable[[], object] = lambda: None
        """Called when a session is to be started."""
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Look for deliveries."""
        self._news.set()

    async def run(self) -> None:
        """Work for as long as the receiver runs."""
        while True:
            self._news.clear()
            while numbers := self._spool.unrouted():
                for number in numbers:
                    try:
                        self._one(number)
                    except sqlite3.Error as error:  # a full disk, say: it is not lost
                        log.error("delivery %d waits, it cannot be dealt with: %s", number, error)
                        await asyncio.sleep(RETRY)
                        break
                    await asyncio.sleep(0)  # senders and peers are served in between
            await self._news.wait()

    def _one(self, number: int) -> None:
        try:
            self.route(number)
        except sqlite3.Error:
            raise
        except Exception:  # one delivery must not stop those behind it
            log.exception("delivery %d cannot be routed", number)
            with self._spool.transaction():
                self._spool.routed(number, "failed")

    def route(self, number: int) -> None:
        """Deal with one delivery."""
        line = self._peers.lines.get(number)
        # Before anybody is asked who owns it: those that are gone own nothing.
        self._peers.scan(number - 1)
        self._peers.wake()
        if line is None:
            return
        envelope = Envelope.parse(line)
        event = envelope.as_event()
        now = time.time()
        login = known_login(self._home)
        told = self._listeners(envelope, event, now, login)
        entry, verdict = self._dispatch(event, now, login)
        results = [f"told {', '.join(self._sessions.name_of(key) for key in told)}"] if told else []
        if plugins := self._peers.keys():
            results.append(f"handed to {len(plugins)} plugin(s)")
        if verdict:
            results.append(verdict)
        with self._spool.transaction():
            for key, text in told.items():
                self._bridge.queue(key, number, text)
            if entry is not None:
                dropped = self._spool.want(
                    (event.source, event.key), number, entry.topic, entry.note or "",
                    render.frame(envelope, entry, now),
                )  # fmt: skip
                if dropped:
                    log.warning(
                        "too many events of %s wait for a session: dropped the oldest %d",
                        event.source, dropped,
                    )  # fmt: skip
            self._spool.routed(number, "; ".join(results))
        if told:
            self._bridge.wake()
        if entry is not None:
            self.wanted()

    def _listeners(
        self, envelope: Envelope, event: Event, now: float, login: str | None
    ) -> dict[str, str]:
        """Return what to tell which sessions that have no plugin, by key."""
        told: dict[str, str] = {}
        plugins = self._peers.keys()
        for key in self._sessions.alive():
            path = filter_path(self._directory, key)
            if key in plugins or not path.exists():
                continue
            decision = routing.decide(files.read(path), event, now, login)
            if decision.entry is not None:
                self._stamp(path, decision.accepted, now)
                told[key] = render.frame(envelope, decision.entry, now)
        return told

    def _dispatch(
        self, event: Event, now: float, login: str | None
    ) -> tuple[Entry | None, str | None]:
        """Return the standing watch that wants a new session for the event, and the verdict."""
        if not self.spawns:
            return None, None
        path = filter_path(self._directory, DISPATCH)
        watches = actions.govern(files.read(path), self._policy)
        news = routing.is_news(event)
        decision = routing.decide(watches, event, now, login, ci_exempt=news)
        what = f"not spawning for {event.event or '(none)'} on {event.key or '(none)'} \N{EM DASH}"
        if decision.entry is None:
            if decision.refused:
                log.info("%s the subscribed watch declined it", what)
                return None, "declined by its watch"
            return None, None
        self._stamp(path, decision.accepted, now)
        if event.ci and not news and not decision.entry.declarative:
            log.info("%s no failing outcome", what)
            return None, "no failing outcome"
        owner = self._owner(event, now, login)
        if owner is not None:
            name = self._sessions.name_of(owner[0])
            verb = "is subscribed to it" if owner[1] == "subscribed" else "declared it"
            log.info("%s session %s %s", what, name, verb)
            return None, f"owned by {name}"
        return decision.entry, "queued for a session"

    def owned(self, envelope: Envelope) -> str | None:
        """Return the name of the living session whose business the event is by now."""
        self._peers.scan(self._spool.newest())
        owner = self._owner(envelope.as_event(), time.time(), known_login(self._home))
        return None if owner is None else self._sessions.name_of(owner[0])

    def _owner(self, event: Event, now: float, login: str | None) -> tuple[str, str] | None:
        for key in sorted(self._peers.keys() | set(self._sessions.alive())):
            content = files.read(filter_path(self._directory, key))
            how = routing.claims(content, event, now, login)
            if how is not None:
                return key, how
        return None

    def _stamp(self, path: Path, accepted: list[Entry], now: float) -> None:
        """Note in the file that its subscriptions are in use, if that is not fresh in there."""
        if all(entry.active is not None and now - entry.active < STAMP_EVERY for entry in accepted):
            return
        names = {entry.topic for entry in accepted}

        def edit(content: Filter) -> bool:
            actions.prune(content, now)
            for entry in content.entries:
                if entry.topic in names:
                    routing.stamp(entry, now)
            return content.state == "ok"

        try:
            files.change(path, edit, now)
        except Exception as error:  # noqa: BLE001 - the event matters more than its stamp
            log.warning("%s", error)
