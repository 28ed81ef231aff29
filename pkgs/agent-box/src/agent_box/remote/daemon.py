"""`agent-box-codex-daemon`: the unit with the codex app-server of one user.

It runs for as long as a pane refers to it. The app-server stays in the foreground below it: the
daemon that codex would start by itself copies 400 MB into the home, updates itself, and belongs to
whichever session came first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asyncinotify import Inotify, Mask

from agent_box import config, envfile
from agent_box.errors import AgentBoxError
from agent_box.remote import place

if TYPE_CHECKING:
    from agent_box.config import User

log = logging.getLogger(__name__)

ARGUMENTS = ("app-server", "--remote-control", "--listen", "unix://")
"""`--remote-control` is what codex itself passes to its daemon; the relay attaches once somebody
is signed in, and nothing fails while nobody is."""

GRACE = 5.0
"""Seconds that the app-server gets to leave."""

_INSIDE = "AGENT_BOX_UTS"
_UNSHARE = ("unshare", "--user", "--map-current-user", "--keep-caps", "--uts")


def main() -> int:
    """Serve until nobody refers to the app-server any more."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    os.umask(0o077)
    try:
        box = config.load()
        user = config.current_user(box)
    except AgentBoxError as error:
        log.critical("%s", error)
        return error.exit_code
    take_name(box.host_label)
    env = dict(os.environ)
    with contextlib.suppress(AgentBoxError, OSError, ValueError):
        env |= envfile.read(user.env_path)
    # codex does not make it, and without it ends at once.
    place.codex_home(env, user.home).mkdir(mode=0o700, parents=True, exist_ok=True)
    place.directory(user).mkdir(mode=0o700, parents=True, exist_ok=True)
    return asyncio.run(Daemon(user, [box.agents["codex"].command, *ARGUMENTS], env).run())


def take_name(label: str | None) -> None:
    """Make the host's name in the apps the public one: codex tells what gethostname(2) says.

    The unit has a name of its own where systemd can do that. Elsewhere it takes a user namespace,
    and where those are closed the name of the kernel has to do.
    """
    if not label or os.uname().nodename == label:
        return
    if os.environ.get(_INSIDE):
        try:
            socket.sethostname(label[:64])
        except OSError as error:
            log.warning("the apps show this box as %s (%s)", os.uname().nodename, error.strerror)
        return
    try:
        test = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False)
        if test.returncode == 0:
            os.environ[_INSIDE] = "1"
            os.execvp(_UNSHARE[0], [*_UNSHARE, *_self()])  # noqa: S606
    except OSError:
        os.environ.pop(_INSIDE, None)
    log.warning("no host name of its own can be had: the apps show %s", os.uname().nodename)


def _self() -> list[str]:
    return [sys.executable, *sys.orig_argv[1:]]


class Daemon:
    """The app-server and who refers to it."""

    def __init__(self, user: User, argv: list[str], env: dict[str, str]) -> None:
        self._user = user
        self._directory = place.directory(user)
        self._argv = argv
        self._env = env
        self._changed = asyncio.Event()
        self._pidfds: dict[int, int] = {}

    async def run(self) -> int:
        """Run the app-server, anew whenever that is asked for; return its status if it fails."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        watch = asyncio.create_task(self._watch())
        stop = asyncio.create_task(stopping.wait())
        try:
            while True:
                child = await asyncio.create_subprocess_exec(
                    *self._argv, env=self._env, stdin=asyncio.subprocess.DEVNULL
                )
                ended = asyncio.create_task(child.wait())
                (self._directory / place.RESTART).unlink(missing_ok=True)
                again = await self._serve(ended, stop)
                if ended.done():
                    log.error("the app-server ended with %s", child.returncode)
                    return 1
                child.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GRACE):
                        await child.wait()
                if child.returncode is None:
                    child.kill()
                    await child.wait()
                if not again:
                    return 0
        finally:
            watch.cancel()
            stop.cancel()
            self._tidy()

    async def _serve(self, ended: asyncio.Task[int], stop: asyncio.Task[bool]) -> bool:
        """Wait for the end; return whether another app-server is wanted."""
        while True:
            self._changed.clear()
            if not self._referred():
                log.info("no session refers to the app-server any more")
                return False
            if (self._directory / place.RESTART).exists():
                log.info("the app-server is started anew")
                return True
            change = asyncio.create_task(self._changed.wait())
            await asyncio.wait({ended, stop, change}, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            if ended.done() or stop.done():
                return False

    def _referred(self) -> bool:
        """Return whether a pane lives, and hear of the end of each that does."""
        living = {int(item["pid"]) for item in place.references(self._user)}
        for pid in living - self._pidfds.keys():
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                self._pidfds[pid] = descriptor
                asyncio.get_running_loop().add_reader(descriptor, self._gone, pid)
        return bool(living)

    def _gone(self, pid: int) -> None:
        descriptor = self._pidfds.pop(pid)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        # A pane that was killed leaves its file.
        (self._directory / f"{pid}.json").unlink(missing_ok=True)
        self._changed.set()

    async def _watch(self) -> None:
        mask = Mask.MOVED_TO | Mask.CREATE | Mask.DELETE | Mask.CLOSE_WRITE
        with Inotify() as inotify:
            inotify.add_watch(self._directory, mask)
            self._changed.set()
            async for _ in inotify:
                self._changed.set()

    def _tidy(self) -> None:
        """Remove the files of panes that are gone: systemd would start this again for them."""
        living = {item["path"] for item in place.references(self._user)}
        for path in self._directory.iterdir():
            if str(path) not in living:
                with contextlib.suppress(OSError):
                    Path(path).unlink()


if __name__ == "__main__":
    sys.exit(main())
