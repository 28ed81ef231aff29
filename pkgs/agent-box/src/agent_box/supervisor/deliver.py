"""News from outside for a session, given so that they are read and never obeyed by a shell.

An agent gets them as a paste into its input, followed by Enter; nothing is typed into a dialog,
where Enter would answer it, nor between the letters of somebody who is writing. A shell gets them
on its screen, past its input.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box import agents
from agent_box.config import SHELL
from agent_box.errors import ConflictError, NotFoundError
from agent_box.tmux import TmuxError

if TYPE_CHECKING:
    from agent_box.panes import Pane
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

WRITING = 30.0
"""Seconds without a key after which somebody who looks at a session counts as not writing: people
think between two words, and Enter would send what they have so far."""

SETTLE = 0.15
"""Seconds between a paste and Enter: programs tell one from the other by time as well."""

LOOKS, PAUSE = 10, 0.1
"""Looks at the screen, and seconds between them, until Enter shows an effect."""

ENTERS = 3

STALLED = 2.0
"""Seconds after which a screen that takes nothing more was stopped by somebody."""

_TPGID = 5  # of /proc/PID/stat, counted behind the name
_PGRP = 2


async def deliver(supervisor: Supervisor, session: Session, text: str) -> bool:
    """Give `text` to the session; return whether the screen showed that it was taken.

    Raises ConflictError while that is not possible, NotFoundError for a session that is over.
    """
    if session.state in ("stopped", "failed"):
        raise NotFoundError(f"session '{session.name}' is {session.state}: nobody reads there")
    async with session.lock:
        pane = session.pane if session.alive else None
        if pane is None or session.state == "starting":
            raise ConflictError(f"session '{session.name}' is {session.state}")
        if session.entry.agent == SHELL:
            await asyncio.to_thread(_show, await _tty(supervisor, pane), pane.pid, text)
            return True
        agent = agents.get(session.entry.agent)
        if (why := agent.takes_no_input(supervisor.lifecycle.context(session))) is not None:
            raise NotFoundError(f"session '{session.name}' takes no news: {why}")
        screen = await supervisor.tmux.capture(pane.pane)
        asked = agent.asks(supervisor.lifecycle.context(session), screen)
        if asked is not None:
            raise ConflictError(f"session '{session.name}' waits for a person: {asked}")
        if not screen.strip():
            raise ConflictError(f"session '{session.name}' shows nothing yet")
        await _nobody_writes(supervisor, session, pane)
        return await _paste(supervisor, pane, text)


async def _nobody_writes(supervisor: Supervisor, session: Session, pane: Pane) -> None:
    asked = ("list-clients", "-t", pane.session_key, "-F", "#{client_activity}")
    try:
        times = (await supervisor.tmux.run(*asked)).split()
    except TmuxError:
        return
    if any(time.time() - float(moment) < WRITING for moment in times if moment.isdigit()):
        raise ConflictError(f"somebody is writing in session '{session.name}'")


async def _paste(supervisor: Supervisor, pane: Pane, text: str) -> bool:
    tmux = supervisor.tmux
    flag = await tmux.run("display-message", "-p", "-t", pane.pane, "#{bracket_paste_flag}")
    if flag.strip() == "0":
        # Without the brackets a program could take the end of a line for Enter.
        text = " ".join(text.split("\n"))
    await tmux.paste(pane.pane, text, enter=False)
    await asyncio.sleep(SETTLE)
    for _ in range(ENTERS):
        before = await tmux.capture(pane.pane)
        await tmux.run("send-keys", "-t", pane.pane, "Enter")
        for _ in range(LOOKS):
            await asyncio.sleep(PAUSE)
            if await tmux.capture(pane.pane) != before:
                return True
    log.warning("session %s: no sign that its news were taken", pane.session)
    return False


async def _tty(supervisor: Supervisor, pane: Pane) -> Path:
    path = await supervisor.tmux.run("display-message", "-p", "-t", pane.pane, "#{pane_tty}")
    return Path(path.strip())


def _show(tty: Path, pid: int, text: str) -> None:
    """Write to the screen of a shell that waits for a command; ConflictError while it does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        waits = fields[_TPGID] == fields[_PGRP]
        if not waits:
            raise ConflictError("a program runs in the shell")
        # Not blocking: somebody may have stopped the output.
        descriptor = os.open(tty, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, IndexError) as error:
        raise ConflictError(f"the shell cannot be reached: {error}") from error
    try:
        _write(descriptor, f"\n{text}\n".encode("utf-8", "replace"))
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it; ConflictError when nothing at all can be written."""
    left = memoryview(data)
    while left:
        if not select.select([], [descriptor], [], STALLED)[1]:
            if len(left) == len(data):
                raise ConflictError("the shell's screen takes nothing")
            # Once more would show its beginning twice.
            log.warning("a shell's screen took the beginning of its news only")
            return
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise ConflictError(f"the shell's screen takes nothing: {error.strerror}") from error
