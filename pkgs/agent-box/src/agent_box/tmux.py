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
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SOCKET = "agent-box"
CHANNEL = "agent-box-event"
"""The `wait-for` channel that the hooks of our tmux.conf signal."""

COLUMNS, LINES = 200, 50
"""Size of a session nobody looks at: wide enough that sign-in URLs do not wrap."""


class TmuxError(Exception):
    """tmux refused a command."""


class TmuxDownError(TmuxError):
    """No server listens on the socket."""


class TmuxSilentError(TmuxError):
    """The server is there but did not answer in time."""


@dataclass(frozen=True)
class Pane:
    """The pane of a session that runs its agent, or the first one of a foreign session."""

    session: str
    pane: str
    """tmux's own id, such as `%3`."""
    pid: int
    dead: bool
    code: int | None
    signal: int | None
    attached: int
    """Clients looking at the session."""
    activity: int
    """Unix time of the last output, in seconds."""
    session_id: str | None
    """The agent-box id that the session was started for; None for a foreign session."""
    launch: str | None
    """Identifies the launch, so that a later one is told from this one."""

    @property
    def ended(self) -> bool:
        """Whether the process is gone and its status known."""
        return self.dead or self.code is not None or self.signal is not None


_FORMAT = "|".join(
    f"#{{{name}}}"
    for name in (
        "pane_id",
        "pane_pid",
        "pane_dead",
        "pane_dead_status",
        "pane_dead_signal",
        "session_attached",
        "window_activity",
        "@agent-box-id",
        "@agent-box-pane",
        "@agent-box-launch",
        "session_name",
    )
)


class Tmux:
    """Runs commands against the server of one user.

    `binary` is tmux's absolute path, `tmpdir` the directory that `TMUX_TMPDIR` names.
    """

    def __init__(self, binary: str, tmpdir: Path, timeout: float = 5.0) -> None:
        self.binary = binary
        self.tmpdir = tmpdir
        self.timeout = timeout
        """Seconds after which a server counts as silent."""
        self._env = {
            "TMUX_TMPDIR": str(tmpdir),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": os.environ.get("HOME", "/"),
        }

    @property
    def socket_path(self) -> Path:
        """The server's socket."""
        return self.tmpdir / f"tmux-{os.getuid()}" / SOCKET

    async def run(
        self,
        *args: str,
        data: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> str:
        """Run one tmux command line and return what it printed."""
        process = await asyncio.create_subprocess_exec(
            self.binary,
            *("-N", "-u", "-L", SOCKET),
            *args,
            stdin=asyncio.subprocess.PIPE if data is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
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
            raise _error(err.decode("utf-8", "replace").strip())
        return out.decode("utf-8", "replace")

    async def panes(self, timeout: float | None = None) -> dict[str, Pane]:  # noqa: ASYNC109
        """Return the agent's pane of every session, by session name.

        A session that lost its agent's pane is there with its first pane and no id of ours
        for the pane; `pane` then differs from what was started, and `pid` with it.
        """
        try:
            text = await self.run("list-panes", "-a", "-F", _FORMAT, timeout=timeout)
        except TmuxDownError:
            raise
        except TmuxError as error:
            if "no current" in str(error) or "no sessions" in str(error):
                return {}
            raise
        found: dict[str, Pane] = {}
        for line in text.splitlines():
            fields = line.split("|", 10)
            if len(fields) != 11:
                continue
            pane, pid, dead, code, signo, attached, activity, ours, main, launch, session = fields
            if ours and main and pane != main:
                continue
            if session in found:
                continue
            found[session] = Pane(
                session=session,
                pane=pane,
                pid=int(pid or 0),
                dead=dead == "1",
                code=int(code) if code.isdigit() else None,
                signal=_signal_number(signo),
                attached=int(attached or 0),
                activity=int(activity or 0),
                session_id=ours or None,
                launch=launch or None,
            )
        return found

    async def server_pid(self) -> int:
        """Return the server's process id."""
        return int(await self.run("display-message", "-p", "#{pid}"))

    async def session_names(self) -> set[str]:
        """Return all sessions, those whose agent pane is gone included."""
        return set((await self.run("list-sessions", "-F", "#{session_name}")).splitlines())

    async def start(
        self, name: str, cwd: str, session_id: str, launch: str, argv: Sequence[str]
    ) -> int:
        """Start `argv` in a new session `name` and return the process id."""
        target = f"={name}:"
        out = await self.run(
            *("new-session", "-d", "-P", "-F", "#{pane_pid}", "-s", name, "-c", cwd),
            *("-x", str(COLUMNS), "-y", str(LINES)),
            *("-e", f"AGENT_BOX_SESSION={name}", "-e", f"AGENT_BOX_SESSION_ID={session_id}"),
            *("--", *argv, ";"),
            *("set-option", "-p", "-t", target, "remain-on-exit", "on", ";"),
            *("set-option", "-t", target, "@agent-box-id", session_id, ";"),
            *("set-option", "-t", target, "@agent-box-launch", launch, ";"),
            *("set-option", "-F", "-t", target, "@agent-box-pane", "#{pane_id}"),
        )
        return int(out)

    async def respawn(self, pane: Pane, cwd: str, launch: str, argv: Sequence[str]) -> int:
        """Start `argv` in the pane of an ended process; whoever watches keeps watching."""
        target = f"={pane.session}:"
        out = await self.run(
            *("set-option", "-t", target, "@agent-box-launch", launch, ";"),
            *("respawn-pane", "-k", "-t", pane.pane, "-c", cwd, "--", *argv, ";"),
            *("display-message", "-p", "-t", pane.pane, "#{pane_pid}"),
        )
        return int(out)

    async def kill(self, pane: Pane) -> None:
        """End the session of `pane`; one that is gone already is fine.

        Addressed by the pane's id, which tmux never reuses: a new session that got the
        name in the meantime is not hit.
        """
        with contextlib.suppress(TmuxDownError):
            try:
                await self.run("kill-session", "-t", pane.pane)
            except TmuxError as error:
                if "can't find" not in str(error):
                    raise

    async def rename(self, old: str, new: str) -> None:
        """Rename a session; the environment of its processes keeps the old name."""
        await self.run("rename-session", "-t", f"={old}", new)

    async def capture(self, pane: str, history: int = 0) -> str:
        """Return the text of `pane` with up to `history` lines of scrollback before it."""
        return await self.run("capture-pane", "-p", "-J", "-S", str(-history), "-t", pane)

    async def paste(self, pane: str, text: str, *, enter: bool) -> None:
        """Give `text` to the program in `pane` as a paste, then press Enter if asked to."""
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


def _error(message: str) -> TmuxError:
    down = ("no server running", "error connecting", "lost server", "server exited")
    if any(text in message for text in down):
        return TmuxDownError(message)
    return TmuxError(message or "tmux failed without saying why")


def _signal_number(text: str) -> int | None:
    if not text:
        return None
    if text.isdigit():
        return int(text)
    try:
        return int(signal.Signals[f"SIG{text.removeprefix('SIG')}"])
    except KeyError:
        return None
