"""Paths of a user's that root, or somebody else, reads: traps in the place of each.

Which there are, the units of the running box say, read the same way as the rendered ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent_box_harness.battery import declared, inside
from agent_box_harness.battery.ground import ATTACKER, VICTIM

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground
    from agent_box_harness.box import Box

SECRET = "battery-secret-4711"  # noqa: S105 - what must not be read
_UNIT = re.compile(r"^([A-Za-z0-9@._-]+\.(?:service|path|socket|timer))\b")


def found(box: Box) -> declared.Declared:
    """Return sockets and paths that the units and tmpfiles of a box name."""
    script = (
        "for unit in $(systemctl list-unit-files --no-legend 'agent-box*' caddy.service "
        "fail2ban.service earlyoom.service | cut -d ' ' -f 1); do "
        'echo "@@@ units/$unit"; systemctl cat "$unit" 2>/dev/null || true; done; '
        "for file in /etc/tmpfiles.d/*agent-box*.conf /etc/tmpfiles.d/00-nixos.conf; do "
        'if [ -e "$file" ]; then echo "@@@ etc/tmpfiles.d/${file##*/}"; cat "$file"; fi; done; '
        "echo '@@@ etc/agent-box/box.json'; cat /etc/agent-box/box.json"
    )
    files: dict[str, str] = {}
    for part in box.succeed(script).split("@@@ ")[1:]:
        name, _, text = part.partition("\n")
        files[name.strip()] = text
    return declared.extract(files)


def readers(entry: declared.Found) -> list[str]:
    """Return the commands that have whoever reads a path do so."""
    commands = []
    for reader in sorted(entry.readers):
        unit = _UNIT.match(reader.replace(declared.USER, ATTACKER))
        if reader.startswith("tmpfiles"):
            commands.append(f"systemd-tmpfiles --create --prefix={_path(entry)}")
        elif unit and unit[1].endswith(".service"):
            commands.append(f"systemctl start {unit[1]}")
    return list(dict.fromkeys(commands))


def _path(entry: declared.Found) -> str:
    return entry.path.replace(declared.USER, ATTACKER)


def spring(ground: Ground) -> dict[str, Any]:
    """Put every trap in the place of every path; return complaints, and which could be made."""
    paths = [
        {"path": _path(entry), "readers": readers(entry)}
        for entry in found(ground.box).paths.values()
    ]
    job = {"user": ATTACKER, "victim": VICTIM, "secret": SECRET, "paths": paths}
    told: dict[str, Any] = inside.run(ground.box, "trap", job, timeout=150)
    return told
