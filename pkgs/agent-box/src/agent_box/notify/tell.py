"""Says something in every session of every user, at the same time in all of them."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from agent_box.control_client import Client
from agent_box.errors import AgentBoxError, ConflictError

if TYPE_CHECKING:
    from agent_box.config import Box, User

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Sessions that are told at the same time."""

RETRY = 1.0
"""Seconds after which a session that could not be told is tried again."""


def tell(box: Box, text: str, seconds: float) -> int:
    """Deliver `text` to all sessions that run; return how many took it.

    A session with a dialog open, or in which somebody writes, is tried again for `seconds`. The
    supervisor never types into a shell: it shows the text there.
    """
    users = [box.user(name) for name in box.users]
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(AT_ONCE) as pool:
        listings = list(pool.map(_running, users))
        sessions = [
            (user, name) for user, names in zip(users, listings, strict=True) for name in names
        ]
        outcomes = list(pool.map(lambda pair: _deliver(pair[0], pair[1], text, deadline), sessions))
    log.info("told %d of %d sessions: %s", sum(outcomes), len(outcomes), text)
    return sum(outcomes)


def _running(user: User) -> list[str]:
    try:
        with Client(user.runtime_dir) as client:
            views = client.call("ls")["sessions"]
    except AgentBoxError as error:
        log.warning("the sessions of %s are not told: %s", user.name, error)
        return []
    states = ("starting", "running", "waiting")
    return [view["name"] for view in views if view["state"] in states]


def _deliver(user: User, name: str, text: str, deadline: float) -> bool:
    while True:
        try:
            with Client(user.runtime_dir) as client:
                client.call("deliver", name=name, text=text)
        except ConflictError as error:
            if time.monotonic() + RETRY > deadline:
                log.warning("session %s of %s was not told: %s", name, user.name, error)
                return False
            time.sleep(RETRY)
        except AgentBoxError as error:
            log.warning("session %s of %s was not told: %s", name, user.name, error)
            return False
        else:
            return True
