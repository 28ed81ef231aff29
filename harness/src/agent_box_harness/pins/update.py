"""Moves one pin: resolve, refuse to go back, hash, prove, write. Each step may end it unchanged."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness.pins import files, prefetch
from agent_box_harness.pins.errors import ConflictError, PinError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_box_harness.pins.kinds import Pin, Pinned
    from agent_box_harness.pins.upstream import Channels, GitHub, Log, Target


@dataclass(frozen=True)
class Wish:
    """How far to go."""

    check: bool = False
    """Only tell whether there is something newer."""
    dry_run: bool = False
    """Do everything but write."""
    allow_downgrade: bool = False
    with_nix: bool = True


@dataclass
class Outcome:
    """What became of one pin."""

    name: str
    path: str
    status: str = "failed"
    """`current`, `available`, `updated`, or `failed` with a message."""
    message: str = ""
    exit_code: int = 0
    old: Pinned | None = None
    new: Pinned | None = None
    label: str = ""
    log: str = ""
    """Address at which a person reads what changed upstream."""
    ahead: int = 0
    subjects: tuple[str, ...] = ()
    diff: str = ""
    before: bytes = b""
    """What the file held; for undoing when a commit fails."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""

        def pinned(pin: Pinned | None) -> dict[str, Any] | None:
            if pin is None:
                return None
            keys = ("owner", "repo", "rev", "hash")
            return {key: getattr(pin, key) for key in keys if getattr(pin, key)}

        return {
            "name": self.name,
            "path": self.path,
            "status": self.status,
            "message": self.message,
            "from": pinned(self.old),
            "to": pinned(self.new),
            "label": self.label,
            "log": self.log,
            "ahead": self.ahead,
            "commits": list(self.subjects),
        }


@dataclass(frozen=True)
class Updater:
    """Moves pins of the checkout at `repo`."""

    repo: Path
    github: GitHub
    channels: Channels
    say: Callable[[str], None] = lambda _: None

    def update(self, pin: Pin, wish: Wish) -> Outcome:
        """Move one pin as far as `wish` says. What goes wrong is in the outcome."""
        outcome = Outcome(pin.name, str(pin.path))
        try:
            self._update(pin, wish, outcome)
        except PinError as error:
            outcome.status, outcome.message = "failed", str(error)
            outcome.exit_code = error.exit_code
        return outcome

    def _update(self, pin: Pin, wish: Wish, outcome: Outcome) -> None:
        path = self.repo / pin.path
        before = outcome.before = files.read(path)
        old = outcome.old = pin.parse(before)
        self.say(f"{pin.name}: asking upstream")
        target = pin.newest(self.github, self.channels, old)
        outcome.label = target.label
        if target.rev == old.rev:
            outcome.status = "current"
            return
        outcome.new = dataclasses.replace(old, rev=target.rev, hash="")
        outcome.log = self.github.log_url(old.owner, old.repo, old.rev, target.rev)
        self._look_back(old, target, wish, outcome)
        if wish.check:
            outcome.status = "available"
            return
        new = outcome.new = self._prove(pin, old, target, wish)
        after = pin.render(before, new)
        if pin.parse(after) != new:
            raise PinError(f"{pin.path} would not say what it should: this is a fault of ours")
        outcome.diff = "".join(
            difflib.unified_diff(
                before.decode().splitlines(keepends=True),
                after.decode().splitlines(keepends=True),
                f"a/{pin.path}",
                f"b/{pin.path}",
            )
        )
        outcome.status = "available"
        if not wish.dry_run:
            files.replace(path, before, after)
            outcome.status = "updated"

    def _look_back(self, old: Pinned, target: Target, wish: Wish, outcome: Outcome) -> None:
        """Refuse a revision that does not descend from the pinned one."""
        log: Log | None = None
        try:
            log = self.github.log(old.owner, old.repo, old.rev, target.rev)
        except ConflictError:
            if not wish.allow_downgrade:
                raise
        if log is None:
            return
        outcome.ahead, outcome.subjects = log.ahead, log.subjects
        if log.status != "ahead" and not wish.allow_downgrade:
            how = {
                "behind": "is older than what is pinned",
                "diverged": "is not built on what is pinned: history was rewritten or a tag moved",
            }.get(log.status, "is what is pinned, by another name")
            raise ConflictError(
                f"{target.rev[:12]} ({target.label}) {how}. Read {outcome.log}, then say "
                "--allow-downgrade if that is what you want"
            )

    def _prove(self, pin: Pin, old: Pinned, target: Target, wish: Wish) -> Pinned:
        """Fetch what the new pin names and return the pin with the hash of that."""
        self.say(f"{pin.name}: fetching {target.rev[:12]} to hash it")
        archive = self.github.archive(old.owner, old.repo, target.rev)
        program = prefetch.program() if wish.with_nix else None
        if program is not None:
            self.say(f"{pin.name}: asking Nix for the same")
            theirs = prefetch.hash_of(program, old.owner, old.repo, target.rev)
            if theirs != archive.hash:
                raise PinError(
                    f"{target.rev[:12]} has the hash {archive.hash} when we fetch it and {theirs} "
                    "when Nix does: somebody between here and GitHub changes it, or GitHub is "
                    "at it. Try again later, from elsewhere"
                )
        modified = old.modified
        if modified is not None:
            modified = self.github.committed(old.owner, old.repo, target.rev)
            if archive.modified != modified:
                raise PinError(
                    f"the commit {target.rev[:12]} and its archive have different times: do not "
                    "trust it, try again later"
                )
        return dataclasses.replace(old, rev=target.rev, hash=archive.hash, modified=modified)
