"""Runs a scenario inside a NixOS test: the driver's machine object behind our vocabulary.

The test script of a `runNixOSTest` is two lines:

    from agent_box_harness import nixos
    nixos.run(globals(), "scenarios/test_boot.py")

`nixos-tests/default.nix` writes it for each file of scenarios. The driver makes one machine; each
scenario gets it as it was before its first start.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import shlex
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness.errors import MachineError, RequestFailedError
from agent_box_harness.machine import BOOT_TIMEOUT, Machine
from agent_box_harness.needs import ALL_CAPABILITIES, OF_THE_IMAGE
from agent_box_harness.shell import TIMED_OUT
from agent_box_harness.source import prepared_each
from agent_box_harness.transfer import ShellTransfer

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_CHUNK = 60_000
"""Bytes of standard input per command; one argument may have 128 KiB, base64 adds a third."""
_INPUT = "/run/agent-box-harness.stdin"


class NixosMachine(ShellTransfer, Machine):
    """The NixOS test driver's machine as a `Machine`."""

    kind = "nixos"
    capabilities = ALL_CAPABILITIES
    description = "NixOS test machine"

    def __init__(self, driver_machine: Any, workdir: Path) -> None:
        self.driver = driver_machine
        self.name = str(driver_machine.name)
        # The driver does not tell its accelerator, but it uses KVM wherever
        # the builder has it. Who starts the driver may know better.
        known = os.environ.get("AGENT_BOX_TIME_FACTOR")
        self.time_factor = float(known or (1.0 if Path("/dev/kvm").exists() else 8.0))
        self.history = []
        self._forwards: dict[int, int] = {}
        self._lost = False
        workdir.mkdir(parents=True, exist_ok=True)
        self.serial_log = workdir / "serial.log"

    def start(self) -> None:
        """See `Machine.start`."""
        if self.is_up():
            return
        if self._lost:
            raise MachineError("the driver has one machine, and another scenario has it now")
        # Otherwise the driver makes a reboot end the machine.
        self.driver.start(allow_reboot=True)
        for host, guest in self._forwards.items():
            self.driver.forward_port(host, guest)

    def renewed(self, workdir: Path) -> NixosMachine:
        """Return the machine that it was before its first start: off, and nothing on its disk.

        The start script makes the disk anew, and whatever else it puts beside it. This object is
        that of a machine which is gone.
        """
        self._switch_off()
        self._lost = True
        for path in Path(self.driver.state_dir).iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return NixosMachine(self.driver, workdir)

    def _switch_off(self) -> None:
        # It may have ended by itself, and then takes no orders any more.
        with contextlib.suppress(OSError):
            self.driver.crash()
        self.driver.wait_for_shutdown()

    def is_up(self) -> bool:
        """See `Machine.is_up`."""
        return not self._lost and bool(self.driver.booted)

    def connect(self, timeout: float = BOOT_TIMEOUT) -> None:
        """See `Machine.connect`; the driver waits as long as it does."""
        self.start()
        self.driver.connect()

    def shutdown(self) -> None:
        """See `Machine.shutdown`."""
        self.driver.shutdown()

    def power_cut(self) -> None:
        """See `Machine.power_cut`."""
        self.driver.crash()

    def reboot(self) -> None:
        """See `Machine.reboot`."""
        self.driver.reboot()
        self.driver.connect()

    def close(self) -> None:
        """Write the console log and switch off: the driver would wait for it for ever."""
        if not self.is_up():
            return
        with contextlib.suppress(OSError):
            self.serial_log.write_text(self.console())
        self._switch_off()

    def console(self) -> str:
        """See `Machine.console`."""
        return str(self.driver.get_console_log())

    def forward_port(self, host: int = 0, guest: int = 80) -> int:
        """See `Machine.forward_port`."""
        if host == 0:
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", 0))
                host = int(sock.getsockname()[1])
        self.driver.forward_port(host, guest)
        self._forwards[host] = guest
        return host

    def interactive_argv(self, command: str, user: str = "root") -> list[str]:
        """See `Machine.interactive_argv`; nobody sits in front of a build."""
        raise MachineError(f"no terminal for `{command}` as {user} inside a NixOS test")

    def _execute(
        self, command: str, timeout: float | None, stdin: bytes | None
    ) -> tuple[int, bytes]:
        source = "/dev/null"
        if stdin is not None:
            source = _INPUT
            self._run(f": >{source}", None)
            for start in range(0, len(stdin), _CHUNK):
                part = base64.b64encode(stdin[start : start + _CHUNK]).decode()
                self._run(f"printf %s {part} | base64 -d >>{source}", None)
        # The driver decodes output as text, which would spoil binary files.
        return self._run(
            f"bash -c {shlex.quote(f'set -euo pipefail; {command}')} <{source}", timeout
        )

    def _run(self, command: str, timeout: float | None) -> tuple[int, bytes]:
        limit = None if timeout is None else math.ceil(timeout)
        status, text = self.driver.execute(f"{command} | base64 -w 0", timeout=limit)
        try:
            return int(status), base64.b64decode(text)
        except ValueError:
            # A killed pipeline leaves half a line.
            return int(status) or TIMED_OUT, b""


class NixosGuests:
    """The `Source` that the driver is: it has one machine."""

    choice = "qemu"

    def __init__(self, machine: NixosMachine) -> None:
        self.machine = machine
        self.expected: dict[str, frozenset[str]] = {}
        self._lent = False

    def expect(self, host: str, needs: frozenset[str]) -> None:
        """Note what a scenario needs."""
        self.expected[host] = self.expected.get(host, frozenset()) | needs

    def headline(self) -> str:
        """One line for the top of a run."""
        return self.machine.description

    def reason_against(self, needs: frozenset[str]) -> str | None:
        """Why the machine cannot serve a scenario, or None; the CLIs come from nixpkgs here."""
        missing = needs - self.machine.capabilities - OF_THE_IMAGE
        return f"the NixOS test machine lacks {', '.join(sorted(missing))}" if missing else None

    def fresh(self, host: str, needs: frozenset[str], workdir: Path, *, cold: bool) -> Machine:
        """Return the machine as new, booting unless `cold`, then ready."""
        if self._lent:
            self.machine = self.machine.renewed(workdir)
        self._lent = True
        self.machine.start()
        if not cold:
            self.machine.wait_ready()
        return self.machine

    def prepared(
        self,
        host: str,
        needs: frozenset[str],
        workdir: Path,
        prepare: Callable[[Machine], None],
    ) -> Callable[[Path], Machine]:
        """Return what boots the machine and prepares it, each time."""
        return prepared_each(self, host, needs, prepare)


class _Plugin:
    """Gives the harness's pytest plugin the driver's machine instead of guests of its own."""

    def __init__(self, install: Callable[[pytest.Config], None]) -> None:
        self._install = install

    def pytest_collection(self, session: pytest.Session) -> None:
        """Replace the guests once the harness's plugin has made its own."""
        self._install(session.config)


def use_environment(variables: dict[str, str]) -> None:
    """Set environment variables; a PATH goes before the one that is there."""
    for name, value in variables.items():
        before = os.environ.get(name) if name == "PATH" else None
        os.environ[name] = os.pathsep.join([value, before]) if before else value


def run(
    driver_globals: dict[str, Any],
    scenario: str,
    arguments: tuple[str, ...] = (),
    environment: str | None = None,
    seconds: float | None = None,
) -> None:
    """Run one scenario file (or pytest node id) on the test driver's machine.

    `environment` is a JSON file with variables for programs on the driver's side, such as a
    browser, which also gets a home that it can write to. `seconds` is when the driver gives up:
    scenarios end before that, and say which of them it was.

    `driver_globals` is the `globals()` of the test script; its `machine`, or the
    first of its `machines`, is used. Raises RequestFailedError when the scenario
    did not pass, or none ran.
    """
    import pytest

    from agent_box_harness import plugin

    machines = driver_globals.get("machines") or [driver_globals["machine"]]
    with tempfile.TemporaryDirectory(prefix="agent-box-") as name:
        if environment is not None:
            use_environment(json.loads(Path(environment).read_text(encoding="utf-8")))
        if not os.access(Path.home(), os.W_OK):
            os.environ["HOME"] = name
        out = os.environ.get("out", "")  # noqa: SIM112 - the name that Nix gives it
        workdir = Path(out) if out and Path(out).is_dir() else Path(name)
        guests = NixosGuests(NixosMachine(driver_globals.get("machine", machines[0]), workdir))

        def install(config: pytest.Config) -> None:
            config.stash[plugin.guests_key] = guests

        # Nothing goes beside the scenario, which may be in the store.
        options = [f"--basetemp={Path(name) / 'pytest'}", f"--box-reports={workdir / 'reports'}"]
        if seconds is not None:
            options.append(f"--deadline={seconds}")
        try:
            code = pytest.main(
                ["-p", "agent_box_harness", "-p", "no:cacheprovider", *options, *arguments,
                 scenario],
                plugins=[_Plugin(install)],
            )  # fmt: skip
        finally:
            guests.machine.close()
    if code != pytest.ExitCode.OK:
        raise RequestFailedError(f"scenario {scenario} ended with pytest status {int(code)}")
