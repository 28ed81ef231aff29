"""One update, from the question what is newer to the lock file that says what runs."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent_box.errors import AgentBoxError, ConflictError, InternalError, NotFoundError
from agent_box.locking import atomic_write, clear_leftovers
from agent_box.update import lockfile, status
from agent_box.update.status import Status

if TYPE_CHECKING:
    from agent_box.config import Update

RUNNING = Path("/run/current-system")
PROFILE = Path("/nix/var/nix/profiles/system")
LOCK = "flake.lock"
OUTPUT_LINES = 5


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch is about to do; written before it begins, removed when all is settled."""

    before: str
    """The system that ran."""
    after: str
    """The system that was built."""
    lock_before: str
    """SHA-256 of the lock file that the update started from."""


class CommandError(InternalError):
    """A command of the update failed; `status` is its exit status, negative for a signal."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.status = code


@dataclass
class Updater:
    """Updates the box that `config` describes. Paths are arguments so that tests can move them."""

    config: Update
    state: Path = status.STATE
    running: Path = RUNNING
    profile: Path = PROFILE

    @property
    def flake(self) -> Path:
        """The flake that the box is built from."""
        return Path(self.config.flake)

    @property
    def work(self) -> Path:
        """Copy of the flake, plan and built system; root's alone."""
        return self.state / "update"

    @property
    def copy(self) -> Path:
        """The copy of the flake that the update works on."""
        return self.work / "flake"

    @property
    def plan_path(self) -> Path:
        """Where the plan is kept while there is one."""
        return self.work / "plan.json"

    # -- an update -----------------------------------------------------------

    def update(self) -> Status:
        """Update the box; return how it ended. Never raises for what can go wrong."""
        self.recover()
        now = Status(phase="resolving", started=time.time(), message="asking upstream")
        try:
            now = self._update(now)
        except CommandError as error:
            now = self._settle(now, str(error), error.status)
        except AgentBoxError as error:
            now = self._settle(now, str(error), None)
        except OSError as error:
            now = self._settle(now, in_words(error), None)
        # In this order: an update that has not ended is settled after a power cut.
        status.write(now, self.state)
        self._clear()
        return now

    def _update(self, now: Status) -> Status:
        try:
            old_lock = (self.flake / LOCK).read_bytes()
        except FileNotFoundError:
            raise NotFoundError(
                f"{self.flake / LOCK} is missing: put the flake that the box is built from there, "
                "or name its folder in services.agent-box.selfUpdate.flake"
            ) from None
        old = lockfile.parse(old_lock, self.flake / LOCK)
        now.before = lockfile.revisions(old)
        self._enter(now, "resolving", "asking upstream what is newer")
        self._copy_flake()
        self._command("resolve", "nothing was changed")
        new_lock = (self.copy / LOCK).read_bytes()
        if new_lock == old_lock:
            return status.ended(now, "current", "the box is up to date")

        self._enter(now, "checking", "making sure that it only goes forward")
        new = lockfile.parse(new_lock, self.copy / LOCK)
        lockfile.check_forward(old, new, self.config.input, self.config.api)
        now.to = lockfile.revisions(new)

        self._enter(now, "building", "building the new system")
        self._command("build", "nothing was changed")
        after = self._built()
        plan = Plan(
            before=os.path.realpath(self.running),
            after=after,
            lock_before=hashlib.sha256(old_lock).hexdigest(),
        )
        atomic_write(self.plan_path, msgspec.json.encode(plan))

        self._enter(now, "switching", "switching to the new system")
        failure: CommandError | None = None
        try:
            self._command("switch", "see `journalctl -u agent-box-update`")
        except CommandError as error:
            failure = error
        if os.path.realpath(self.running) != plan.after:
            raise failure or InternalError(
                "the switch ended well, but another system runs: see "
                "`nixos-rebuild list-generations`"
            )
        self._enter(now, "committing", "noting what runs")
        return self._commit(now, plan, failure)

    def _commit(self, now: Status, plan: Plan, failure: CommandError | None) -> Status:
        """Make the pins those of the running system."""
        target = self.flake / LOCK
        new_lock = (self.copy / LOCK).read_bytes()
        current = target.read_bytes()
        if current != new_lock:
            if hashlib.sha256(current).hexdigest() != plan.lock_before:
                kept = self.state / "flake.lock.running"
                atomic_write(kept, new_lock, 0o644)
                return status.ended(
                    now,
                    "partly",
                    f"the new system runs, but {target} was changed meanwhile: its pins are in "
                    f"{kept}, copy it there or rebuild",
                )
            clear_leftovers(target)
            atomic_write(target, new_lock, target.stat().st_mode & 0o777)
        if failure is not None:
            message = (
                f"the new system runs, but its switch ended with status {failure.status}: "
                "look for what failed with `systemctl --failed`"
            )
            return status.ended(now, "partly", message, failure.status)
        return status.ended(now, "updated", "the box runs the new system")

    # -- after a failure, a kill or a power cut --------------------------------

    def recover(self, why: str = "the machine or the updater stopped") -> Status | None:
        """Settle what an update left behind; return its end, or None when there was nothing."""
        try:
            last = status.read(self.state)
        except InternalError:
            last = Status()
        if not last.running and not self.work.exists():
            return None
        if self._plan() is not None:
            # The switch has a unit of its own, which outlives who waits for it.
            self._quietly("stop")
        try:
            ended = self._settle(last, f"{why} while {last.message or 'updating'}", None)
        except (AgentBoxError, OSError) as error:
            ended = status.ended(last, "failed", f"{error}. Run `nixos-rebuild switch` yourself")
        if last.running:
            status.write(ended, self.state)
        self._clear()
        return ended if last.running else None

    def _settle(self, now: Status, problem: str, code: int | None) -> Status:
        """Bring pins and systems in line with what runs, and return the end of the update."""
        plan = self._plan()
        if plan is not None and os.path.realpath(self.running) == plan.after:
            settled = self._commit(now, plan, None)
            if settled.result == "updated":
                settled.result, settled.exit = "partly", code
                settled.message = f"the new system runs; {problem}"
            return settled
        next_boot = os.path.realpath(self.profile)
        # The next boot must not take the system that did not come up.
        if plan and next_boot == plan.after and not self._quietly("profile", plan.before):
            problem += (
                "; the former system runs, but the next boot takes the new one: run "
                "`nixos-rebuild switch --rollback`"
            )
        return status.ended(now, "failed", problem, code)

    def _plan(self) -> Plan | None:
        try:
            return msgspec.json.decode(self.plan_path.read_bytes(), type=Plan)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    # -- inner helpers -----------------------------------------------------------

    def _enter(self, now: Status, phase: str, message: str) -> None:
        now.phase, now.message = phase, message
        status.write(now, self.state)
        sys.stderr.write(f"agent-box-update: {message}\n")
        sys.stderr.flush()

    def _copy_flake(self) -> None:
        self._clear()
        self.work.mkdir(mode=0o700, parents=True)
        ignore = shutil.ignore_patterns(".git", "result", "result-*")
        shutil.copytree(self.flake, self.copy, symlinks=True, ignore=ignore)

    def _clear(self) -> None:
        # The plan goes last: while it is there, somebody has something to settle.
        plan = self.plan_path
        if plan.exists():
            shutil.rmtree(self.copy, ignore_errors=True)
            plan.unlink()
        shutil.rmtree(self.work, ignore_errors=True)

    def _command(self, name: str, remedy: str) -> None:
        """Run one command of the configuration in the work folder. Raises CommandError."""
        argv = [word.replace("{flake}", f"path:{self.copy}") for word in self.config.commands[name]]
        tail: list[str] = []
        try:
            process = subprocess.Popen(
                argv, cwd=self.work, stdin=subprocess.DEVNULL, text=True, errors="replace",
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise CommandError(
                f"{argv[0]} does not start ({error.strerror}); {remedy}", 127
            ) from None
        if process.stdout is None:
            raise AssertionError("it was asked for")
        for line in process.stdout:
            sys.stderr.write(line)
            tail = [*tail, " ".join(line.split())][-OUTPUT_LINES:]
        code = process.wait()
        if code != 0:
            said = " / ".join(filter(None, tail))[-400:] or "it said nothing"
            raise CommandError(f"{name} failed ({how(code)}): {said}; {remedy}", code)

    def _quietly(self, name: str, *more: str) -> bool:
        """Run a command that may fail; tell whether it did not."""
        argv = [*self.config.commands[name], *more]
        try:
            return subprocess.run(argv, check=False, stdin=subprocess.DEVNULL).returncode == 0
        except OSError:
            return False

    def _built(self) -> str:
        result = self.work / "result"
        if not result.is_symlink():
            raise ConflictError(
                "the build left no result: nothing was changed. Does it build alone?"
            )
        return os.path.realpath(result)


def in_words(error: OSError) -> str:
    """Return what the system refused, and what to do about it."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room and try again"
    else:
        remedy = "see `journalctl -u agent-box-update`"
    return f"{where}{error.strerror or error}; {remedy}"


def how(code: int) -> str:
    """Return an exit status in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
