"""One session as the supervisor sees it, and how the rest of the box sees that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from agent_box import views
from agent_box.supervisor.cgroups import Applied
from agent_box.supervisor.reconcile import Phase
from agent_box.visible import visible_line

if TYPE_CHECKING:
    from agent_box.panes import Pane
    from agent_box.registry import Entry
    from agent_box.supervisor.record import Record


class TurnLock(asyncio.Lock):
    """A lock that counts how often it was released, so that a look can tell what it missed."""

    turns = 0

    def release(self) -> None:
        """Release the lock."""
        self.turns += 1
        super().release()


@dataclass
class Signal:
    """One of the words of `agents.hook` and when it came (unix seconds)."""

    word: str
    at: float
    own: bool = False
    """Whether a hook or the like told it, and not what the agent put out."""
    text: str = ""
    """What the agent said with it, cleaned (`agents.terminal.clean`)."""
    lasting: bool = False
    """Whether it stands until the agent takes it back, as a title does."""
    shown: bool = False
    """Whether the screen has shown what the word is about."""


@dataclass
class Session:
    """A listed session and what became of it."""

    name: str
    entry: Entry
    record: Record
    phase: Phase = Phase.IDLE
    reason: str | None = None
    """Why it failed or crashed, in words."""
    pane: Pane | None = None
    """The tmux session that was started for this one, whatever it is called."""
    namesake: Pane | None = None
    """Another tmux session that has this one's name."""
    unseen: bool = False
    """Whether it is being started and tmux has not told of its pane yet: until then it is not
    called running, since nobody could say which process that is."""
    blocked: bool = False
    """Whether it failed because of its namesake."""
    failures: int = 0
    """Failures in a row."""
    next_retry: float | None = None
    """Event-loop time of the next start of a crashed session."""
    next_retry_at: float | None = None
    """The same as unix time, for people."""
    since: float = 0.0
    """Unix time at which the present phase began."""
    oom_kills: int = 0
    """The group's counter when the run started."""
    applied: Applied = field(default_factory=Applied)
    attention: str | None = None
    """What the agent asks a human for."""
    typed: str | None = None
    """What the launch leaves to be typed once the agent is ready."""
    idle_since: float | None = None
    """Unix time of its last output, while the agent neither works nor asks for anything."""
    signal: Signal | None = None
    """The last thing that the agent itself told."""
    bell: int | None = None
    """Unix time of the last bell that was heard; None before the first look."""
    title: str | None = None
    """The word that its title was last seen to mean."""
    credential: bool | None = None
    """Whether credentials are in place, as of the last look."""
    last_call: Literal["worked", "refused", "failed"] | None = None
    """What became of the last turn, as far as it shows: the credentials may be dead."""
    probed_at: float = 0.0
    """Unix time at which its screen was last read."""
    reaping: float | None = None
    """Event-loop time since which the process is gone and its status not known."""
    lock: TurnLock = field(default_factory=TurnLock)
    """Held while something is done to the session; the reconciler leaves it alone then."""

    @property
    def id(self) -> str:
        """The session's id."""
        return self.record.id

    @property
    def prompt_pending(self) -> bool:
        """Whether the kickoff prompt still has to reach the agent."""
        return self.entry.initial_prompt is not None and not self.record.delivered

    @property
    def state(self) -> str:
        """The word that every surface shows."""
        if self.entry.stopped or self.phase is Phase.PARKED:
            return "stopped"
        if self.phase is Phase.IDLE or (self.phase is Phase.RUNNING and self.unseen):
            return "starting"
        if self.phase is Phase.RUNNING and self.attention:
            return "waiting"
        return str(self.phase.value)

    @property
    def alive(self) -> bool:
        """Whether its process is believed to run."""
        return self.pane is not None and not self.pane.ended

    def enter(self, phase: Phase, now: float, reason: str | None = None) -> None:
        """Move to `phase` at unix time `now`."""
        if phase is not self.phase or reason != self.reason:
            self.since = now
        self.phase = phase
        self.reason = reason
        if phase is not Phase.CRASHED:
            self.next_retry = self.next_retry_at = None
        if phase is not Phase.FAILED:
            self.blocked = False
        if phase is not Phase.RUNNING:
            self.attention = self.idle_since = self.signal = None
            self.probed_at = 0.0

    def view(self) -> dict[str, Any]:
        """Return what `ls` and the events show."""
        last = self.record.exits[-1] if self.record.exits else None
        reason = self.attention if self.state == "waiting" else self.reason
        shown = self.state not in ("stopped", "starting")
        # Until it is told how it ended its process is still the one that ran.
        runs = self.alive or self.state in ("running", "waiting")
        return {
            "name": self.name,
            "agent": self.entry.agent,
            "state": self.state,
            "reason": visible_line(reason) if reason and shown else None,
            "id": self.record.id,
            "pid": (self.pane.pid or None) if self.pane is not None and runs else None,
            "workingDirectory": self.entry.working_directory,
            "promptPending": self.prompt_pending,
            "restarts": self.record.restarts,
            "since": self.since,
            "idleSince": self.idle_since if self.state == "running" else None,
            "credential": self.credential,
            "lastCall": self.last_call,
            "nextRetry": self.next_retry_at,
            "lastExit": msgspec.to_builtins(last) if last else None,
            "attached": self.pane.attached if self.pane is not None else 0,
            "limits": {
                "memoryMax": self.applied.memory_max,
                "tasksMax": self.applied.tasks_max,
            },
        }


def foreign_view(pane: Pane) -> dict[str, Any]:
    """Return the view of a tmux session that the registry does not list."""
    seen = {"pid": pane.pid, "since": float(pane.activity), "attached": pane.attached}
    return views.unmanaged(pane.session) | seen


def invalid_view(name: str, reason: str) -> dict[str, Any]:
    """Return the view of an entry that makes no sense."""
    return views.unmanaged(name) | {"state": "failed", "reason": reason}
