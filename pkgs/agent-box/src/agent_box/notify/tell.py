"""Says something in every session of every user, at the same time in all of them.

Each user has a share of their own, and all of it ends at one time: what a user's supervisor
answers, and when, is theirs to choose, and costs nobody else the news.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from agent_box.control_client import Client
from agent_box.errors import AgentBoxError, ConflictError

if TYPE_CHECKING:
    from agent_box.config import Box, User

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Sessions of one user that are told at the same time."""

MOST = 256
"""Sessions of one user that are told at all."""

LONGEST = 4 * 1024 * 1024
"""Bytes that a supervisor may answer."""

RETRY = 1.0
"""Seconds after which a session that could not be told is tried again."""

LISTING = 5.0
"""Seconds that a supervisor gets to say which sessions there are."""

DELIVERY = 10.0
"""Seconds that it gets for one session."""


def tell(box: Box, text: str, seconds: float) -> int:
    """Deliver `text` to all sessions that run; return how many took it within `seconds`.

    A session with a dialog open, or in which somebody writes, is tried again until then. The
    supervisor never types into a shell: it shows the text there.
    """
    deadline = time.monotonic() + seconds
    shares = [_Share(box.user(name), text, deadline) for name in box.users]
    threads = [threading.Thread(target=share.run, daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    told, listed = sum(share.told for share in shares), sum(share.listed for share in shares)
    log.info("told %d of %d sessions: %s", told, listed, text)
    return told


class _Share:
    """The sessions of one user."""

    def __init__(self, user: User, text: str, deadline: float) -> None:
        self.listed = 0
        self.told = 0
        self._user = user
        self._text = text
        self._deadline = deadline

    def run(self) -> None:
        names = self._running()
        self.listed = len(names)
        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            for took in pool.map(self._deliver, names):
                self.told += took
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _running(self) -> list[str]:
        try:
            views = self._call(LISTING, "ls")["sessions"]
            states = ("starting", "running", "waiting")
            names = [str(view["name"]) for view in views if view["state"] in states]
        except AgentBoxError as error:
            log.warning("the sessions of %s are not told: %s", self._user.name, _plain(error))
            return []
        except (LookupError, TypeError):
            log.warning("the sessions of %s are not told: no list of them", self._user.name)
            return []
        if len(names) > MOST:
            log.warning("of %d sessions of %s %d are told", len(names), self._user.name, MOST)
        return names[:MOST]

    def _deliver(self, name: str) -> bool:
        while True:
            trouble: AgentBoxError
            try:
                self._call(DELIVERY, "deliver", name=name, text=self._text)
            except ConflictError as error:
                trouble = error
                if time.monotonic() + RETRY < self._deadline:
                    time.sleep(RETRY)
                    continue
            except AgentBoxError as error:
                trouble = error
            else:
                return True
            log.warning(
                "session %s of %s was not told: %s",
                _plain(name),
                self._user.name,
                _plain(trouble),
            )
            return False

    def _call(self, most: float, op: str, **args: str) -> dict[str, Any]:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ConflictError("there was no more time")
        with Client(self._user.runtime_dir, longest=LONGEST) as client:
            return client.call(op, call_timeout=min(most, left), **args)


def _plain(what: object) -> str:
    """Return what a supervisor says in a form that is one short line of a log, whatever it is."""
    text = str(what)
    return "".join(char if char.isprintable() else " " for char in text[:200])
