"""Which events a subscription lets through, who claims one, and what that does to its clock.

The rules are the local-webhook plugin's, letter by letter: in a Claude session the plugin decides,
everywhere else we do, and both must agree on whose event it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_box.subscriptions import predicates, topics
from agent_box.subscriptions.files import WARM

if TYPE_CHECKING:
    from agent_box.subscriptions.files import Entry, Filter

CI_EVENTS = (
    *("workflow_run", "workflow_job", "check_run", "check_suite"),
    *("status", "deployment_status"),
)
"""Events about a run: their sender is merely who set it off."""

FAILING = frozenset(
    ("failure", "timed_out", "action_required", "startup_failure", "stale", "error")
)
"""Outcomes that somebody should look at."""

SELF = "@self"
"""Stands for the login of the user's own agents."""


@dataclass(frozen=True)
class Event:
    """An event as subscriptions see it."""

    source: str
    event: str
    key: str
    sender: str
    payload: Any

    @property
    def ci(self) -> bool:
        """Whether it is about a run."""
        return self.event in CI_EVENTS


@dataclass
class Decision:
    """What a file of subscriptions says about an event."""

    entry: Entry | None = None
    """The first one that lets it through."""
    refused: bool = False
    """Whether a topic matched and every subscription to it said no."""
    accepted: list[Entry] = field(default_factory=list)


def is_news(event: Event) -> bool:
    """Tell whether a run ended in a way that somebody should look at.

    A shape that nobody knows counts as news: a real failure must never be swallowed.
    """
    if not event.ci:
        return False
    payload = event.payload if isinstance(event.payload, dict) else {}
    if event.event == "status":
        outcome = payload.get("state")
    elif event.event == "deployment_status":
        outcome = predicates.look(payload, "deployment_status.state")
    else:
        if payload.get("action") not in (None, "", "completed"):
            return False
        outcome = predicates.look(payload, f"{event.event}.conclusion")
    return not isinstance(outcome, str) or not outcome or outcome in FAILING


def lets_through(entry: Entry, event: Event, login: str | None, *, ci_exempt: bool) -> bool:
    """Tell whether a subscription whose topic matches wants the event."""
    if entry.declarative:
        payload = event.payload if isinstance(event.payload, dict) else {}
        seen = payload if "event" in payload else {**payload, "event": event.event}
        if entry.exclude is not None and predicates.holds(entry.exclude, seen):
            return False
        if entry.include is not None and not predicates.holds(entry.include, seen):
            return False
    if not entry.ignore or not event.sender:
        return True
    if not entry.declarative and event.ci and ci_exempt:
        return True
    sender = event.sender.lower()
    for name in entry.ignore:
        meant = login if name.strip().lower() == SELF else name.strip()
        if meant and meant.lower() == sender:
            return False
    return True


def decide(
    content: Filter, event: Event, now: float, login: str | None, *, ci_exempt: bool = True
) -> Decision:
    """Return what the subscriptions say; nothing is changed."""
    decision = Decision()
    if content.state != "ok" or not content.enabled or not event.key:
        return decision
    for entry in content.live(now):
        if not topics.matches(entry.topic, event.source, event.key):
            continue
        if lets_through(entry, event, login, ci_exempt=ci_exempt):
            decision.accepted.append(entry)
        else:
            decision.refused = True
    if decision.accepted:
        decision.entry, decision.refused = decision.accepted[0], False
    return decision


def stamp(entry: Entry, now: float) -> None:
    """Note that an event came, which restarts the clock while its reader is still warm."""
    if entry.renew or (entry.active is not None and now - entry.active < WARM):
        entry.subscribed = now
    entry.active = now


def claims(content: Filter, event: Event, now: float, login: str | None) -> str | None:
    """Return how a living session owns the event, or None.

    `subscribed`: a run, and the session listens to where it ran. `declared`: anything else, and
    the session said by a rule that this very object is its own.
    """
    accepted = decide(content, event, now, login, ci_exempt=True).accepted
    if not accepted:
        return None
    if event.ci:
        return "subscribed"
    return "declared" if any(entry.include is not None for entry in accepted) else None
