"""Boots of the emulated machine that are about a few units only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_box_harness.guest.additions import CONSOLES

if TYPE_CHECKING:
    from agent_box_harness.box import Box

_TARGET = """\
[Unit]
Description=What a scenario boots for
Requires=basic.target
Wants={units}
After=basic.target
AllowIsolate=yes
"""


def boot_for(box: Box, *units: str) -> None:
    """From the next boot on, start these units and what they need, on what was flushed by then.

    The rest of a box takes a minute to start under emulation. A machine of the driver of NixOS
    tests boots whole: its /etc belongs to the system, and it has KVM.
    """
    if box.kind == "nixos":
        return
    wants = " ".join((*units, *(f"backdoor@{console}.service" for console in CONSOLES)))
    box.write_file("/etc/systemd/system/scenario.target", _TARGET.format(units=wants))
    box.succeed("systemctl set-default scenario.target; sync")
