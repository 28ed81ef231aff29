"""What wakes the supervisor: processes that end, tmux hooks, the registry file, launchers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import socket
import stat
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from asyncinotify import Inotify, Mask

from agent_box.sites.courier import Courier

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.panes import Pane
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

_WATCHED = (
    Mask.MOVED_TO
    | Mask.CLOSE_WRITE
    | Mask.DELETE
    | Mask.MOVED_FROM
    | Mask.ATTRIB
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
    # What is no file in its place: a directory, a link, a pipe
    | Mask.CREATE
)

LISTEN_PAUSE = 0.5
"""Seconds between two attempts to hear the tmux hooks."""

LOOK_PAUSE = 5.0
"""Seconds between two looks at a registry that cannot be watched."""

BIND_PAUSE = 2.0
"""Seconds between two attempts to hear the launchers."""

REAP_TIME = 1.0
REAP_PAUSE = 0.02
"""Seconds that tmux gets to tell the status of a process that went, and between two looks."""


class Watchers:
    """The event sources of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.problem: str | None = None
        """Why hand edits are not noticed, for humans."""
        self._pidfds: dict[str, tuple[int, int]] = {}
        self._gone: dict[str, int] = {}
        self._channel: asyncio.Task[None] | None = None
        self._registry: asyncio.Task[None] | None = None
        self._courier = Courier(supervisor.user)
        self._sites: asyncio.Task[None] | None = None
        self._notify: socket.socket | None = None
        self._bind: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the registry and to hear the launchers."""
        self._registry = asyncio.create_task(self._watch_registry())
        web = self.supervisor.box.web
        if web is not None and self.supervisor.user.name in web.users:
            self._sites = asyncio.create_task(self._courier.run())
        self._hear_launchers()

    def _hear_launchers(self) -> None:
        path = self.supervisor.lifecycle.notify_path
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        loop = asyncio.get_running_loop()
        try:
            path.unlink(missing_ok=True)
            sock.bind(str(path))
            path.chmod(0o600)
        except OSError as error:
            # Its directory is full, say. Sessions are started all the same.
            sock.close()
            if self._bind is None:
                log.error("launchers are not heard: %s: %s", path, error.strerror)
            self._bind = loop.call_later(BIND_PAUSE, self._hear_launchers)
            return
        self._bind = None
        self._notify = sock
        loop.add_reader(sock, self._heard, sock)

    def stop(self) -> None:
        """Stop watching."""
        for task in (self._channel, self._registry, self._sites):
            if task is not None:
                task.cancel()
        if self._bind is not None:
            self._bind.cancel()
        if self._notify is not None:
            asyncio.get_running_loop().remove_reader(self._notify)
            self._notify.close()
        for session_id in list(self._pidfds):
            self.forget(session_id)

    # Processes -------------------------------------------------------------

    def follow(self, session: Session, pane: Pane) -> None:
        """Wake the loop when the process of `pane` ends."""
        known = self._pidfds.get(session.id)
        if known is not None and known[0] == pane.pid:
            return
        self.forget(session.id)
        try:
            descriptor = os.pidfd_open(pane.pid)
        except OSError:
            # Gone already: the next look sees it.
            self._gone[session.id] = pane.pid
            self.supervisor.wake()
            return
        self._pidfds[session.id] = (pane.pid, descriptor)
        asyncio.get_running_loop().add_reader(descriptor, self._ended, session.id)

    def forget(self, session_id: str) -> None:
        """Stop following a session's process."""
        known = self._pidfds.pop(session_id, None)
        self._gone.pop(session_id, None)
        if known is not None:
            asyncio.get_running_loop().remove_reader(known[1])
            os.close(known[1])

    def _ended(self, session_id: str) -> None:
        known = self._pidfds.get(session_id)
        if known is not None:
            self._gone[session_id] = known[0]
            asyncio.get_running_loop().remove_reader(known[1])
        self.supervisor.wake()

    def confirm(self, session: Session, pane: Pane | None) -> Pane | None:
        """Return `pane` as ended once it is, with the status of its process if there is one.

        The terminal's end, our pidfd, and the status that tmux reaps come in any order within
        a moment, and the status decides what follows: wait for it. A child that still holds
        the terminal keeps the pane open for tmux; the agent is gone all the same.
        """
        now = asyncio.get_running_loop().time()
        known = pane is None or pane.lost or pane.code is not None or pane.signal is not None
        if pane is None or known or not (pane.dead or self._gone.get(session.id) == pane.pid):
            session.reaping = None
            return pane
        if session.reaping is None:
            session.reaping = now
        if now - session.reaping >= REAP_TIME:
            return replace(pane, dead=True)
        if now - session.reaping >= REAP_PAUSE:
            self.supervisor.tmux.reap()
        asyncio.get_running_loop().call_later(REAP_PAUSE, self.supervisor.wake)
        return replace(pane, dead=False)

    # tmux ------------------------------------------------------------------

    def listen(self) -> None:
        """Hear the tmux hooks, for as long as the server lives."""
        if self._channel is None or self._channel.done():
            self._channel = asyncio.create_task(self._hear_channel())

    async def _hear_channel(self) -> None:
        while await self.supervisor.tmux.wait_event():
            self.supervisor.wake()
            # Somebody came or went, or a bell rang.
            self.supervisor.attention.soon()
            # One word of the hooks is kept for whoever comes to listen.
            await asyncio.sleep(self.supervisor.pace)
        # The server went, or only our client of it: look now, and listen again a little later.
        self.supervisor.wake()
        await asyncio.sleep(LISTEN_PAUSE)
        self.supervisor.wake()

    # The registry ----------------------------------------------------------

    async def _watch_registry(self) -> None:
        directory = self.supervisor.user.config_dir
        while True:
            try:
                with Inotify() as inotify:
                    inotify.add_watch(directory, _WATCHED)
                    self._tell(None)
                    # What was edited before the watch was there.
                    self.supervisor.read_registry()
                    self._courier.changed()
                    await self._hear_edits(inotify)
            except FileNotFoundError:
                pass
            except OSError as error:
                # The user's other programs may have taken all that the kernel allows them.
                if self.problem is None:
                    log.warning("%s is not watched, only looked at: %s", directory, error.strerror)
                self._tell(
                    f"hand edits of {directory} are noticed seconds late ({error.strerror}): too "
                    "many programs of this user watch files"
                )
                self.supervisor.read_registry()
                self._courier.changed()
                await asyncio.sleep(LOOK_PAUSE)
                continue
            # The directory itself went, of which the last event may not have been about the list.
            self.supervisor.read_registry()
            # Its return is not an event for us: look, seldom.
            while not directory.is_dir():  # noqa: ASYNC110
                await asyncio.sleep(LISTEN_PAUSE)

    def _tell(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.supervisor.wake()

    async def _hear_edits(self, inotify: Inotify) -> None:
        """Take over each edit; return when the directory is not there any more."""
        name = self.supervisor.store.path.name
        directory = self.supervisor.user.config_dir
        async for event in inotify:
            if event.mask & Mask.CREATE and _just_begun(directory / name):
                continue
            if event.name is None or event.name.name in (name, ""):
                self.supervisor.read_registry()
            if event.name is None or event.name.name in (self.supervisor.user.sites_path.name, ""):
                self._courier.changed()
            if event.mask & (Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.IGNORED):
                return
            if not directory.is_dir():
                return

    # Launchers, and hooks of agents ------------------------------------------

    def _heard(self, sock: socket.socket) -> None:
        while select.select([sock], [], [], 0)[0]:
            with contextlib.suppress(OSError, ValueError):
                data, files = _receive(sock)
                taken = False
                try:
                    taken = self._understand(json.loads(data), files)
                finally:
                    for descriptor in () if taken else files:
                        os.close(descriptor)

    def _understand(self, message: object, files: list[int]) -> bool:
        """Pass on what was said; return whether the file that came with it was taken over."""
        if not isinstance(message, dict):
            return False
        if message.get("event") == "signal":
            self.supervisor.attention.signal(message.get("pane"), message.get("word"))
        elif message.get("event") == "output" and files:
            return self.supervisor.ears.take(message.get("token"), files[0])
        elif isinstance(message.get("id"), str):
            self.supervisor.launched(message["id"], message)
        return False


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return a message and the files that came with it (`socket.recv_fds` knows no flags)."""
    files = array("i")
    room = socket.CMSG_LEN(files.itemsize)
    data, extra, _, _ = sock.recvmsg(65536, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    return data, files.tolist()


def _just_begun(path: Path) -> bool:
    """Tell whether `path` is a file that somebody has yet to write: closing it is an event too.

    What is no file, such as a directory or a link, is complete when it is made.
    """
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_size == 0
