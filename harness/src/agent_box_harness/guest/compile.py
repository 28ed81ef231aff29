"""Compiles the runtime's byte code with the guest's own Python, so that programs start fast."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from agent_box_harness.errors import BuildError
from agent_box_harness.guest.host import PACKAGES

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box_harness.guest.layer import Layer

_SCRIPT = """
set -e
cd "$1"
mkdir lower upper work merged
tar -x -p --numeric-owner -C lower
mount -t overlay overlay -o "lowerdir=lower:$2,upperdir=upper,workdir=work" merged
chroot merged python3 -m compileall -q "$3"
umount merged
"""

_UNIT = """\
[Unit]
Description=Byte code of the runtime

[Service]
Type=oneshot
# Nobody waits for it but the one who freezes the booted guest.
Nice=19
ExecStart=/usr/bin/python3 -m compileall -q {packages}/agent_box
"""


def compile_runtime(layer: Layer, base: Path, scratch: Path) -> None:
    """Add the byte code to the layer; without root, add a unit that makes it at first boot."""
    if os.geteuid() != 0:
        layer.file(
            "/etc/systemd/system/agent-box-guest-compile.service",
            _UNIT.format(packages=PACKAGES),
        )
        layer.enable("agent-box-guest-compile.service", "multi-user.target")
        return
    area = scratch / "compile"
    area.mkdir()
    target = f"{PACKAGES}/agent_box"
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _SCRIPT, "-", str(area), str(base / "root"), target],
        input=layer.tar(), capture_output=True, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        said = (result.stdout + result.stderr).decode(errors="replace")[-2000:]
        raise BuildError(f"the runtime does not compile in the guest:\n{said}")
    layer.tree(area / "upper" / target.lstrip("/"), target, byte_code=True)
    subprocess.run(["rm", "-rf", str(area)], check=True)
