"""How the services of the box are before and after an attack, and what it had them log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness.battery import inside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

UNITS = ["agent-box*.service", "caddy.service", "fail2ban.service", "earlyoom.service"]
MEMORY = 64 * 1024
"""KiB by which an attack may have a service grow for as long as it stands."""
LIMITED = "messages from caddy.service"
"""A request is a line of the edge's, and it has a limit of lines, so that others keep theirs."""
NO_END = ("Traceback (most recent call last)", "panic", "Suppressed ", "segfault")
"""What is in the journal after somebody met what nobody thought of."""


@dataclass(frozen=True)
class Health:
    """Units at one moment."""

    units: dict[str, dict[str, Any]]
    failed: frozenset[str]
    cursor: str
    lines: tuple[tuple[str, str], ...] = ()
    """Unit and text of what was logged since the moment before."""

    def logged(self) -> Counter[str]:
        """Count lines by unit."""
        return Counter(unit for unit, _ in self.lines)


def look(box: Box, before: Health | None = None) -> Health:
    """Look at the units, and at what they logged since the moment before."""
    job = {"units": UNITS, "cursor": before.cursor if before else ""}
    found = inside.run(box, "state", job)
    lines = tuple((unit, text) for unit, text in found["lines"])
    return Health(found["units"], frozenset(found["failed"]), found["cursor"], lines)


def complaints(before: Health, after: Health, memory: int = MEMORY) -> list[str]:
    """Say which services ended, failed, grew, or met what nobody thought of."""
    failed = [unit for unit in after.failed - before.failed if unit in after.units]
    wrong = [f"{unit} has failed" for unit in sorted(failed)]
    for name, now in after.units.items():
        was = before.units.get(name)
        if was is None:
            continue
        if int(now["NRestarts"] or 0) > int(was["NRestarts"] or 0):
            wrong.append(f"{name} was restarted by systemd: its process died")
        grown = now["memory"] - was["memory"]
        if was["memory"] and grown > memory:
            wrong.append(f"{name} grew from {was['memory']} to {now['memory']} KiB")
    for mark in NO_END:
        hits = [(unit, text) for unit, text in after.lines if mark in text and LIMITED not in text]
        if hits:
            unit, text = hits[0]
            wrong.append(f"{unit} logs {mark!r} {len(hits)} times: {text[:160]!r}")
    return wrong
