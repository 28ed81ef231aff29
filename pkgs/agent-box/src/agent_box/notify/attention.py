"""agent-box-attention: tells a user elsewhere when an agent needs them, or is done.

It hears the supervisor's events and sends each piece of news as an HTTP POST whose body is the
text, as ntfy and most receivers of webhooks take it. The address is a secret: who knows it can
read along. It comes as a systemd credential and is never logged.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box import config
from agent_box.control_client import Client
from agent_box.errors import AgentBoxError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

DELAY = 10.0
"""Seconds for which a session must need somebody: who is there answers sooner."""

WORK = 60.0
"""Seconds of work after which it is news that an agent is done."""

TRIES = (0.0, 2.0, 10.0)
"""Seconds before each attempt to send."""

MOST_WAITING = 1000
"""Events that wait while news are sent, to a host that may not answer."""

TIMEOUT = 10.0
RECONNECT = 5.0
NEEDY = ("waiting", "failed")


@dataclass(frozen=True)
class News:
    """Something that a user wants to know."""

    session: str
    text: str


@dataclass
class _Known:
    """What is known about one session."""

    worked_since: float | None = None
    due: float | None = None
    """When `news` is to be told."""
    news: News | None = None
    told: News | None = None


class Desk:
    """Decides what is news. Times are unix seconds."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def see(self, view: dict[str, Any], now: float) -> None:
        """Take in the present view of a session."""
        name = view["name"]
        known = self._known.setdefault(name, _Known())
        news = None
        idle_since = view.get("idleSince")
        if view["state"] in NEEDY:
            reason = view.get("reason") or "look at it"
            word = "needs you" if view["state"] == "waiting" else "failed"
            news = News(name, f"{name} ({view['agent']}) {word}: {reason}")
        elif view["state"] == "running" and idle_since is not None:
            worked = idle_since - (known.worked_since or idle_since)
            if worked >= WORK:
                news = News(name, f"{name} ({view['agent']}) is done and waits for the next task")
            elif known.news is not None and known.worked_since is None:
                news = known.news  # idle still
        if view["state"] != "running" or idle_since is not None:
            known.worked_since = None
        elif known.worked_since is None:
            known.worked_since = now
        if news != known.news:
            known.news = news
            known.due = None if news in (None, known.told) else now + DELAY
        if news is None:
            known.told = None

    def forget(self, name: str) -> None:
        """Take in that a session is gone."""
        self._known.pop(name, None)

    def due(self, now: float) -> list[News]:
        """Return what is to be told now, each once."""
        found = []
        for known in self._known.values():
            if known.due is not None and known.due <= now and known.news is not None:
                known.due, known.told = None, known.news
                found.append(known.news)
        return found

    def next_due(self) -> float | None:
        """Return when there is something to tell, if nothing happens until then."""
        return min((known.due for known in self._known.values() if known.due), default=None)


class Sender:
    """Sends news to one address."""

    def __init__(self, url: str, click: str | None, pause: Callable[[float], None]) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("the address for notices is not an http or https URL")
        self._url = url
        self._host = parts.hostname
        self._click = click
        self._pause = pause

    def send(self, news: News) -> bool:
        """Send one piece of news; return whether it was taken."""
        from agent_box.notify import post  # slow to import, and most of the time there is no news

        headers = {"Content-Type": "text/plain; charset=utf-8", "Title": f"Session {news.session}"}
        if self._click:
            headers["Click"] = f"{self._click}?arg={news.session}"
        trouble = ""
        for seconds in TRIES:
            self._pause(seconds)
            try:
                post.post(self._url, news.text, headers, TIMEOUT)
                return True
            except post.FailedError as error:
                trouble = str(error)
                if not error.passing:
                    break
        log.warning("a notice about session %s did not reach %s: %s", news.session, self._host,
                    trouble)  # fmt: skip
        return False


def listen(user: config.User, events: queue.Queue[dict[str, Any]]) -> None:
    """Hear the supervisor for ever, over restarts of it."""
    while True:
        try:
            with Client(user.runtime_dir) as client:
                for event in client.subscribe():
                    events.put(event)
        except AgentBoxError as error:
            log.info("%s", error)
        time.sleep(RECONNECT)


def serve(desk: Desk, sender: Sender, events: queue.Queue[dict[str, Any]]) -> None:
    """Take one event, or wait until there is something to tell; then tell it."""
    due = desk.next_due()
    try:
        event = events.get(timeout=None if due is None else max(0.0, due - time.time()))
    except queue.Empty:
        event = {}
    now = time.time()
    views = event.get("sessions", [event["session"]] if "session" in event else [])
    for view in views:
        desk.see(view, now)
    if event.get("event") == "removed":
        desk.forget(event["name"])
    for news in desk.due(now):
        sender.send(news)


def main() -> int:
    """Run until the unit is stopped."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        box = config.load()
        user = config.current_user(box)
        url = Path(os.environ["CREDENTIALS_DIRECTORY"], "url").read_text().strip()
        origin = box.web.origins[0] if box.web and user.name in box.web.users else None
        sender = Sender(url, f"{origin}/{user.name}/" if origin else None, time.sleep)
    except (AgentBoxError, OSError, KeyError) as error:
        sys.stderr.write(f"agent-box-attention: {error}\n")
        return error.exit_code if isinstance(error, AgentBoxError) else 1
    # What does not fit waits at the supervisor, which has us begin anew when it is too much.
    events: queue.Queue[dict[str, Any]] = queue.Queue(MOST_WAITING)
    threading.Thread(target=listen, args=(user, events), daemon=True).start()
    desk = Desk()
    while True:
        serve(desk, sender, events)


if __name__ == "__main__":
    sys.exit(main())
