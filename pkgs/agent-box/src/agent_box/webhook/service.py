"""`agent-box-webhook-service`: the receiver of the user that runs it, on systemd's socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from agent_box import __version__, config, httpd, sdnotify
from agent_box.activation import activated
from agent_box.errors import AgentBoxError, InternalError
from agent_box.locking import atomic_write
from agent_box.subscriptions import spawning
from agent_box.subscriptions.files import format_time
from agent_box.subscriptions.place import spool_dir, state_dir
from agent_box.webhook import sources
from agent_box.webhook.bridge import Bridge
from agent_box.webhook.caretaker import Caretaker
from agent_box.webhook.ingress import LIMITS, Ingress
from agent_box.webhook.intake import Intake
from agent_box.webhook.peers import Peers
from agent_box.webhook.router import Router
from agent_box.webhook.sessions import Sessions
from agent_box.webhook.spawner import Spawner
from agent_box.webhook.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.types import Receive, Scope, Send

    from agent_box.config import Box, User

log = logging.getLogger(__name__)

IDLE = 60.0
"""Seconds without a request after which it is asked whether there is anything to wait for."""


class Receiver:
    """Everything that runs for one user; an ASGI application with a lifespan."""

    def __init__(self, box: Box, user: User, ingress: str | None) -> None:
        self._box = box
        self._user = user
        self._ingress_path = ingress
        self._started = time.time()
        self.directory = state_dir(user.home)
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and stop with the server."""
        if scope["type"] != "lifespan":
            await self.ingress(scope, receive, send)
            return
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def start(self) -> None:
        """Open the spool and go on where the last receiver ended."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        (self.directory / "instances").mkdir(mode=0o700, exist_ok=True)
        place = spool_dir(self._user.home)
        self.intake = Intake(place, self._arrived)
        await self.intake.open()
        self.spool = Spool(place)
        self.peers = Peers(self.directory, self.spool)
        self.sessions = Sessions(self._user, self._changed)
        self.bridge = Bridge(self.sessions, self.spool)
        self.router = Router(
            self._box, self._user, self.spool, self.peers, self.sessions, self.bridge
        )
        self.spawner = Spawner(self._box, self._user, self.sessions, self.spool, self.router.owned)
        self.router.spawns = self.spawner.able
        self.router.wanted = self.spawner.wake
        self.caretaker = Caretaker(self._box, self.sessions, self.spool)
        self.ingress = Ingress(self.directory, self.intake.store, self._ask)
        unrouted = self.spool.unrouted(1)
        self.peers.scan(unrouted[0] - 1 if unrouted else self.spool.newest())
        self.peers.forget_old()
        self.bridge.wake()
        self._tell()
        for work in (
            self.sessions.follow(),
            self._route(),
            self.spawner.run(),
            self.caretaker.run(),
            _vouch(),
        ):
            self._begin(work)
        sdnotify.notify("READY=1\nSTATUS=receiving webhooks")

    async def _route(self) -> None:
        """Route once it is known which sessions there are, but do not wait for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                await self.sessions.known.wait()
        await self.router.run()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(_ended)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Finish what is on its way; the rest is in the spool."""
        sdnotify.notify("STOPPING=1")
        await self.intake.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.bridge.close()
        await self.peers.close()
        self.spool.close()

    def needed(self) -> bool:
        """Tell whether there are senders, or deliveries, texts and sessions to look after.

        Otherwise the next request starts a receiver soon enough: plugin processes and watches
        only wait for deliveries.
        """
        return not self.spool.empty() or not sources.retire(self.directory)

    def _arrived(self) -> None:
        self.router.wake()
        self.peers.wake()

    def _changed(self) -> None:
        self.bridge.wake()
        self.spawner.wake()

    def _tell(self) -> None:
        """Write down where the receiver is, for the plugin's own tools."""
        content = {
            "pid": os.getpid(),
            "version": f"agent-box/{__version__}",
            "ingress": {"path": self._ingress_path} if self._ingress_path else None,
            "spawn": self.spawner.able,
            "startedAt": format_time(self._started),
            "hookSessionMax": spawning.ceiling(self._box, self._user),
        }
        data = json.dumps(content, indent=2).encode() + b"\n"
        atomic_write(self.directory / "receiver.json", data, durable=False)

    async def _ask(self, what: str, args: dict[str, Any]) -> dict[str, Any] | None:
        """Answer the user's own programs."""
        if what == "status":
            return {
                "pid": os.getpid(),
                "startedAt": self._started,
                "answers": dict(self.ingress.counts),
                "unrouted": len(self.spool.unrouted(1000)),
                "peers": self.peers.lags(),
                "waitingForSession": sum(
                    len(self.spool.batch(group)) for group in self.spool.wanted()
                ),
                "hookSessions": {
                    "live": len(self.sessions.hooks()),
                    "max": spawning.ceiling(self._box, self._user),
                },
            }
        if what == "redeliver" and isinstance(args.get("id"), int):
            number = await self.intake.again(args["id"])
            return None if number is None else {"id": number}
        return None


def _ended(task: asyncio.Task[None]) -> None:
    """A part that ends by itself takes the receiver with it: systemd starts it anew."""
    if task.cancelled() or task.exception() is None:
        return
    log.critical("a part of the receiver failed", exc_info=task.exception())
    os._exit(1)


async def _vouch() -> None:
    """Tell the service manager that the loop turns."""
    interval = sdnotify.watchdog_interval()
    while interval is not None:
        sdnotify.notify("WATCHDOG=1")
        await asyncio.sleep(interval)


def main() -> None:
    """Receive until told to stop."""
    httpd.setup_logging()
    os.umask(0o077)
    try:
        box = config.load()
        user = config.current_user(box)
        sock = next(iter(activated().values()), None)
        if sock is None:
            raise InternalError(
                "no socket was passed: this service is started by its .socket unit, see:"
                " systemctl list-sockets 'agent-box-*'"
            )
        name = sock.getsockname() if sock.family == socket.AF_UNIX else None
        receiver = Receiver(box, user, name if isinstance(name, str) and name else None)
        httpd.run(receiver, IDLE, sock=sock, limits=LIMITS, needed=receiver.needed)
    except AgentBoxError as error:
        log.critical("%s", error)
        sys.exit(error.exit_code)
