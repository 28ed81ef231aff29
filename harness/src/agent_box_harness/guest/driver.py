"""Lets the unmodified NixOS test driver drive the portable guest.

The driver is configured with a start script whose name tells the machine's, and
appends the options of its own sockets to it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from agent_box_harness.qemu_command import kernel_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box_harness.qemu_command import QemuOptions


def write_start_script(options: QemuOptions, directory: Path, name: str = "box") -> Path:
    """Write `run-<name>-vm` and return it. The driver runs it in the machine's state directory.

    Its disk, `<name>.qcow2` there, is made at the first start and kept.
    """
    files = options.files
    argv = [
        "qemu-system-x86_64", "-name", name, "-nodefaults", "-no-user-config",
        "-machine", f"q35,accel={options.accel.name}", "-cpu", options.accel.cpu,
        "-smp", str(options.cpus), "-m", f"{options.memory_mib}M",
        "-kernel", str(files.kernel), "-initrd", str(files.initrd),
        "-append", kernel_arguments(options.accel),
        "-drive", f"file={name}.qcow2,if=none,id=root,format=qcow2,cache=unsafe,discard=unmap",
        "-device", "virtio-blk-pci,drive=root",
        "-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile=",
        "-rtc", "base=utc",
    ]  # fmt: skip
    if files.agents_disk is not None:
        argv += [
            "-drive", f"file={files.agents_disk},if=none,id=agents,format=raw,readonly=on",
            "-device", "virtio-blk-pci,drive=agents",
        ]  # fmt: skip
    make_disk = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(files.disk), "-F", "raw"]
    script = directory / f"run-{name}-vm"
    script.write_text(
        "#!/bin/sh -e\n"
        f"[ -e {name}.qcow2 ] || {shlex.join(make_disk)} {name}.qcow2\n"
        # The driver ends the shell that it started, which may be the parent of this process.
        f'exec setpriv --pdeathsig TERM {shlex.join(argv)} "$@" $QEMU_OPTS\n'
    )
    script.chmod(0o755)
    return script
