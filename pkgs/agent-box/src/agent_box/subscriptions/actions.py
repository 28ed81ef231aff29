"""Subscribing, renewing and unsubscribing, for every way in: command line, settings, spawner."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_box.errors import UsageError
from agent_box.locking import locked
from agent_box.subscriptions import files, predicates, topics
from agent_box.subscriptions.files import Entry, Filter
from agent_box.subscriptions.place import DISPATCH, filter_path
from agent_box.subscriptions.routing import CI_EVENTS, SELF

if TYPE_CHECKING:
    from pathlib import Path

NOISE: dict[str, Any] = {
    "any": [
        {
            "path": "event",
            "in": [
                *("star", "watch", "fork", "gollum", "member", "membership", "team", "team_add"),
                *("public", "sponsorship", "delete", "page_build", "project", "project_card"),
                "project_column",
            ],
        },
        {"path": "workflow_run.event", "in": ["schedule"]},
    ]
}
"""What a new subscription of a session leaves out unless told otherwise."""


@dataclass(frozen=True)
class Wish:
    """What a subscribe asks for; `None` leaves a field as it is (or at its default)."""

    topic: str
    note: str | None = None
    ttl: float | None = None
    renew: bool | None = None
    ignore: list[str] | None = None
    include: Any = None
    exclude: Any = None
    clear: frozenset[str] = frozenset()
    """`include` or `exclude`, to take the rule away."""


@dataclass
class Outcome:
    """What became of a request."""

    entry: Entry | None
    """The subscription now in force."""
    renewed: bool = False
    removed: int = 0
    filter: Filter = field(default_factory=lambda: Filter("absent"))
    expired: list[str] = field(default_factory=list)
    """Topics whose time was over, removed on the way."""


def subscribe(directory: Path, key: str, wish: Wish, login: str | None) -> Outcome:
    """Add or renew a subscription of `key`; DISPATCH is the list of standing watches.

    `login` is what `@self` means. Raises UsageError for what makes no sense.
    """
    topic = topics.normal(wish.topic)
    for name in ("include", "exclude"):
        rule = getattr(wish, name)
        if rule is not None:
            predicates.check(rule, name)
    now = time.time()
    outcome = Outcome(None)

    def edit(content: Filter) -> bool:
        outcome.expired = prune(content, now)
        entry = next((one for one in content.entries if topics.same(one.topic, topic)), None)
        outcome.renewed = entry is not None
        if entry is None:
            entry = _new(topic, wish, key, login)
            content.entries.append(entry)
        else:
            _renew(entry, wish, login)
        entry.subscribed = now
        content.enabled = True
        outcome.entry = entry
        return True

    path = filter_path(directory, key)
    outcome.filter = files.change(path, edit, now, replace_invalid=True)
    return outcome


def _new(topic: str, wish: Wish, key: str, login: str | None) -> Entry:
    entry = Entry(topic)
    if key == DISPATCH:
        # A fresh session has no warm context that a late event could be too late for.
        entry.ttl = 0
    _apply(entry, wish)
    if key == DISPATCH:
        return entry
    if wish.exclude is None and "exclude" not in wish.clear:
        entry.exclude = NOISE
        if entry.ignore:
            _fold(entry, login)
    return entry


def _renew(entry: Entry, wish: Wish, login: str | None) -> None:
    folded = _unfold(entry)
    _apply(entry, wish)
    if folded is None or wish.exclude is not None or "exclude" in wish.clear:
        return
    if wish.ignore is None:
        entry.ignore = folded
    if entry.ignore:
        _fold(entry, login)


def _apply(entry: Entry, wish: Wish) -> None:
    if wish.note is not None:
        entry.note = wish.note.strip()[: files.NOTE_MAX] or None
    if wish.ttl is not None:
        entry.ttl = wish.ttl
    if wish.renew is not None:
        entry.renew = wish.renew
    if wish.ignore is not None:
        entry.ignore = [name.strip() for name in wish.ignore if name.strip()]
    for name in ("include", "exclude"):
        if name in wish.clear:
            setattr(entry, name, None)
        elif getattr(wish, name) is not None:
            setattr(entry, name, getattr(wish, name))


def _fold(entry: Entry, login: str | None) -> None:
    """Say "not from these people, but results of their runs" in rules.

    Beside a rule, `ignoreSenders` would mute runs as well: a session must hear of the failure of
    what it pushed itself.
    """
    names = [login if name.lower() == SELF else name for name in entry.ignore]
    if any(name is None for name in names):
        raise UsageError(
            "@self: it is not known who this box is on GitHub; sign in (gh auth login, or"
            " GH_TOKEN in the secrets), run: agent-box-webhook self --refresh, or give the login"
        )
    entry.exclude = {
        "any": [
            *NOISE["any"],
            {
                "all": [
                    {"path": "sender.login", "in": names},
                    {"path": "event", "notIn": list(CI_EVENTS)},
                ]
            },
        ]
    }
    entry.ignore = []


def _unfold(entry: Entry) -> list[str] | None:
    """Return whom a folded rule ignores, [] for plain noise; None for any rule that is not ours."""
    if entry.exclude == NOISE:
        return []
    parts = entry.exclude.get("any") if isinstance(entry.exclude, dict) else None
    if not isinstance(parts, list) or parts[:-1] != NOISE["any"]:
        return None
    try:
        sender, event = parts[-1]["all"]
        if sender["path"] == "sender.login" and event == {"path": "event", "notIn": [*CI_EVENTS]}:
            return [str(name) for name in sender["in"]]
    except (KeyError, TypeError, ValueError):
        pass
    return None


def ignored(entry: Entry) -> list[str]:
    """Return whose events a subscription leaves out, however that is written."""
    return entry.ignore or _unfold(entry) or []


def unsubscribe(directory: Path, key: str, topic: str) -> Outcome:
    """Remove every subscription to exactly this topic, valid or not; fine when there is none."""
    wanted = topic.strip()
    short = f"github:{wanted}" if ":" not in wanted and "/" in wanted else wanted
    now = time.time()
    outcome = Outcome(None)

    def edit(content: Filter) -> bool:
        outcome.expired = prune(content, now)
        kept = [
            entry
            for entry in content.entries
            if not topics.same(entry.topic, wanted) and not topics.same(entry.topic, short)
        ]
        outcome.removed = len(content.entries) - len(kept)
        content.entries = kept
        return bool(outcome.removed or outcome.expired)

    outcome.filter = files.change(filter_path(directory, key), edit, now)
    return outcome


def clear(directory: Path, key: str) -> bool:
    """Remove the file of `key`, broken or not, so that it is as if it never subscribed.

    Return whether there was one.
    """
    path = filter_path(directory, key)
    if not path.exists():
        return False
    with locked(path):
        path.unlink(missing_ok=True)
    return True


def prune(content: Filter, now: float) -> list[str]:
    """Drop subscriptions whose time is over and return their topics."""
    over = [entry.topic for entry in content.entries if entry.expired(content.ttl, now)]
    if over:
        content.entries = content.live(now)
    return over


def govern(content: Filter, policy: dict[str, dict[str, Any]]) -> Filter:
    """Return the standing watches as the box's configuration wants them.

    It has the last word on the rules of the topics that it names.
    """
    if not policy:
        return content
    entries = []
    for entry in content.entries:
        rules = policy.get(entry.topic)
        if rules is not None:
            entry = dataclasses.replace(
                entry,
                include=rules.get("when"),
                exclude=rules.get("drop"),
                ignore=list(rules.get("ignoreSenders") or []),
                note=rules.get("note") or entry.note,
            )
        entries.append(entry)
    return dataclasses.replace(content, entries=entries)
