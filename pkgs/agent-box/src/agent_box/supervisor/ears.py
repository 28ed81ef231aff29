"""Hears the notifications that programs send through their terminals (OSC 9, 777 and 99).

tmux (3.3a to 3.7) drops these sequences: no hook, format or option tells of them, and a client in
control mode is given only the output of the session that it is attached to, for which it would
count as somebody who looks. What is left is `pipe-pane`. Its command (`agent-box-hook output`) only
hands its end of tmux's socket pair to the supervisor and is gone, so that a session costs no
process; and the supervisor reads ten times a second at most, however often a spinner turns: with
10 and with 60 frames a second it used 0.5 % of a core, most of that for its usual looks. tmux keeps
what nobody reads, so that a flood is read as it comes, yet only its end is looked through: 20 MB of
notifications cost 0.2 s of processor time.

Only agents whose adapter says what their notifications mean are listened to (`agents.terminal`). A
`pipe-pane` of the user's own takes the place of ours until the next start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_box import agents
from agent_box.agents.terminal import Terminal
from agent_box.supervisor.osc import Notices
from agent_box.tmux import TmuxError

if TYPE_CHECKING:
    from agent_box.supervisor.model import Session
    from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

PAUSE = 0.1
"""Seconds between two looks at the output of a session."""

PIECE = 65536
"""Bytes read at once, and looked through at each look."""

PIECES = 16
"""Pieces read before others get their turn."""


@dataclass
class _Ear:
    """The output of one session."""

    session: Session
    descriptor: int
    notices: Notices = field(default_factory=Notices)
    timer: asyncio.TimerHandle | None = None


class Ears:
    """Listens to the terminals of the sessions of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._expected: dict[str, Session] = {}
        self._ears: dict[str, _Ear] = {}

    async def listen(self, session: Session) -> None:
        """Listen to a session that was started or adopted, if its agent needs that."""
        pane = session.pane
        if pane is None or not meaning(session).notices:
            return
        # It names the session to `take`: panes may be had by anybody who runs in one.
        token = os.urandom(16).hex()
        self._expected = {known: s for known, s in self._expected.items() if s is not session}
        self._expected[token] = session
        try:
            await self.supervisor.tmux.pipe(pane, f"exec agent-box-hook output {token}")
        except TmuxError as error:
            log.warning("the terminal of session %s is not listened to: %s", session.name, error)

    def take(self, token: object, descriptor: int) -> bool:
        """Take over what `agent-box-hook output` got from tmux; return whether it is wanted."""
        session = self._expected.pop(token, None) if isinstance(token, str) else None
        if session is None or not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        self.forget(session.id)
        os.set_blocking(descriptor, False)
        self._ears[session.id] = ear = _Ear(session, descriptor)
        self._open(ear)
        return True

    def forget(self, session_id: str) -> None:
        """Stop listening to a session."""
        ear = self._ears.pop(session_id, None)
        if ear is None:
            return
        if ear.timer is not None:
            ear.timer.cancel()
        asyncio.get_running_loop().remove_reader(ear.descriptor)
        os.close(ear.descriptor)

    def stop(self) -> None:
        """Stop listening to all."""
        for session_id in list(self._ears):
            self.forget(session_id)

    def _open(self, ear: _Ear) -> None:
        ear.timer = None
        asyncio.get_running_loop().add_reader(ear.descriptor, self._read, ear)

    def _read(self, ear: _Ear) -> None:
        pieces: list[bytes] = []
        while len(pieces) < PIECES:
            try:
                pieces.append(os.read(ear.descriptor, PIECE))
            except BlockingIOError:
                # Until something is there again, and then a little longer.
                loop = asyncio.get_running_loop()
                loop.remove_reader(ear.descriptor)
                ear.timer = loop.call_later(PAUSE, self._open, ear)
                break
            except OSError:
                pieces.append(b"")
            if not pieces[-1]:
                self.forget(ear.session.id)
                break
        data = b"".join(pieces)
        if len(data) > PIECE:
            ear.notices = Notices()
        for text in ear.notices.feed(data[-PIECE:]):
            self.supervisor.attention.notified(ear.session, text)


def meaning(session: Session) -> Terminal:
    """Return what the terminal of a session tells, by the adapter of its agent."""
    try:
        return agents.get(session.entry.agent).terminal
    except KeyError:  # adopted, and not supported any more
        return Terminal()
