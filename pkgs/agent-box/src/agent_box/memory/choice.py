"""Whose memory it is, and what of theirs has to end.

First by user, all of whose groups count together, then the heaviest session or program of that
user. Whoever goes on taking memory loses more each time: a program, its group, everything.
"""

from __future__ import annotations

import contextlib
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box.memory import groups
from agent_box.memory.groups import Group, Process

if TYPE_CHECKING:
    from agent_box.config import Box

SESSION = "session-"
"""What the supervisor calls the group of a session. What is below belongs to the session."""

FAIR = 0.5
"""Share of the memory that users can expect together, each the same part of it."""

_DASH = "\\x2d"
"""A dash in the name of a user, where a dash means "below"."""

MEMORY = 10.0
"""Seconds for which it is remembered who lost something."""


@dataclass
class Owner:
    """A user of the box."""

    name: str
    uid: int
    slices: list[Path]
    strikes: list[float] = field(default_factory=list)
    """When they lost something lately."""

    def __contains__(self, path: str) -> bool:
        return any(path == str(part) or path.startswith(f"{part}/") for part in self.slices)


@dataclass(frozen=True)
class Victim:
    """What has to end."""

    owner: str
    what: list[Group] | Process
    weight: int

    def describe(self) -> str:
        """Say in words what it is."""
        if isinstance(self.what, Process):
            return f"process {self.what.pid} ({self.what.name!r})"
        return "all in " + ", ".join(str(group.path.name) for group in self.what)


def owners(box: Box) -> list[Owner]:
    """Return the users of a box that have an account."""
    found = []
    for name, user in sorted(box.users.items()):
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(name).pw_uid
            logins = Path("user.slice", f"user-{uid}.slice")
            agents = user.slice or f"agent-box-{name.replace('-', _DASH)}.slice"
            found.append(Owner(name, uid, [groups.of_slice(agents), logins]))
    return found


class Judge:
    """Chooses on one machine."""

    def __init__(self, owners: list[Owner], mount: Path, proc: Path = Path("/proc")) -> None:
        self.owners = owners
        self.mount = mount
        self.proc = proc
        self.counted = groups.counted(mount)

    def choose(self, total: int, now: float) -> Victim | None:
        """Return what has to end on a machine with `total` bytes of memory.

        Nothing if all that is left of who uses most are files in memory: nobody else pays.
        """
        if self.counted:
            weights = [(sum(group.weight for group in self._of(one)), one) for one in self.owners]
            weight, owner = max(weights, key=lambda pair: pair[0], default=(0, None))
            if owner is not None and weight > total * FAIR / len(self.owners):
                return self._by_group(owner, weight, now)
        return self._by_process(now)

    def _of(self, owner: Owner) -> list[Group]:
        return [Group(self.mount / part) for part in owner.slices]

    def _by_group(self, owner: Owner, weight: int, now: float) -> Victim | None:
        all_of_it = self._of(owner)
        if not any(group.populated() for group in all_of_it):
            return None
        strikes = _struck(owner, now)
        if strikes >= 2:
            return Victim(owner.name, all_of_it, weight)
        group = _heaviest(max(all_of_it, key=lambda group: group.weight))
        if not group.populated():
            return Victim(owner.name, all_of_it, weight)
        if strikes == 0:
            inside = (groups.process(pid, self.proc) for pid in group.pids())
            largest = max(
                (one for one in inside if one is not None),
                key=lambda one: one.weight,
                default=None,
            )
            if largest is not None and largest.weight * 2 >= group.weight:
                group.mark()
                return Victim(owner.name, largest, largest.weight)
        return Victim(owner.name, [group], group.weight)

    def _by_process(self, now: float) -> Victim | None:
        """Where groups do not count, or what grew is no user's: sum up processes.

        Those of root belong together in nothing but their account, so each stands for itself.
        """
        found: dict[str, list[Process]] = {}
        users = {owner.uid: owner for owner in self.owners}
        for one in groups.processes(self.proc):
            if one.spared or one.pid == 1:
                continue
            owner = users.get(one.uid)
            if owner is None:
                path = groups.slice_of(one.pid, self.proc)
                owner = next((user for user in self.owners if path in user), None)
            key = owner.name if owner else f"uid {one.uid}" if one.uid else f"pid {one.pid}"
            found.setdefault(key, []).append(one)
        if not found:
            return None
        key, mine = max(found.items(), key=lambda item: sum(one.weight for one in item[1]))
        owner = next((user for user in self.owners if user.name == key), None)
        if owner is not None and _struck(owner, now) >= 2:
            everything = self._of(owner)
            if any(group.populated() for group in everything):
                return Victim(key, everything, sum(one.weight for one in mine))
        largest = max(mine, key=lambda one: one.weight)
        return Victim(key, largest, largest.weight)


def _struck(owner: Owner, now: float) -> int:
    """Return how often the user lost something lately, and count this time."""
    owner.strikes = [at for at in owner.strikes if now - at < MEMORY]
    owner.strikes.append(now)
    return len(owner.strikes) - 1


def _heaviest(group: Group) -> Group:
    """Return the heaviest session or leaf below a group.

    What a group has beyond those below it, like files in memory whose writer is gone, only goes
    with the group itself.
    """
    while not group.path.name.startswith(SESSION):
        below = [(part.weight, part) for part in group.below()]
        if not below or sum(weight for weight, _ in below) * 2 < group.weight:
            break
        group = max(below, key=lambda pair: pair[0])[1]
    return group
