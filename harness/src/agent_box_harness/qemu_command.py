"""The command line of QEMU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_box_harness.guest.additions import CONSOLES

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box_harness.accel import Accelerator

KERNEL_ARGUMENTS = (
    "console=ttyS0 rw quiet loglevel=4 net.ifnames=0 mitigations=off random.trust_cpu=on "
    "systemd.show_status=false systemd.gpt_auto=0 TERM=dumb"
)

SAME_ADDRESSES = "norandmaps"
"""For emulated guests. QEMU 7 translates code anew for each address at which it lies; with the same
addresses in every process a start of a small program costs a third."""


def kernel_arguments(accel: Accelerator) -> str:
    """Return what the kernel of a guest is told."""
    return f"{KERNEL_ARGUMENTS} {SAME_ADDRESSES}" if accel.name == "tcg" else KERNEL_ARGUMENTS


@dataclass(frozen=True)
class QemuFiles:
    """What a machine boots from; shared between machines and never written."""

    kernel: Path
    initrd: Path
    disk: Path
    """ext4, or a qcow2 when a snapshot is the base."""
    agents_disk: Path | None = None


@dataclass(frozen=True)
class Frozen:
    """RAM and device state of a stopped machine."""

    ram: Path
    state: Path


@dataclass(frozen=True)
class QemuOptions:
    """Everything that shapes one QEMU process."""

    files: QemuFiles
    accel: Accelerator
    memory_mib: int = 2048
    cpus: int = 2
    frozen: Frozen | None = None
    """Continue from there on the first start; later starts boot."""
    keep_ram: Path | None = None
    """Have the RAM in this file, as freezing needs."""


def qemu_argv(
    options: QemuOptions,
    *,
    name: str,
    overlay: Path,
    sockets: Path,
    serial: Path,
    forwards: dict[int, int],
    incoming: bool,
) -> list[str]:
    """Return the command line; `forwards` maps guest to host ports."""
    size = f"{options.memory_mib}M"
    if incoming and options.frozen is not None and options.keep_ram is None:
        # share=off: writes go to private pages, the file serves every clone.
        memory = f"memory-backend-file,id=mem,size={size},mem-path={options.frozen.ram},share=off"
    elif options.keep_ram is not None:
        memory = f"memory-backend-file,id=mem,size={size},mem-path={options.keep_ram},share=on"
    else:
        memory = f"memory-backend-ram,id=mem,size={size}"
    user_net = "user,id=net0" + "".join(
        f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for guest, host in sorted(forwards.items())
    )
    argv = [
        "qemu-system-x86_64", "-name", name, "-nodefaults", "-no-user-config", "-display", "none",
        "-no-reboot",
        "-machine", f"q35,memory-backend=mem,accel={options.accel.name}",
        "-cpu", options.accel.cpu, "-smp", str(options.cpus), "-m", size, "-object", memory,
        "-kernel", str(options.files.kernel), "-initrd", str(options.files.initrd),
        "-append", kernel_arguments(options.accel),
        # Power cuts kill the guest, not the host, so the host's cache may lag.
        "-drive", f"file={overlay},if=none,id=root,format=qcow2,cache=unsafe,discard=unmap",
        "-device", "virtio-blk-pci,drive=root",
        "-netdev", user_net, "-device", "virtio-net-pci,netdev=net0,romfile=",
        "-device", "virtio-rng-pci", "-rtc", "base=utc",
        "-serial", f"file:{serial}",
        "-qmp", f"unix:{sockets / 'qmp'},server=on,wait=off",
        "-device", "virtio-serial-pci",
    ]  # fmt: skip
    if options.files.agents_disk is not None:
        argv += [
            "-drive",
            f"file={options.files.agents_disk},if=none,id=agents,format=raw,readonly=on",
            "-device", "virtio-blk-pci,drive=agents",
        ]  # fmt: skip
    for console in CONSOLES:
        argv += [
            "-chardev", f"socket,id={console},path={sockets / console},server=on,wait=off",
            "-device", f"virtconsole,chardev={console}",
        ]  # fmt: skip
    if incoming:
        argv += ["-incoming", "defer"]
    return argv
