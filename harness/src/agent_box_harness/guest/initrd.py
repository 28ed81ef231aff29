"""The first root of the emulated machine: loads the disk driver, unpacks the host layer, goes on.

The layer rides in the initrd, so that a changed unit file or a changed runtime
needs neither root nor a new disk image.
"""

from __future__ import annotations

import lzma
import struct
import subprocess
from typing import TYPE_CHECKING

from agent_box_harness.guest.cache import find_program
from agent_box_harness.guest.cpio import CpioWriter
from agent_box_harness.guest.packages import INITRD_MODULES

if TYPE_CHECKING:
    from pathlib import Path

PROBE_MARKER = "agent-box: this accelerator runs the real kernel"
PROBE_ARGUMENT = "agent_box_probe"
"""On the kernel command line it makes the initrd print the marker and power off."""

ADDRESS = "10.0.2.15"
"""IPv4 address of the emulated machine in QEMU's user network."""
GATEWAY = "10.0.2.2"

_INIT = f"""#!/bin/sh
mount -t proc proc /proc
mount -t devtmpfs dev /dev
if grep -q {PROBE_ARGUMENT} /proc/cmdline; then
  echo '{PROBE_MARKER}' >/dev/console
  poweroff -f
fi
for module in {" ".join(INITRD_MODULES)}; do insmod /modules/$module.ko; done
tries=0
until [ -b /dev/vda ]; do
  tries=$((tries + 1))
  if [ $tries -gt 600 ]; then echo 'no disk /dev/vda' >/dev/console; poweroff -f; fi
  sleep 0.05
done
ip link set lo up
ip address add {ADDRESS}/24 dev eth0
ip link set eth0 up
ip route add default via {GATEWAY}
mount -t ext4 -o rw,noatime /dev/vda /root || poweroff -f
if [ "$(cat /root/etc/agent-box-layer 2>/dev/null)" != "$(cat /layer.key)" ]; then
  tar -x -C /root -f /layer.tar && cp /layer.key /root/etc/agent-box-layer
fi
umount /proc
mount --move /dev /root/dev
exec switch_root /root /usr/lib/systemd/systemd
"""

_APPLETS = (
    "sh",
    "mount",
    "umount",
    "grep",
    "ip",
    "echo",
    "poweroff",
    "insmod",
    "sleep",
    "cat",
    "cp",
    "tar",
    "switch_root",
)


def build_initrd(boot: Path, layer: bytes, key: str) -> bytes:
    """Return the initrd; `boot` is the base's boot directory, `layer` a tar, `key` its digest.

    The layer is unpacked once per disk and key, and not again after a reboot.
    """
    out = CpioWriter()
    for directory in ("/bin", "/dev", "/proc", "/root", "/modules"):
        out.directory(directory)
    out.device("/dev/console", 5, 1)
    out.file("/bin/busybox", (boot / "busybox").read_bytes(), 0o755)
    for applet in _APPLETS:
        out.link(f"/bin/{applet}", "busybox")
    for module in INITRD_MODULES:
        out.file(f"/modules/{module}.ko", _module(boot, module))
    out.file("/layer.tar", layer)
    out.file("/layer.key", f"{key}\n".encode())
    out.file("/init", _INIT.encode(), 0o755)
    return out.finish()


def unpack_kernel(bzimage: bytes) -> bytes | None:
    """Return the uncompressed kernel, which boots faster through PVH; None if we cannot.

    The header of a bzImage says where the compressed payload is (boot protocol
    2.08). Kernels packed with zstd need its program.
    """
    sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (sectors + 1) * 512 + offset
    payload = bzimage[start : start + length]
    kernel = b""
    if payload.startswith(b"\xfd7zXZ"):
        kernel = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        zstd = find_program("zstd")
        if zstd is not None:
            # The last four bytes are the unpacked size, which zstd would take for garbage.
            kernel = subprocess.run(
                [zstd, "-dc"], input=payload[:-4], capture_output=True, check=False
            ).stdout
    return kernel if kernel.startswith(b"\x7fELF") else None


def _module(boot: Path, name: str) -> bytes:
    for path in sorted(boot.glob("*.ko*")):
        if path.name.split(".")[0].replace("-", "_") == name:
            data = path.read_bytes()
            return lzma.decompress(data) if path.suffix == ".xz" else data
    message = f"the base has no kernel module {name} in {boot}"
    raise FileNotFoundError(message)
