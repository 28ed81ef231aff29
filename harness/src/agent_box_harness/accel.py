"""Which accelerator QEMU gets: KVM only where the real kernel was seen to run under it.

`/dev/kvm` may exist, open, and run a boot sector, and still not run Linux. So
the probe boots the kernel of the tests, with the CPU model of the tests, into an
initrd that prints a marker.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from agent_box_harness import guard
from agent_box_harness.errors import HarnessError
from agent_box_harness.guest.cache import cache_root
from agent_box_harness.guest.initrd import PROBE_ARGUMENT, PROBE_MARKER
from agent_box_harness.qmp import Qmp

PROBE_SECONDS = 10.0
TCG_CPU = "Nehalem"
"""Never qemu64: claude and opencode die of SIGILL on it."""
KVM_CPU = "max"
TCG_FACTOR = 8.0
"""Python is some 18 times slower under emulation, most of the rest 5 to 10 times."""


@dataclass(frozen=True)
class Accelerator:
    """What QEMU runs on."""

    name: str
    """`kvm` or `tcg`."""
    cpu: str
    """Value of -cpu."""
    time_factor: float
    reason: str
    """Why this one, for the first line of a run."""


def tcg(reason: str) -> Accelerator:
    """Return software emulation."""
    return Accelerator("tcg", TCG_CPU, TCG_FACTOR, reason)


def choose(kernel: Path, initrd: Path) -> Accelerator:
    """Return the accelerator for this machine and kernel; the probe's result is cached.

    AGENT_BOX_ACCEL=tcg|kvm in the environment overrides the probe.
    """
    forced = os.environ.get("AGENT_BOX_ACCEL")
    if forced == "tcg":
        return tcg("AGENT_BOX_ACCEL=tcg")
    kvm = Accelerator("kvm", KVM_CPU, 1.0, "the kernel of the tests runs under it")
    if forced == "kvm":
        return kvm
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        why = "no /dev/kvm" if not Path("/dev/kvm").exists() else "no permission for /dev/kvm"
        return tcg(why)
    record = cache_root() / "accel" / f"{_machine_key(kernel)}.json"
    if record.is_file():
        return Accelerator(**json.loads(record.read_text()))
    failure = probe("kvm", KVM_CPU, kernel, initrd)
    result = kvm if failure is None else tcg(f"/dev/kvm exists but {failure}")
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps(asdict(result)))
    return result


def probe(
    accel: str, cpu: str, kernel: Path, initrd: Path, seconds: float = PROBE_SECONDS
) -> str | None:
    """Boot to the marker; return None when it was printed, else what happened instead."""
    with tempfile.TemporaryDirectory(prefix="agent-box-probe-") as name:
        directory = Path(name)
        serial, control = directory / "serial", directory / "qmp"
        argv = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
            "-machine", f"q35,accel={accel}", "-cpu", cpu, "-m", "512", "-no-reboot",
            "-kernel", str(kernel), "-initrd", str(initrd),
            "-append", f"console=ttyS0 quiet panic=-1 {PROBE_ARGUMENT}",
            "-serial", f"file:{serial}", "-qmp", f"unix:{control},server=on,wait=off",
        ]  # fmt: skip
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        guard.protect(process)
        try:
            return _watch(process, control, serial, seconds)
        finally:
            guard.end(process)


def _watch(
    process: subprocess.Popen[bytes], control: Path, serial: Path, seconds: float
) -> str | None:
    deadline = time.monotonic() + seconds
    qmp: Qmp | None = None
    try:
        while time.monotonic() < deadline:
            if serial.exists() and PROBE_MARKER.encode() in serial.read_bytes():
                return None
            if process.poll() is not None:
                return f"QEMU ended with status {process.returncode}"
            try:
                qmp = qmp or Qmp(control, timeout=1)
                # QEMU hangs paused, rather than ending, when KVM cannot emulate
                # an instruction.
                if qmp.status() == "internal-error":
                    return "it cannot run the kernel (internal error)"
            except HarnessError:
                qmp = None
            time.sleep(0.05)
    finally:
        if qmp is not None:
            qmp.close()
    return f"the kernel did not start within {seconds:.0f} s"


def _machine_key(kernel: Path) -> str:
    version = subprocess.run(
        ["qemu-system-x86_64", "--version"], capture_output=True, check=False
    ).stdout
    state = hashlib.sha256(version)
    state.update(kernel.read_bytes())
    state.update(repr((platform.release(), KVM_CPU, Path("/dev/kvm").stat().st_rdev)).encode())
    return state.hexdigest()[:20]
