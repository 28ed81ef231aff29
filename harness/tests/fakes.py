"""A machine without a machine: commands run on this host, as far as a test allows."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from agent_box_harness.machine import Command, Machine
from agent_box_harness.needs import ALL_CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class FakeMachine(Machine):
    """Runs commands in a local shell, or answers from a table of substrings."""

    def __init__(self, folder: Path, answers: dict[str, tuple[int, str]] | None = None) -> None:
        self.name = "fake"
        self.kind = "qemu"
        self.capabilities = ALL_CAPABILITIES
        self.time_factor = 1.0
        self.serial_log = folder / "serial"
        self.serial_log.write_text("the console\n")
        self.history: list[Command] = []
        self.description = "fake machine"
        self.answers = answers or {}
        self.seen: list[str] = []
        self.up = True
        self.closed = False

    def start(self) -> None:
        self.up = True

    def is_up(self) -> bool:
        return self.up

    def connect(self, timeout: float = 40) -> None:
        self.start()

    def wait_ready(self, timeout: float = 40) -> str:
        return "running"

    def shutdown(self) -> None:
        self.up = False

    def power_cut(self) -> None:
        self.up = False

    def reboot(self) -> None:
        self.up = True

    def close(self) -> None:
        self.up, self.closed = False, True

    def forward_port(self, host: int = 0, guest: int = 80) -> int:
        return host or 40000

    def interactive_argv(self, command: str, user: str = "root") -> list[str]:
        return ["sh", "-c", command]

    def copy_from_host(self, source: str, target: str) -> None:
        raise AssertionError("not used")

    def copy_from_machine(self, source: str, target_dir: str) -> Path:
        raise OSError("a fake has no files")

    def _execute(
        self, command: str, timeout: float | None, stdin: bytes | None
    ) -> tuple[int, bytes]:
        self.seen.append(command)
        for part, (status, text) in self.answers.items():
            if part in command:
                return status, text.encode()
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{command}"],
            input=stdin or b"",
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return done.returncode, done.stdout


class FakeImage:
    """Hands out fake machines, and remembers how it was asked."""

    def __init__(self, answers: dict[str, tuple[int, str]] | None = None) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []
        self.machines: list[FakeMachine] = []

    def _make(self, how: str) -> Callable[..., FakeMachine]:
        def make(kind: str, workdir: Path, **_: object) -> FakeMachine:
            self.asked.append((how, kind))
            machine = FakeMachine(workdir, self.answers)
            self.machines.append(machine)
            return machine

        return make

    @property
    def boot(self) -> Callable[..., FakeMachine]:
        return self._make("boot")

    @property
    def fresh(self) -> Callable[..., FakeMachine]:
        return self._make("fresh")
