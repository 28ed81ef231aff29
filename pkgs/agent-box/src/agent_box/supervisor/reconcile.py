"""The decision at the heart of the supervisor: what is wanted, what is there, what to do.

One pure function over one session. The runner calls it for every name that is listed or
exists, and carries the actions out.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_box.panes import Pane
    from agent_box.registry import Entry


class Phase(Enum):
    """Where the supervisor is with a session."""

    IDLE = "idle"
    """Nothing is known or running yet."""
    STARTING = "starting"
    """The launcher runs and has not become the agent yet."""
    RUNNING = "running"
    CRASHED = "crashed"
    """Ended against its will; comes back when the delay is over."""
    FAILED = "failed"
    """Cannot start as configured; waits for a human."""
    PARKED = "parked"
    """Ended by its own decision (exit 0)."""


class Action(Enum):
    """What the runner has to do with a session."""

    NOTHING = "nothing"
    START = "start"
    """Make a new tmux session."""
    RESPAWN = "respawn"
    """Start again in the pane of the ended run."""
    ADOPT = "adopt"
    """A live process of ours was found; take it over without touching it."""
    FINISH = "finish"
    """A run ended; find out how and decide what follows."""
    END = "end"
    """Ours, and not wanted any more: end it."""
    BLOCKED = "blocked"
    """A tmux session that is not ours has the name; a human has to move one of the two."""


def decide(
    entry: Entry | None,
    pane: Pane | None,
    phase: Phase,
    *,
    due: bool,
    namesake: Pane | None = None,
) -> Action:
    """Return what to do with one session.

    `entry` is what the registry wants, `pane` the tmux session that was started for it,
    `due` whether the delay of a crashed session is over, `namesake` another tmux session
    that has the entry's name. Without an entry, `pane` is any session that nothing wants.
    """
    ours = pane is not None and pane.session_id is not None
    if entry is None:
        return Action.END if ours else Action.NOTHING
    if pane is not None and pane.session_id != entry.id:
        # Never touch as ours what was started for something else.
        pane, namesake, ours = None, pane, False
    if entry.stopped or phase is Phase.PARKED:
        return Action.END if ours else Action.NOTHING
    if phase is Phase.FAILED:
        return Action.NOTHING
    if pane is None:
        action = _absent(phase, due=due)
        if action is Action.START and namesake is not None:
            # A session of ours with this name is on its way out: the name was reused.
            return Action.BLOCKED if namesake.session_id is None else Action.NOTHING
        return action
    if not pane.ended:
        return Action.ADOPT if phase in (Phase.IDLE, Phase.CRASHED) else Action.NOTHING
    if phase is Phase.CRASHED:
        return Action.RESPAWN if due else Action.NOTHING
    return Action.FINISH


def _absent(phase: Phase, *, due: bool) -> Action:
    if phase in (Phase.STARTING, Phase.RUNNING):
        return Action.FINISH
    if phase is Phase.CRASHED and not due:
        return Action.NOTHING
    return Action.START


def by_session(panes: Mapping[str, Pane], names: Mapping[str, str]) -> dict[str, Pane]:
    """Return the panes of ours by the session id they were started for.

    `panes` are all by their tmux session's name, `names` the listed names by id: they decide
    where two tmux sessions claim one id.
    """
    found: dict[str, Pane] = {}
    for name, pane in panes.items():
        session_id = pane.session_id
        if session_id is not None and (session_id not in found or names.get(session_id) == name):
            found[session_id] = pane
    return found
