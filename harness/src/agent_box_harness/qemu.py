"""A machine in QEMU: boots a disk, or continues from a frozen one."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness import accel, guard
from agent_box_harness.errors import HarnessError, MachineError
from agent_box_harness.guest.additions import CONSOLES, wake_command
from agent_box_harness.guest.base import build_base
from agent_box_harness.guest.initrd import build_initrd
from agent_box_harness.machine import BOOT_TIMEOUT, Machine
from agent_box_harness.needs import ALL_CAPABILITIES
from agent_box_harness.pool import ShellPool
from agent_box_harness.qemu_command import QemuOptions, qemu_argv
from agent_box_harness.qmp import Qmp
from agent_box_harness.shell import ShellChannel
from agent_box_harness.transfer import ShellTransfer

if TYPE_CHECKING:
    from agent_box_harness.accel import Accelerator

_ANSWER_GRACE = 15.0
"""Seconds, native, between a command's time limit and giving up on the shell."""


@dataclass(frozen=True)
class _Link:
    """Our connections to QEMU, which serves one process at a time."""

    qmp: Qmp
    pool: ShellPool

    def close(self) -> None:
        self.qmp.close()
        self.pool.close()


@dataclass
class _Running:
    process: subprocess.Popen[bytes] | None
    """None when another process started it."""
    pid: int
    link: _Link | None
    continued: bool = False
    set_up: bool = field(default=False)


@functools.cache
def accelerator() -> Accelerator:
    """Return what QEMU runs on here; may build the base first, whose kernel the probe boots."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK) or os.environ.get("AGENT_BOX_ACCEL"):
        return accel.choose(Path(), Path())
    boot = build_base(print) / "boot"
    with tempfile.NamedTemporaryFile(prefix="agent-box-initrd-") as initrd:
        initrd.write(build_initrd(boot, b"", ""))
        initrd.flush()
        return accel.choose(boot / "kernel", Path(initrd.name))


class QemuMachine(ShellTransfer, Machine):
    """See `Machine`. `workdir` holds disk, serial log and state of this machine."""

    kind = "qemu"
    capabilities = ALL_CAPABILITIES

    def __init__(
        self, options: QemuOptions, workdir: Path, *, name: str = "box", detach: bool = False
    ) -> None:
        self.options = options
        self.name = name
        self.workdir = workdir
        self.detach = detach
        self.time_factor = options.accel.time_factor
        self.history = []
        self.description = (
            f"QEMU with {options.accel.name} (-cpu {options.accel.cpu}): {options.accel.reason}"
        )
        workdir.mkdir(parents=True, exist_ok=True)
        self.serial_log = workdir / "serial.log"
        self.overlay = workdir / "disk.qcow2"
        self.ssh_key: Path | None = None
        self._forwards: dict[int, int] = {}
        self._running: _Running | None = None
        self._boots = 0
        # UNIX socket paths are limited to 107 bytes, work directories are not.
        self._sockets = Path(tempfile.mkdtemp(prefix="agent-box-"))

    # -- lifecycle ---------------------------------------------------------

    def start(self) -> None:
        """See `Machine.start`."""
        if self.is_up():
            return
        self._forget()
        continued = self.options.frozen is not None and self._boots == 0
        if not self.overlay.exists():
            self._make_overlay()
        for path in self._sockets.iterdir():
            path.unlink()
        argv = qemu_argv(
            self.options, name=self.name, overlay=self.overlay, sockets=self._sockets,
            serial=self._next_serial(), forwards=self._forwards, incoming=continued,
        )  # fmt: skip
        errors = self.workdir / "qemu.log"
        with errors.open("ab") as log:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if not self.detach:
            guard.protect(process)
        self._boots += 1
        try:
            qmp = Qmp(self._sockets / "qmp", alive=lambda: process.poll() is None)
            pool = ShellPool([self._channel(c, fresh=not continued) for c in CONSOLES])
            if continued:
                self._resume(qmp)
        except HarnessError as error:
            guard.end(process)
            said = errors.read_text(errors="replace")[-1000:]
            raise MachineError(f"QEMU did not start: {error}\n{said}") from error
        self._running = _Running(process, process.pid, _Link(qmp, pool), continued)
        self._save_state()

    def is_up(self) -> bool:
        """See `Machine.is_up`."""
        running = self._running
        if running is None:
            return False
        if running.process is not None:
            return running.process.poll() is None
        return guard.alive(running.pid)

    def connect(self, timeout: float = BOOT_TIMEOUT) -> None:
        """See `Machine.connect`."""
        self.start()
        link = self._link()
        limit = self.scaled(timeout) or timeout
        link.pool.connect(limit, alive=self.is_up)
        running = self._require()
        if running.continued and not running.set_up:
            running.set_up = True
            # The clone woke up with the clock and the random state of the snapshot.
            wake = wake_command(time.time(), os.urandom(64))
            status, _ = link.pool.run(wake, limit, None, self._grace)
            if status != 0:
                raise MachineError(f"setting up the clone failed with status {status}")

    def shutdown(self) -> None:
        """See `Machine.shutdown`."""
        if not self.is_up():
            return
        self.connect()
        self._link().pool.send(b"systemctl poweroff\n")
        self._wait_for_exit(self.scaled(BOOT_TIMEOUT) or BOOT_TIMEOUT)

    def power_cut(self) -> None:
        """See `Machine.power_cut`."""
        if not self.is_up():
            return
        try:
            self.qmp.execute("quit")
        except MachineError:
            # Another process holds the connection; QEMU quits in order on this too.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._require().pid, signal.SIGTERM)
        self._wait_for_exit(10)

    def reboot(self) -> None:
        """See `Machine.reboot`."""
        # QEMU ends when the guest resets (-no-reboot): a clone's firmware state
        # does not survive a reset, and a new process has new shells.
        self.connect()
        self._link().pool.send(b"systemctl reboot\n")
        self._wait_for_exit(self.scaled(BOOT_TIMEOUT) or BOOT_TIMEOUT)
        self.start()
        self.connect()

    def close(self) -> None:
        """See `Machine.close`."""
        running = self._running
        self._forget()
        if running is not None:
            if running.process is not None:
                guard.end(running.process)
            else:
                guard.kill(running.pid)
        for path in self._sockets.glob("*"):
            path.unlink()
        with contextlib.suppress(OSError):
            self._sockets.rmdir()
        (self.workdir / "machine.json").unlink(missing_ok=True)

    def forward_port(self, host: int = 0, guest: int = 80) -> int:
        """See `Machine.forward_port`."""
        if guest in self._forwards and host in (0, self._forwards[guest]):
            return self._forwards[guest]
        host = host or _free_port()
        if self.is_up():
            reply = self.qmp.monitor(f"hostfwd_add net0 tcp:127.0.0.1:{host}-:{guest}")
            if reply.strip():
                raise MachineError(f"cannot forward port {host} to {guest}: {reply.strip()}")
        self._forwards[guest] = host
        self._save_state()
        return host

    def interactive_argv(self, command: str, user: str = "root") -> list[str]:
        """See `Machine.interactive_argv`."""
        if self.ssh_key is None:
            raise MachineError(f"no way in for a person on {self.name}: the image has no ssh key")
        port = self.forward_port(guest=22)
        # A person may stay for hours.
        self._let_go()
        if user != "root":
            command = f"exec runuser -l {shlex.quote(user)} -c {shlex.quote(command)}"
        quiet = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR",
                 "ConnectTimeout=60"]  # fmt: skip
        options = [word for option in quiet for word in ("-o", option)]
        return [
            "ssh", "-t", "-F", "none", *options, "-i", str(self.ssh_key), "-p", str(port),
            "root@127.0.0.1", command,
        ]  # fmt: skip

    # -- beyond Machine ----------------------------------------------------

    @property
    def qmp(self) -> Qmp:
        """QEMU's control connection."""
        return self._link().qmp

    def freeze(self, state: Path) -> None:
        """Write the device state to `state` and end QEMU; needs `keep_ram`. See `Frozen`."""
        if self.options.keep_ram is None:
            raise MachineError("only a machine with its RAM in a file can be frozen")
        self.succeed("sync; echo 3 >/proc/sys/vm/drop_caches")
        # What every clone does first shall not have to come from its disk.
        self.succeed(wake_command(time.time(), os.urandom(64)), "sync; cat /proc/uptime; ps >&2")
        qmp = self.qmp
        qmp.execute("stop")
        _ignore_shared(qmp)
        qmp.execute("migrate", {"uri": f"exec:cat >{shlex.quote(str(state))}"})
        _await_migration(qmp, "completed")
        self.power_cut()

    @classmethod
    def reattach(cls, options: QemuOptions, workdir: Path, state: dict[str, Any]) -> QemuMachine:
        """Return the machine that another process left running in `workdir`."""
        machine = cls(options, workdir, name=state["name"], detach=True)
        machine._sockets.rmdir()
        machine._sockets = Path(state["sockets"])
        machine._forwards = {int(guest): host for guest, host in state["forwards"].items()}
        machine._boots = 1
        if not guard.alive(state["pid"]):
            return machine
        machine._running = _Running(None, state["pid"], None)
        return machine

    # -- inner helpers -----------------------------------------------------

    @property
    def _grace(self) -> float:
        return _ANSWER_GRACE * self.time_factor

    def _execute(
        self, command: str, timeout: float | None, stdin: bytes | None
    ) -> tuple[int, bytes]:
        self.connect()
        return self._link().pool.run(command, timeout, stdin, self._grace)

    def _require(self) -> _Running:
        if self._running is None:
            raise MachineError(f"{self.name} is not running")
        return self._running

    def _link(self) -> _Link:
        """Return our connections, made anew when we had let go of them."""
        running = self._require()
        if running.link is None:
            try:
                qmp = Qmp(self._sockets / "qmp", timeout=2, alive=self.is_up)
            except MachineError as error:
                raise MachineError(f"another process is talking to {self.name}") from error
            pool = ShellPool([self._channel(c, fresh=False) for c in CONSOLES])
            running.link = _Link(qmp, pool)
        return running.link

    def _let_go(self) -> None:
        """Drop our connections, so that another process can use a detached machine."""
        if self.detach and self._running is not None and self._running.link is not None:
            self._running.link.close()
            self._running.link = None

    def _channel(self, console: str, *, fresh: bool) -> ShellChannel:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(self._sockets / console))
        except OSError as error:
            sock.close()
            raise MachineError(f"no console {console}: {error}") from error
        return ShellChannel(sock, console, booting=fresh)

    def _resume(self, qmp: Qmp) -> None:
        frozen = self.options.frozen
        if frozen is None:
            raise AssertionError("resuming needs something frozen")
        _ignore_shared(qmp)
        qmp.execute("migrate-incoming", {"uri": f"exec:cat {shlex.quote(str(frozen.state))}"})
        deadline = time.monotonic() + 30
        while qmp.status() == "inmigrate":
            if time.monotonic() > deadline:
                raise MachineError("the frozen machine did not load within 30 s")
            time.sleep(0.005)
        qmp.execute("cont")

    def _make_overlay(self) -> None:
        base = self.options.files.disk
        kind = "qcow2" if base.suffix == ".qcow2" else "raw"
        result = subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", kind,
             str(self.overlay)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode != 0:
            raise MachineError(f"cannot make a disk on {base}: {result.stderr.strip()}")

    def _next_serial(self) -> Path:
        """Return the log of this boot; earlier ones stay beside it."""
        if self.serial_log.exists():
            self.serial_log.rename(self.workdir / f"serial-{self._boots}.log")
        return self.serial_log

    def _wait_for_exit(self, seconds: float) -> None:
        running = self._require()
        deadline = time.monotonic() + seconds
        while self.is_up():
            if time.monotonic() > deadline:
                if running.process is not None:
                    guard.end(running.process)
                raise MachineError(f"{self.name} did not power off within {seconds:.0f} s")
            time.sleep(0.02)
        self._forget()

    def _forget(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if running.link is not None:
            running.link.close()
        if running.process is not None and running.process.poll() is not None:
            guard.release(running.process)

    def _save_state(self) -> None:
        if self.detach and self._running is not None:
            state = {
                "kind": self.kind,
                "name": self.name,
                "pid": self._running.pid,
                "sockets": str(self._sockets),
                "forwards": self._forwards,
            }
            (self.workdir / "machine.json").write_text(json.dumps(state))


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _ignore_shared(qmp: Qmp) -> None:
    qmp.execute(
        "migrate-set-capabilities",
        {"capabilities": [{"capability": "x-ignore-shared", "state": True}]},
    )


def _await_migration(qmp: Qmp, wanted: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        info = qmp.execute("query-migrate")
        status = info.get("status")
        if status == wanted:
            return
        if status == "failed" or time.monotonic() > deadline:
            raise MachineError(f"freezing failed: {status} {info.get('error-desc', '')}")
        time.sleep(0.01)
