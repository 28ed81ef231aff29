"""Which notice leads to what: pure decisions, so that every order of events can be tried."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

MARGIN = 10.0
"""Seconds before an announced end at which sessions are stopped at the latest."""


@dataclass(frozen=True)
class Notice:
    """One announcement of the cloud."""

    kind: Literal["interruption", "rebalance", "maintenance"]
    action: str
    """What will happen: `stop`, `hibernate`, `terminate`, or the code of a maintenance."""
    at: float | None
    """When, in unix seconds; of a rebalance, when it was announced."""


@dataclass(frozen=True)
class Tell:
    """Say something in every session."""

    text: str


@dataclass(frozen=True)
class Stop:
    """Write everything to the disks and end the sessions; they resume on the next boot."""


@dataclass(frozen=True)
class Start:
    """Let the sessions run again: the machine stays."""


Step = Tell | Stop | Start


class Watch:
    """Remembers what was announced and what was done about it.

    `grace` is how many seconds sessions get between the news and their end. `message` replaces
    what they are told of an interruption.
    """

    def __init__(self, grace: float, message: str | None = None) -> None:
        self.grace = grace
        self.message = message
        self.interruption: Notice | None = None
        self.stopped = False
        self._stop_at: float | None = None
        self._told: set[Notice] = set()

    def seen(self, interruption: Notice | None, now: float) -> list[Step]:
        """Take in whether an interruption is announced at present."""
        if interruption == self.interruption:
            return self.due(now)
        steps: list[Step] = []
        if interruption is None:
            if self.stopped:
                steps.append(Start())
            steps.append(Tell("The cloud keeps this machine after all. Carry on."))
            self.stopped, self._stop_at = False, None
        else:
            steps.append(Tell(self.message or _warning(interruption)))
            # A machine that hibernates wakes with its sessions as they are.
            self._stop_at = None
            if interruption.action != "hibernate":
                latest = float("inf") if interruption.at is None else interruption.at - MARGIN
                self._stop_at = min(now + self.grace, latest)
        self.interruption = interruption
        return steps + self.due(now)

    def due(self, now: float) -> list[Step]:
        """Return what time alone brings: nothing keeps an end from coming."""
        if self._stop_at is None or self.stopped or now < self._stop_at:
            return []
        self.stopped = True
        return [Stop()]

    def heard(self, notice: Notice) -> list[Step]:
        """Take in what is only told, each once."""
        if notice in self._told:
            return []
        self._told.add(notice)
        if notice.kind == "rebalance":
            return [
                Tell(
                    "The cloud may need this machine soon and will then give two minutes of "
                    "warning. Commit and push what you have, and keep steps small."
                )
            ]
        return [
            Tell(
                f"The cloud has scheduled a maintenance of this machine ({notice.action})"
                f"{_when(notice.at)}. Have your work committed by then; sessions resume afterwards."
            )
        ]


def _warning(notice: Notice) -> str:
    if notice.action == "hibernate":
        return (
            f"The cloud will hibernate this machine{_when(notice.at)}. Commit what you have; "
            "connections to other machines will break."
        )
    if notice.action == "terminate":
        return (
            f"The cloud will delete this machine{_when(notice.at)}, disk included. Push your work "
            "to another machine now: what stays here is lost."
        )
    return (
        f"The cloud will stop this machine{_when(notice.at)}. Write down what you need to carry "
        "on and commit your work now; this session resumes when the machine is back."
    )


def _when(at: float | None) -> str:
    if at is None:
        return ""
    return f" at {datetime.fromtimestamp(at, UTC):%H:%M:%S UTC on %d %B}"
