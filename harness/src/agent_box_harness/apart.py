"""What a command did: its status, standard output and standard error, kept apart."""

from __future__ import annotations

import base64
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from agent_box_harness.errors import RequestFailedError
from agent_box_harness.history import HISTORY_OUTPUT, Command

if TYPE_CHECKING:
    from agent_box_harness.machine import Machine

OUT_OF_TIME = 124


@dataclass(frozen=True)
class Result:
    """What a command did. `out` and `err` are text, without the last newline."""

    rc: int
    out: str
    err: str

    def check(self, what: str = "command") -> Result:
        """Return itself if the command succeeded, else raise with all that is known."""
        if self.rc != 0:
            msg = f"{what} ended with {self.rc}\nstdout: {self.out}\nstderr: {self.err}"
            raise RequestFailedError(msg)
        return self


@runtime_checkable
class Direct(Protocol):
    """A machine whose commands write into files of the host: that spares them half their cost."""

    def execute_apart(
        self, command: str, timeout: float | None, stdin: bytes
    ) -> tuple[int, bytes, bytes]:
        """Run a command line as root in /tmp; seconds of `timeout` are real ones."""


def run(machine: Machine, command: str, timeout: float | None, stdin: bytes | str | None) -> Result:
    """Run a shell command line as root; seconds of `timeout` are at native speed."""
    if isinstance(machine, Direct):
        return _directly(machine, command, machine.scaled(timeout), stdin)
    script = (
        "d=$(mktemp -d); rc=0; "
        f"sh -c {shlex.quote(command)} >$d/out 2>$d/err || rc=$?; "
        'echo "$rc"; base64 -w0 $d/out; echo; base64 -w0 $d/err; echo; rm -r $d'
    )
    return parse(machine.execute(script, timeout=timeout, stdin=stdin), command)


def _directly(
    machine: Machine, command: str, timeout: float | None, stdin: bytes | str | None
) -> Result:
    assert isinstance(machine, Direct)  # noqa: S101 - for the type checker
    data = stdin.encode() if isinstance(stdin, str) else stdin or b""
    at, start = time.time(), time.monotonic()
    status, out = None, ""
    try:
        status, *outputs = machine.execute_apart(command, timeout, data)
        out, err = (_text(output) for output in outputs)
    finally:
        seconds = time.monotonic() - start
        machine.history.append(Command(at, seconds, command, status, out[:HISTORY_OUTPUT]))
    return Result(status, out, err)


def parse(answer: tuple[int, str], command: str) -> Result:
    """Understand the answer to a script that prints a status and two outputs in base64."""
    rc, output = answer
    lines = output.split("\n")
    if rc == OUT_OF_TIME and len(lines) < 3:  # the machine's own time-out
        return Result(OUT_OF_TIME, output, f"timed out: {command}")
    if len(lines) < 3 or not lines[0].strip().lstrip("-").isdigit():
        raise RequestFailedError(f"no answer from the guest ({rc}) to {command!r}: {output}")
    out, err = (_text(base64.b64decode(line)) for line in lines[1:3])
    return Result(int(lines[0]), out, err)


def _text(output: bytes) -> str:
    return output.decode(errors="replace").removesuffix("\n")
