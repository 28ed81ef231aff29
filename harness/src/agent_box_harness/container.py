"""A machine in a systemd-nspawn container: native speed, the host's kernel."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agent_box_harness import forwarder, guard
from agent_box_harness.errors import MachineError
from agent_box_harness.guest.additions import AGENTS_MOUNT
from agent_box_harness.guest.cache import find_program
from agent_box_harness.machine import ANSWER_TIMEOUT, BOOT_TIMEOUT, Machine
from agent_box_harness.netns import PortForward, unified_cgroup, unified_root
from agent_box_harness.shell import TIMED_OUT
from agent_box_harness.transfer import ShellTransfer

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
    "PAGER": "",
    "SYSTEMD_PAGER": "",
}
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INSTANCES = 1024
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")

# The overlay lives in a mount namespace of its own and goes with the last process.
_LAUNCH = """
set -e
if [ -n "$3" ]; then echo $$ >"$3/cgroup.procs"; fi
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/merged"
directory=$2
shift 3
exec "$@" --directory="$directory/merged"
"""


@dataclass(frozen=True)
class ContainerRoot:
    """What a container boots from; shared and never written."""

    lower: tuple[Path, ...]
    """Directories of the root, the topmost first."""
    agents: Path | None = None
    """Tree of the real agent CLIs."""


def _allow_watches() -> None:
    """Raise the host's limit of inotify instances, until it boots again.

    To the kernel root and alice of every container are one root and one alice, and 128 are not
    enough for several: systemd fails to start in one, or a supervisor sees no change of a file.
    """
    with contextlib.suppress(OSError):
        if int(_INOTIFY.read_text()) < _INSTANCES:
            _INOTIFY.write_text(f"{_INSTANCES}\n")


@functools.cache
def capabilities() -> frozenset[str]:
    """Return what containers can do on this host."""
    found = {"reboot"}
    with contextlib.suppress(OSError):
        unified = unified_cgroup(os.getpid())
        if unified is not None:
            controllers = (unified / "cgroup.controllers").read_text().split()
            found |= {f"{name}-limits" for name in ("memory", "pids") if name in controllers}
    return frozenset(found)


class ContainerMachine(ShellTransfer, Machine):
    """See `Machine`. `workdir` holds the changed files, the console log and the state."""

    kind = "container"
    time_factor = 1.0
    description = "systemd-nspawn container on the host's kernel (native speed)"

    def __init__(
        self, root: ContainerRoot, workdir: Path, *, name: str = "box", detach: bool = False
    ) -> None:
        self.root = root
        self.name = name
        self.workdir = workdir
        self.detach = detach
        self.capabilities = capabilities()
        self.history = []
        workdir.mkdir(parents=True, exist_ok=True)
        self.serial_log = workdir / "serial.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._pid = 0
        self._group: Path | None = None
        self._boots = 0
        self._wanted: dict[int, int] = {}
        self._forwards: dict[int, PortForward] = {}

    # -- lifecycle ---------------------------------------------------------

    def start(self) -> None:
        """See `Machine.start`."""
        if self.is_up():
            return
        if os.geteuid() != 0:
            raise MachineError("the container machine needs root; use --guest qemu")
        _allow_watches()
        self._forget()
        for part in ("upper", "work", "merged"):
            (self.workdir / part).mkdir(exist_ok=True)
        if self.serial_log.exists():
            self.serial_log.rename(self.workdir / f"serial-{self._boots}.log")
        self._boots += 1
        with tempfile.TemporaryDirectory(prefix="agent-box-") as directory:
            notify = Path(directory) / "notify"
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.bind(str(notify))
                self._launch(notify)
                self._leader = self._await_leader(sock)
        for guest, host in list(self._wanted.items()):
            try:
                self._forward(host, guest)
            except MachineError:
                if not self.detach:
                    raise
                del self._wanted[guest]  # somebody else has the port by now; whoever wants it, asks
        self._save_state()

    def is_up(self) -> bool:
        """See `Machine.is_up`."""
        if self._process is not None:
            return self._process.poll() is None
        return self._pid != 0 and guard.alive(self._pid)

    def connect(self, timeout: float = BOOT_TIMEOUT) -> None:
        """See `Machine.connect`."""
        self.start()
        deadline = time.monotonic() + timeout
        # The leader is there before it has become systemd.
        while not Path(f"/proc/{self._leader}/root/run/systemd/private").exists():
            if not self.is_up():
                raise MachineError(f"the container ended while booting:\n{self._last_errors()}")
            if time.monotonic() > deadline:
                raise MachineError(f"no systemd in the container within {timeout:.0f} s")
            time.sleep(0.01)

    def shutdown(self) -> None:
        """See `Machine.shutdown`."""
        if not self.is_up():
            return
        self.connect()
        self.execute("systemctl --no-block poweroff")
        self._wait_for_exit(BOOT_TIMEOUT)

    def power_cut(self) -> None:
        """Kill everything at once. The host's page cache survives, unlike in a power cut."""
        if self.is_up():
            self._kill()
        self._forget()

    def reboot(self) -> None:
        """See `Machine.reboot`. All processes end in order and systemd starts on the same disk."""
        self.shutdown()
        self.start()
        self.connect()

    def close(self) -> None:
        """See `Machine.close`."""
        if self.is_up():
            self._kill()
        self._forget()
        for part in ("merged", "work", "upper"):
            shutil.rmtree(self.workdir / part, ignore_errors=True)
        (self.workdir / "machine.json").unlink(missing_ok=True)

    def forward_port(self, host: int = 0, guest: int = 80) -> int:
        """See `Machine.forward_port`. Lasts as long as the machine."""
        self.connect()
        known = self._wanted.get(guest)
        if known is None or (self.detach and not forwarder.listens(known)):
            self._wanted[guest] = self._forward(host, guest)
            self._save_state()
        return self._wanted[guest]

    def _forward(self, host: int, guest: int) -> int:
        if self.detach:
            return forwarder.lasting(self._pid, self._leader, host, guest)
        self._forwards[guest] = PortForward(self._leader, host, guest)
        return self._forwards[guest].port

    def interactive_argv(self, command: str, user: str = "root") -> list[str]:
        """See `Machine.interactive_argv`."""
        self.connect()
        # The terminal of the host has no name in the container; --pty makes one that has.
        variables = {**_ENVIRONMENT, "TERM": os.environ.get("TERM", "xterm-256color")}
        return [
            *self._enter(), "env", "-i", *(f"{key}={value}" for key, value in variables.items()),
            "runuser", "--pty", "-l", user, "-w", "TERM", "-c", command,
        ]  # fmt: skip

    def ask_socket(
        self, path: str, request: bytes, timeout: float | None = ANSWER_TIMEOUT
    ) -> bytes:
        """See `Machine.ask_socket`. Costs no process: the root of the container is a directory."""
        self.connect()
        answer = b""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(timeout)
            sock.connect(f"/proc/{self._leader}/root{path}")
            sock.sendall(request)
            while not answer.endswith(b"\n") and (chunk := sock.recv(65536)):
                answer += chunk
        return answer

    # -- beyond Machine ----------------------------------------------------

    @property
    def leader(self) -> int:
        """Pid of the container's systemd, on the host."""
        return self._leader

    @classmethod
    def reattach(
        cls, root: ContainerRoot, workdir: Path, state: dict[str, Any]
    ) -> ContainerMachine:
        """Return the machine that another process left running in `workdir`."""
        machine = cls(root, workdir, name=state["name"], detach=True)
        machine._pid, machine._leader, machine._boots = state["pid"], state["leader"], 1
        if guard.alive(machine._pid) and not guard.alive(machine._leader):
            machine._leader = forwarder.child(machine._pid)  # it was restarted from within
        machine._wanted = {int(guest): host for guest, host in state.get("forwards", {}).items()}
        machine._group = Path(state["group"]) if state.get("group") else None
        return machine

    # -- inner helpers -----------------------------------------------------

    def execute_apart(
        self, command: str, timeout: float | None, stdin: bytes
    ) -> tuple[int, bytes, bytes]:
        """See `apart.Direct`."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            status, _ = self._run(["sh", "-c", f"cd /tmp; {command}"], timeout, stdin, out, err)
            for file in (out, err):
                file.seek(0)
            return status, out.read(), err.read()

    def _execute(
        self, command: str, timeout: float | None, stdin: bytes | None
    ) -> tuple[int, bytes]:
        argv = ["bash", "-c", f"set -euo pipefail; cd /tmp; {command}"]
        with self.serial_log.open("ab") as errors:
            return self._run(argv, timeout, stdin or b"", subprocess.PIPE, errors)

    def _run(
        self, command: list[str], timeout: float | None, stdin: bytes,
        out: int | IO[bytes], err: IO[bytes],
    ) -> tuple[int, bytes]:  # fmt: skip
        """Run a command as root in the container; its output comes back unless `out` takes it."""
        self.connect()
        process = subprocess.Popen(
            [*self._enter(), *command], stdin=subprocess.PIPE, stdout=out, stderr=err,
            env=_ENVIRONMENT, process_group=0,
        )  # fmt: skip
        try:
            output, _ = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            return TIMED_OUT, guard.cut_short(process, command[-1])
        if process.returncode < 0 or not self.is_up():
            raise MachineError(f"the container ended during `{command[-1][:200]}`")
        return process.returncode, output or b""

    def _enter(self) -> list[str]:
        """Return the argv prefix of a root process in all namespaces of the container."""
        program = find_program("nsenter") or "nsenter"
        inner = [program, f"--target={self._leader}", *_NAMESPACES, "--"]
        cgroup = unified_cgroup(self._leader)
        if cgroup is None:
            return inner
        # Else commands would count as the host's in whatever looks at cgroups.
        join = f'echo $$ >{shlex.quote(str(cgroup / "cgroup.procs"))}; exec "$@"'
        return ["sh", "-c", join, "-", *inner]

    def _launch(self, notify: Path) -> None:
        nspawn = [
            "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
            f"--machine={self.name}", "--private-network", "--console=read-only",
            "--link-journal=no", "--resolv-conf=off", "--timezone=off",
            # For the address filters of units.
            "--system-call-filter=bpf", "--capability=CAP_BPF,CAP_PERFMON",
        ]  # fmt: skip
        if self.root.agents is not None:
            nspawn.append(f"--bind-ro={self.root.agents}:{AGENTS_MOUNT}")
        group = self._make_group()
        argv = [
            "unshare", "--mount", "sh", "-c", _LAUNCH, "-",
            ":".join(map(str, self.root.lower)), str(self.workdir), str(group or ""), *nspawn,
        ]  # fmt: skip
        environment = {
            **os.environ,
            # Without it nspawn 252 gives the guest the host's legacy cgroups,
            # which systemd 262 refuses to run on.
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            # Any other terminal is asked for its size, and nobody answers: 0.7 s.
            "TERM": "dumb",
            "NOTIFY_SOCKET": str(notify),
        }
        with self.serial_log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self._pid = self._process.pid
        if not self.detach:
            guard.protect(self._process)

    def _make_group(self) -> Path | None:
        """Make the control group that the container starts in, which becomes its root.

        Without one of its own, two containers at once would share every group: each systemd
        would count, limit and wait for the processes of the other.
        """
        root = unified_root()
        if root is None:
            return None
        group = root / f"agent-box-{os.getpid()}-{os.urandom(4).hex()}"
        group.mkdir()
        self._group = group
        if not self.detach:
            guard.protect_group(group)
        return group

    def _remove_group(self) -> None:
        """Remove the control groups of a container that has ended."""
        if self._group is None:
            return
        # The last process may still be on its way out.
        for _ in range(50):
            for directory, _, _ in os.walk(self._group, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()
            if not self._group.exists():
                break
            time.sleep(0.02)
        else:
            return  # what is left goes with this process
        if not self.detach:
            guard.release_group(self._group)
        self._group = None

    def _await_leader(self, sock: socket.socket) -> int:
        sock.settimeout(0.2)
        deadline = time.monotonic() + BOOT_TIMEOUT
        while time.monotonic() < deadline:
            try:
                message = sock.recv(4096).decode()
            except TimeoutError:
                if self.is_up():
                    continue
                raise MachineError(f"the container did not start:\n{self._last_errors()}") from None
            for line in message.splitlines():
                key, _, value = line.partition("=")
                if key == "X_NSPAWN_LEADER_PID":
                    return int(value)
        self._kill()
        raise MachineError("systemd-nspawn did not say where its container is")

    def _wait_for_exit(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.is_up():
            if time.monotonic() > deadline:
                self._kill()
                raise MachineError(f"{self.name} did not power off within {seconds:.0f} s")
            time.sleep(0.02)
        self._forget()

    def _kill(self) -> None:
        # The container's systemd first: it takes every other process with it.
        for pid in (self._leader, self._pid):
            if pid and (pid != self._pid or self._process is None):
                guard.kill(pid)
        if self._process is not None:
            guard.end(self._process)

    def _forget(self) -> None:
        for forward in self._forwards.values():
            forward.close()
        self._forwards = {}
        if self._process is not None and self._process.poll() is not None:
            guard.release(self._process)
        self._process, self._pid, self._leader = None, 0, 0
        self._remove_group()

    def _save_state(self) -> None:
        if self.detach:
            state = {
                "kind": self.kind, "name": self.name, "pid": self._pid, "leader": self._leader,
                "group": None if self._group is None else str(self._group),
                "forwards": self._wanted,
            }  # fmt: skip
            (self.workdir / "machine.json").write_text(json.dumps(state))
