"""An asynchronous client of the user's tmux server.

Every request is one short-lived `tmux` process given an argument vector; nothing goes
through a shell. `-N` keeps a client from ever starting a server of its own, which would
live outside the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from agent_box.naming import TMUX_SOCKET, tmux_socket
from agent_box.panes import PANE_FORMAT, GarbledError, parse_panes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent_box.panes import Pane

CHANNEL = "agent-box-event"
"""The `wait-for` channel that the hooks of our tmux.conf signal."""

COLUMNS, LINES = 200, 50
"""Size of a session nobody looks at: wide enough that sign-in URLs do not wrap."""


TRIES = 5
"""How often something is asked or told when tmux leaves something out: see `GarbledError`."""


class TmuxError(Exception):
    """tmux refused a command."""

    output = ""
    """What it printed before that."""


class TmuxDownError(TmuxError):
    """No server listens on the socket."""


class UnmarkedError(TmuxError):
    """What was started runs, and tmux does not know whose it is."""


class TmuxSilentError(TmuxError):
    """The server is there but did not answer in time."""


class Tmux:
    """Runs commands against the server of one user.

    `binary` is tmux's absolute path, `tmpdir` the directory that `TMUX_TMPDIR` names.
    """

    def __init__(self, binary: str, tmpdir: Path, timeout: float = 5.0) -> None:
        self.binary = binary
        self.tmpdir = tmpdir
        self.timeout = timeout
        """Seconds after which a server counts as silent."""
        self._server: int | None = None
        self._server_path: tuple[int | None, str | None] = (None, None)
        self._env = {
            "TMUX_TMPDIR": str(tmpdir),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": os.environ.get("HOME", "/"),
        }

    @property
    def socket_path(self) -> Path:
        """The server's socket."""
        return tmux_socket(self.tmpdir)

    async def run(
        self,
        *args: str,
        data: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        path: str | None = None,
    ) -> str:
        """Run one tmux command line and return what it printed.

        What it starts gets `path` as its PATH: tmux takes that one variable from its client.
        """
        process = await asyncio.create_subprocess_exec(
            self.binary,
            *("-N", "-u", "-L", TMUX_SOCKET),
            *args,
            stdin=asyncio.subprocess.PIPE if data is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env | ({"PATH": path} if path else {}),
        )
        try:
            async with asyncio.timeout(timeout or self.timeout):
                out, err = await process.communicate(data)
        except TimeoutError:
            raise TmuxSilentError("the tmux server does not answer") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
        if process.returncode:
            failure = _error(err.decode("utf-8", "replace").strip())
            failure.output = out.decode("utf-8", "replace")
            raise failure
        return out.decode("utf-8", "replace")

    async def panes(self, timeout: float | None = None) -> dict[str, Pane]:  # noqa: ASYNC109
        """Return the agent's pane of every session, by session name."""
        return (await self.state(timeout))[1]

    async def state(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> tuple[int, dict[str, Pane]]:
        """Return the server's process id and the agent's pane of every session, by name.

        Of a foreign session it is the first pane. A session of ours that lost its agent's
        pane is there as `lost`, with its process ended.
        """
        for _ in range(TRIES - 1):
            with contextlib.suppress(GarbledError):
                return await self._state(timeout)
        try:
            return await self._state(timeout)
        except GarbledError as error:
            raise TmuxError(str(error)) from error

    async def _state(self, seconds: float | None) -> tuple[int, dict[str, Pane]]:
        asked = time.time()
        ask = ("display-message", "-p", "#{pid}", ";", "list-panes", "-a", "-F", PANE_FORMAT)
        try:
            text = await self.run(*ask, timeout=seconds)
        except TmuxDownError:
            self._server = None
            raise
        except TmuxError as error:
            if "no current" not in str(error) and "no sessions" not in str(error):
                raise
            text = error.output
        first, _, rest = text.partition("\n")
        if not first.isdigit():
            raise GarbledError(f"tmux printed {first[:100]!r} in place of its process id")
        self._server = int(first)
        return self._server, parse_panes(rest, asked)

    async def path(self) -> str | None:
        """Return the PATH that the server was started with, which is that of the sandbox."""
        known, found = self._server_path
        if known is not None and known == self._server:
            return found
        found = None
        with contextlib.suppress(TmuxError):
            name, _, value = (await self.run("show-environment", "-g", "PATH")).partition("=")
            found = value.rstrip("\n") if name == "PATH" and value.strip() else None
        self._server_path = (self._server, found)
        return found

    async def open(
        self, name: str, cwd: str, columns: int, lines: int, argv: Sequence[str]
    ) -> None:
        """Start `argv` in a session that stays when it ends; its size is nobody's to change."""
        target = f"={name}:"
        await self.run(
            *("new-session", "-d", "-s", name, "-c", cwd, "-x", str(columns), "-y", str(lines)),
            *("--", *argv, ";"),
            *("set-option", "-p", "-t", target, "remain-on-exit", "on", ";"),
            *("set-option", "-w", "-t", target, "window-size", "manual"),
            path=await self.path(),
        )

    def reap(self) -> None:
        """Make the server look for children that ended.

        tmux (3.3a, in the foreground) misses a SIGCHLD now and then; the process then stays a
        zombie and its status unknown until another signal comes.
        """
        if self._server is not None:
            with contextlib.suppress(OSError):
                os.kill(self._server, signal.SIGCHLD)

    async def start(
        self, name: str, cwd: str, session_id: str, launch: str, argv: Sequence[str]
    ) -> dict[str, Pane]:
        """Start `argv` in a new session `name` and return what there is then, as `panes` does."""
        target = f"={name}:"
        begin = (
            *("new-session", "-d", "-s", name, "-c", cwd),
            *("-x", str(COLUMNS), "-y", str(LINES)),
            *("-e", f"AGENT_BOX_SESSION={name}", "-e", f"AGENT_BOX_SESSION_ID={session_id}"),
            *("--", *argv),
        )
        marks = (
            *("set-option", "-p", "-t", target, "remain-on-exit", "on", ";"),
            *("set-option", "-t", target, "@agent-box-id", session_id, ";"),
            *("set-option", "-t", target, "@agent-box-launch", launch, ";"),
            *("set-option", "-F", "-t", target, "@agent-box-pane", "#{pane_id}"),
        )
        try:
            return await self._begin(begin, marks, name, launch)
        except UnmarkedError:
            # Nobody would know whose it is.
            await self.run("kill-session", "-t", f"={name}")
            raise

    async def respawn(
        self, pane: Pane, cwd: str, launch: str, argv: Sequence[str]
    ) -> dict[str, Pane]:
        """Start `argv` in the pane of an ended process; whoever watches keeps watching.

        Where the pane is lost a new window takes its place. Returns the same as `start`.
        """
        target = f"{pane.session_key}:"
        begin: tuple[str, ...]
        marks: tuple[str, ...]
        if pane.lost:
            begin = ("new-window", "-t", target, "-c", cwd, "--", *argv)
            marks = (
                *("set-option", "-p", "-t", target, "remain-on-exit", "on", ";"),
                *("set-option", "-t", target, "@agent-box-launch", launch, ";"),
                *("set-option", "-F", "-t", target, "@agent-box-pane", "#{pane_id}"),
            )
        else:
            begin = ("respawn-pane", "-k", "-t", pane.pane, "-c", cwd, "--", *argv)
            marks = (
                *("set-option", "-t", target, "@agent-box-launch", launch, ";"),
                # Whoever scrolls back still sees the earlier runs; the log of this one begins here.
                *("set-option", "-p", "-F", "-t", pane.pane, "@agent-box-from", "#{history_size}"),
            )
        return await self._begin(begin, marks, pane.session, launch)

    async def _begin(
        self, begin: tuple[str, ...], marks: tuple[str, ...], name: str, launch: str
    ) -> dict[str, Pane]:
        """Start something in session `name`, mark it, and tell what there is then.

        All in one, since each client costs as much as any of that. Only the marks are made again
        when tmux left out something: names of options are formats to it, too.
        """
        path, command = await self.path(), (*begin, ";", *marks)
        for _ in range(TRIES):
            asked = time.time()
            try:
                text = await self.run(
                    *command, ";", "list-panes", "-a", "-F", PANE_FORMAT, path=path
                )
                panes = parse_panes(text, asked)
            except GarbledError:
                pass
            except TmuxError as error:
                if " option: " not in f"{error} ":
                    raise
            else:
                found = panes.get(name)
                if found is None or (found.launch == launch and not found.lost):
                    return panes
            command = marks
        raise UnmarkedError(f"tmux does not keep what session {name} is for")

    async def kill(self, pane: Pane) -> None:
        """End the session of `pane`; a session that is gone already is fine."""
        with contextlib.suppress(TmuxDownError):
            try:
                await self.run("kill-session", "-t", pane.session_key)
            except TmuxError as error:
                if not any(text in str(error) for text in ("can't find", "no current")):
                    raise

    async def rename(self, pane: Pane, new: str) -> None:
        """Rename the session of `pane`; its processes' environment keeps the old name."""
        await self.run("rename-session", "-t", pane.session_key, new)

    async def pipe(self, pane: Pane, command: str) -> None:
        """Have the shell run `command`, one of ours, with all further output of `pane`."""
        await self.run("pipe-pane", "-O", "-t", pane.pane, command)

    async def capture(self, pane: str, history: int = 0) -> str:
        """Return the text of `pane` with up to `history` lines of scrollback before it."""
        return await self.run(*_capture(pane, history))

    async def captures(self, panes: Sequence[str]) -> list[str | None]:
        """Return the texts of several panes; None for one that is gone."""
        if not panes:
            return []
        # Nobody can know it beforehand and put it on a screen.
        end = os.urandom(16).hex()
        command: list[str] = []
        for pane in panes:
            command += [*_capture(pane), ";", "display-message", "-p", "-t", pane, end, ";"]
        try:
            text = await self.run(*command[:-1])
        except (TmuxDownError, TmuxSilentError):
            raise
        except TmuxError:
            text = ""  # the first that is gone ends all
        *texts, _ = text.split(f"{end}\n")
        if len(texts) == len(panes):
            return list(texts)
        # An end may be left out, too: see `GarbledError`.
        return [await self._captured(pane) for pane in panes]

    async def _captured(self, pane: str) -> str | None:
        try:
            return await self.capture(pane)
        except (TmuxDownError, TmuxSilentError):
            raise
        except TmuxError:
            return None

    async def capture_styled(self, pane: str) -> str:
        """Return the whole text of `pane` with its escapes, which hold the targets of links."""
        return await self.run("capture-pane", "-p", "-e", "-J", "-S", "-", "-t", pane)

    async def capture_run(self, pane: str, history: int) -> str:
        """Return the text of the present run in `pane`, without what earlier ones left there."""
        known = await self.run(
            "display-message", "-p", "-t", pane, "#{history_size} #{@agent-box-from}"
        )
        size, _, start = known.strip().partition(" ")
        lines = int(size) - int(start or 0) if size else -1
        # Negative once tmux has thrown old lines away: then all of it is rather too much.
        return await self.capture(pane, min(lines, history) if lines >= 0 else history)

    async def paste(self, pane: str, text: str, *, enter: bool) -> None:
        """Give `text` to the program in `pane` as a paste, then press Enter if asked to."""
        if text:  # tmux has no empty buffers; Enter alone is a wish, too
            buffer = f"agent-box-{os.urandom(4).hex()}"
            await self.run("load-buffer", "-b", buffer, "-", data=text.encode("utf-8", "replace"))
            await self.run("paste-buffer", "-d", "-p", "-r", "-b", buffer, "-t", pane)
        if enter:
            await self.run("send-keys", "-t", pane, "Enter")

    async def wait_event(self) -> bool:
        """Wait until a hook signals; return False when the server went away instead."""
        try:
            await self.run("wait-for", CHANNEL, timeout=10**9)
        except TmuxError:
            return False
        return True


def _capture(pane: str, history: int = 0) -> tuple[str, ...]:
    return ("capture-pane", "-p", "-J", "-S", str(-history), "-t", pane)


def _error(message: str) -> TmuxError:
    down = ("no server running", "error connecting", "lost server", "server exited")
    if any(text in message for text in down):
        return TmuxDownError(message)
    return TmuxError(message or "tmux failed without saying why")
