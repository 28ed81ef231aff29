"""The vocabulary in which scenarios speak to a machine.

Names and meaning are those of the NixOS test driver's machine object, so that
one scenario runs on every guest. A `Machine` is a context manager; leaving it
ends the machine. Methods may be called from several threads.

Time limits are seconds at native speed. They are multiplied by `time_factor`,
so that the same scenario is patient with an emulated CPU.
"""

from __future__ import annotations

import shlex
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, TypeVar

from agent_box_harness.errors import HarnessError, RequestFailedError
from agent_box_harness.history import HISTORY_OUTPUT
from agent_box_harness.history import Command as Command
from agent_box_harness.wait import poll

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


COMMAND_TIMEOUT = 60.0
"""Seconds that one command may take unless it says otherwise."""
ANSWER_TIMEOUT = 3.0
"""Seconds that a service may take to answer a question about what it has at hand."""
WAIT_TIMEOUT = 30.0
"""Seconds that a wait may take unless it says otherwise."""
BOOT_TIMEOUT = 40.0
"""Seconds from power-on to a root shell."""

T = TypeVar("T")


class Machine(ABC):
    """A booted, or bootable, box."""

    name: str
    kind: str
    """`qemu`, `container` or `nixos`."""
    capabilities: frozenset[str]
    time_factor: float
    """How much slower than native this machine is; every time limit is multiplied by it."""
    serial_log: Path
    """The console, and the standard error of every command."""
    history: list[Command]
    description: str
    """One line for humans: guest, accelerator, CPU model."""

    # -- lifecycle ---------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Power on; return at once. Does nothing when already up."""

    @abstractmethod
    def is_up(self) -> bool:
        """Return whether the machine runs (it may still be booting)."""

    @abstractmethod
    def connect(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Start if needed and wait for a root shell. Raises MachineError."""

    @abstractmethod
    def shutdown(self) -> None:
        """Power off in good order and wait for the end; `start` boots the same disk again."""

    @abstractmethod
    def power_cut(self) -> None:
        """Pull the plug: nothing is flushed inside the guest; `start` boots the same disk."""

    @abstractmethod
    def reboot(self) -> None:
        """Restart in good order and wait for a root shell of the new boot."""

    @abstractmethod
    def close(self) -> None:
        """End the machine and free what it holds. Safe to call twice."""

    @abstractmethod
    def forward_port(self, host: int = 0, guest: int = 80) -> int:
        """Forward TCP 127.0.0.1:`host` to port `guest` inside; 0 picks a free one.

        Returns the host port.
        """

    @abstractmethod
    def interactive_argv(self, command: str, user: str = "root") -> list[str]:
        """Return the argv of a host program that runs `command` as `user` on this terminal."""

    @abstractmethod
    def _execute(
        self, command: str, timeout: float | None, stdin: bytes | None
    ) -> tuple[int, bytes]:
        """Run under `set -euo pipefail`; `timeout` is in real seconds, 124 = it ran out."""

    def crash(self) -> None:
        """Name of `power_cut` in the NixOS test driver."""
        self.power_cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def wait_ready(self, timeout: float = BOOT_TIMEOUT) -> str:
        """Wait until the boot has finished and return systemd's verdict.

        That is `running`, or `degraded` when a unit has failed.
        """
        self.connect(timeout)
        # One process that waits costs a machine that boots less than many that look.
        self.execute("systemctl is-system-running --wait || true", timeout=timeout)
        self.wait_until_succeeds(
            'test -z "$(systemctl list-jobs --no-legend | grep -v backdoor || true)" && '
            "case $(systemctl is-system-running || true) in running|degraded) ;; *) exit 1;; esac",
            timeout=timeout,
        )
        return self.execute("systemctl is-system-running || true")[1].strip()

    # -- commands ----------------------------------------------------------

    def scaled(self, seconds: float | None) -> float | None:
        """Return a native-speed time limit in this machine's time."""
        return None if seconds is None else seconds * self.time_factor

    def poll(
        self,
        what: str,
        attempt: Callable[[], tuple[bool, T]],
        timeout: float | None,
        explain: Callable[[], str] | None = None,
    ) -> T:
        """See `wait.poll`; `timeout` in native seconds."""
        limit, factor = self.scaled(timeout), self.time_factor
        return poll(what, attempt, timeout=limit, explain=explain, time_factor=factor)

    def execute(
        self,
        command: str,
        timeout: float | None = COMMAND_TIMEOUT,
        stdin: bytes | str | None = None,
    ) -> tuple[int, str]:
        """Run a shell command as root and return (exit status, standard output).

        Runs with `set -euo pipefail` and an empty standard input unless `stdin`
        is given. Standard error goes to the serial log. A command that runs out
        of time is killed and has status 124.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        at, start = time.time(), time.monotonic()
        status, output = None, ""
        try:
            status, raw = self._execute(command, self.scaled(timeout), data)
            output = raw.decode(errors="replace")
        finally:
            self.history.append(
                Command(at, time.monotonic() - start, command, status, output[:HISTORY_OUTPUT])
            )
        return status, output

    def succeed(
        self,
        *commands: str,
        timeout: float | None = COMMAND_TIMEOUT,
        stdin: bytes | str | None = None,
    ) -> str:
        """Run commands that must exit 0; return their joined standard output."""
        output = ""
        for command in commands:
            status, out = self.execute(command, timeout, stdin)
            if status != 0:
                raise RequestFailedError(
                    f"command `{command}` failed (exit status {status})\n"
                    f"output: {out.strip()[-4000:]}\n{self._last_errors()}"
                )
            output += out
        return output

    def fail(
        self,
        *commands: str,
        timeout: float | None = COMMAND_TIMEOUT,
        stdin: bytes | str | None = None,
    ) -> str:
        """Run commands that must not exit 0; return their joined standard output."""
        output = ""
        for command in commands:
            status, out = self.execute(command, timeout, stdin)
            if status == 0:
                raise RequestFailedError(
                    f"command `{command}` unexpectedly succeeded\noutput: {out.strip()[-4000:]}"
                )
            output += out
        return output

    def ask_socket(
        self, path: str, request: bytes, timeout: float | None = ANSWER_TIMEOUT
    ) -> bytes:
        """Send a line to a UNIX stream socket inside and return the line that comes back.

        What comes back is empty, or ends before its line does, if nobody answers in time.
        """
        return self.execute(f"nc -N -U {shlex.quote(path)}", timeout, request)[1].encode()

    # -- waits -------------------------------------------------------------

    def wait_until_succeeds(self, command: str, timeout: float = WAIT_TIMEOUT) -> str:
        """Repeat a command until it exits 0; return its output."""
        return self._poll_command(command, True, timeout)

    def wait_until_fails(self, command: str, timeout: float = WAIT_TIMEOUT) -> str:
        """Repeat a command until it does not exit 0; return its output."""
        return self._poll_command(command, False, timeout)

    def wait_for_file(self, filename: str, timeout: float = WAIT_TIMEOUT) -> None:
        """Wait until something exists at that path."""
        self._poll_command(f"test -e {shlex.quote(filename)}", True, timeout)

    def wait_for_open_port(
        self, port: int, addr: str = "localhost", timeout: float = WAIT_TIMEOUT
    ) -> None:
        """Wait until something listens on a TCP port inside the machine."""
        self._poll_command(f"nc -z {shlex.quote(addr)} {port}", True, timeout)

    def wait_for_closed_port(
        self, port: int, addr: str = "localhost", timeout: float = WAIT_TIMEOUT
    ) -> None:
        """Wait until nothing listens on a TCP port inside the machine."""
        self._poll_command(f"nc -z {shlex.quote(addr)} {port}", False, timeout)

    def wait_for_open_unix_socket(self, addr: str, timeout: float = WAIT_TIMEOUT) -> None:
        """Wait until something listens on a UNIX stream socket."""
        self._poll_command(f"nc -z -U {shlex.quote(addr)}", True, timeout)

    def wait_for_unit(
        self, unit: str, user: str | None = None, timeout: float = WAIT_TIMEOUT
    ) -> None:
        """Wait until a unit is active; fail at once when it has failed or nothing will start it."""

        def attempt() -> tuple[bool, str]:
            info = self._show(unit, user, "ActiveState,SubState,Job")
            state = info.get("ActiveState", "")
            if state == "failed":
                raise RequestFailedError(f'unit "{unit}" has failed\n{self.explain_unit(unit)}')
            # Without a queued job an inactive unit stays so, unless it waits to
            # be restarted (its sub-state says so) or something triggers it.
            if state == "inactive" and not info.get("Job") and not self._jobs(user):
                info = self._show(unit, user, "ActiveState,SubState,Job")
                if info.get("ActiveState") == "inactive" and not info.get("Job"):
                    raise RequestFailedError(
                        f'unit "{unit}" is inactive and there are no pending jobs\n'
                        f"{self.explain_unit(unit)}"
                    )
            return info.get("ActiveState") == "active", f"{state} ({info.get('SubState', '')})"

        self.poll(
            f'unit "{unit}" to become active', attempt, timeout, lambda: self.explain_unit(unit)
        )

    def sleep(self, secs: float) -> None:
        """Sleep in the machine's own time."""
        self.succeed(f"sleep {secs}", timeout=None)

    # -- systemd -----------------------------------------------------------

    def systemctl(self, q: str, user: str | None = None) -> tuple[int, str]:
        """Run systemctl, for the user manager of `user` when given."""
        if user is not None:
            return self.execute(f"systemctl --machine {shlex.quote(user)}@.host --user {q}")
        return self.execute(f"systemctl {q}")

    def get_unit_info(self, unit: str, user: str | None = None) -> dict[str, str]:
        """Return every property that `systemctl show` knows of a unit."""
        return self._show(unit, user, None)

    def get_unit_property(self, unit: str, property: str, user: str | None = None) -> str:  # noqa: A002 - the test driver's parameter name
        """Return one property of a unit; empty when it has none of that name."""
        return self._show(unit, user, property).get(property, "")

    def require_unit_state(self, unit: str, require_state: str = "active") -> None:
        """Fail unless the unit is in that state right now."""
        state = self.get_unit_property(unit, "ActiveState")
        if state != require_state:
            raise RequestFailedError(
                f'unit "{unit}" should be {require_state} but is {state}\n{self.explain_unit(unit)}'
            )

    def start_job(self, jobname: str, user: str | None = None) -> tuple[int, str]:
        """Start a unit."""
        return self.systemctl(f"start {shlex.quote(jobname)}", user)

    def stop_job(self, jobname: str, user: str | None = None) -> tuple[int, str]:
        """Stop a unit."""
        return self.systemctl(f"stop {shlex.quote(jobname)}", user)

    def explain_unit(self, unit: str) -> str:
        """Return status and last journal lines of a unit, for an error message."""
        quoted = shlex.quote(unit)
        return self._look(
            f"systemctl status --no-pager --full --lines=0 {quoted} 2>&1 || true; "
            f"echo '-- last journal lines of {unit}:'; "
            f"journalctl --no-pager -o short-monotonic -n 30 -u {quoted} 2>&1 || true"
        )

    # -- files -------------------------------------------------------------

    def read_file(self, path: str) -> bytes:
        """Return the content of a file."""
        status, data = self._execute(f"cat {shlex.quote(path)}", self.scaled(COMMAND_TIMEOUT), None)
        if status != 0:
            raise RequestFailedError(f"cannot read {path} on {self.name} (exit status {status})")
        return data

    def write_file(
        self, path: str, content: bytes | str, mode: int = 0o644, owner: str = "root:root"
    ) -> None:
        """Write a file, replacing what was there by rename; parent directories are made."""
        target, fresh = shlex.quote(path), shlex.quote(path + ".harness-new")
        self.succeed(
            f"mkdir -p $(dirname {target}); cat > {fresh}; chown {shlex.quote(owner)} {fresh}; "
            f"chmod {mode:o} {fresh}; mv -T {fresh} {target}",
            stdin=content,
        )

    @abstractmethod
    def copy_from_host(self, source: str, target: str) -> None:
        """Copy a file or directory of the host to `target`, owned by root, mode bits kept."""

    @abstractmethod
    def copy_from_machine(self, source: str, target_dir: str) -> Path:
        """Copy a file or directory out into the host directory `target_dir`; return its path."""

    # -- inner helpers -----------------------------------------------------

    def _poll_command(self, command: str, want_success: bool, timeout: float) -> str:
        def attempt() -> tuple[bool, tuple[int, str]]:
            # A try may take the whole wait, no longer: a hanging command must
            # not turn a bounded wait into an unbounded one.
            status, out = self.execute(command, timeout=timeout)
            return (status == 0) == want_success, (status, out[-2000:])

        wanted = "succeed" if want_success else "fail"
        what = f"`{command}` to {wanted} (status, output)"
        return self.poll(what, attempt, timeout, self._last_journal)[1]

    def _show(self, unit: str, user: str | None, properties: str | None) -> dict[str, str]:
        selection = "" if properties is None else f" --property={shlex.quote(properties)}"
        status, lines = self.systemctl(f"--no-pager show{selection} -- {shlex.quote(unit)}", user)
        if status != 0:
            raise RequestFailedError(f'systemctl show of unit "{unit}" failed with {status}')
        pairs = (line.partition("=") for line in lines.splitlines())
        return {key: value for key, sep, value in pairs if sep}

    def _jobs(self, user: str | None) -> bool:
        status, out = self.systemctl("--no-pager --no-legend list-jobs", user)
        return status != 0 or bool(out.strip())

    def console(self) -> str:
        """Return what the machine has printed on its console since it was started."""
        return self.serial_log.read_text(errors="replace")

    def _look(self, command: str) -> str:
        """Run a command for an error message; never raises."""
        try:
            return self.execute(command, timeout=10)[1]
        except HarnessError as error:
            return f"(the machine does not answer: {error})"

    def _last_journal(self) -> str:
        return "last journal lines:\n" + self._look(
            "systemctl --failed --no-legend --no-pager; "
            "journalctl --no-pager -b -o short-monotonic -n 30 2>/dev/null || true"
        )

    def _last_errors(self) -> str:
        """Return the tail of the serial log, where the standard error of commands goes."""
        try:
            with self.serial_log.open("rb") as log:
                log.seek(0, 2)
                log.seek(max(0, log.tell() - 2000))
                tail = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "last lines on the console:\n" + "\n".join(tail.splitlines()[-15:])
