"""What tmux tells of the panes of sessions."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

TITLE = 200
"""Columns read of a title."""


@dataclass(frozen=True)
class Pane:
    """The pane of a session that runs its agent, or the first one of a foreign session."""

    session: str
    """The session's present name."""
    session_key: str
    """tmux's own id of the session, such as `$3`: it never means another one later."""
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
    bell: int = 0
    """Unix time of the last bell in its window, in seconds; 0 before the first."""
    title: str = ""
    """What the program calls the pane; the host's name at first."""
    lost: bool = False
    """The agent's pane is gone, while other windows keep the session open."""
    asked: float = field(default=0.0, compare=False)
    """Unix time at which tmux was asked for all this; what it put out later is not in it."""

    @property
    def ended(self) -> bool:
        """Whether the process is gone and its status known."""
        return self.dead or self.code is not None or self.signal is not None


PANE_FORMAT = "|".join(
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
        "@agent-box-bell",
        # Anything may be in it.
        f"={TITLE};s/[|]/ /:pane_title",
        "session_id",
        "session_name",
    )
)
"""What `list-panes -F` is asked for."""


_NO_ID = re.compile(r"(?![%$][0-9]+$)", re.ASCII)


class GarbledError(ValueError):
    """tmux left something out.

    Since 3.7 it gives up on a format after 100 ms and goes on with what it has, mostly nothing. On
    a busy machine that time may pass without tmux having had a processor at all.
    """


def parse_panes(text: str, asked: float) -> dict[str, Pane]:
    """Return what `list-panes -F PANE_FORMAT` printed, one pane a session.

    Raises GarbledError rather than do without a pane: somebody would be started in its place.
    """
    found: dict[str, Pane] = {}
    # Not all that Python takes for the end of a line is one here.
    for line in text.removesuffix("\n").split("\n") if text else ():
        fields = line.split("|", 13)
        if len(fields) != 14 or _NO_ID.match(fields[0]) or _NO_ID.match(fields[12]):
            raise GarbledError(f"tmux printed {line[:100]!r} in place of a pane")
        pane, pid, dead, code, signo, attached, activity, ours, main = fields[:9]
        launch, bell, title, key, name = fields[9:]
        lost = bool(ours) and pane != main
        known = found.get(name)
        if known is not None and (lost or not known.lost):
            continue
        found[name] = Pane(
            session=name,
            session_key=key,
            pane=pane,
            # A window that the user opened is not the agent.
            pid=0 if lost else int(pid or 0),
            dead=lost or dead == "1",
            code=int(code) if code.isdigit() and not lost else None,
            signal=None if lost else _signal_number(signo),
            attached=int(attached or 0),
            activity=int(activity or 0),
            session_id=ours or None,
            launch=launch or None,
            # The user may set the option, too.
            bell=int(bell) if bell.isascii() and bell.isdigit() else 0,
            title=title,
            lost=lost,
            asked=asked,
        )
    return found


def _signal_number(text: str) -> int | None:
    if not text:
        return None
    if text.isdigit():
        return int(text)
    try:
        return int(signal.Signals[f"SIG{text.removeprefix('SIG')}"])
    except KeyError:
        return None
