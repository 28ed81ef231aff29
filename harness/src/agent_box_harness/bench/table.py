"""The table that `scripts/bench` prints: ours, the target, and the reference's measured figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_box_harness.bench.measure import Measurement


@dataclass(frozen=True)
class Yardstick:
    """What a row is compared with. `target` is an upper bound in the row's unit."""

    target: float | None = None
    reference: str = ""


YARDSTICKS = {
    "add-live": Yardstick(150, "1.3 s typical (polls every 2 s)"),
    "add-live-cli": Yardstick(None, "1.3 s typical (polls every 2 s)"),
    "respawn": Yardstick(300, "1.6-2.9 s"),
    "forks": Yardstick(None, "12 jq alone"),
    "at-once-16": Yardstick(1000, "6.5 s, one after the other"),
    "idle-cpu-0": Yardstick(0.1, ""),
    "idle-cpu-4": Yardstick(0.1, "2.5 % of a core"),
    "idle-cpu-20": Yardstick(0.1, "4.3 % of a core"),
    "pss-supervisor-0": Yardstick(25, ""),
    "pss-supervisor-4": Yardstick(25, ""),
    "pss-supervisor-20": Yardstick(25, ""),
    "guest-restore": Yardstick(1000, ""),
    "webhook-memory": Yardstick(60, ""),
    "webhook-lost": Yardstick(1, ""),
    "web-login": Yardstick(None, ""),
    "web-request": Yardstick(None, ""),
    "web-usable": Yardstick(1000, ""),
    "web-weight": Yardstick(100, "53-66 KB again for each change"),
    "web-echo": Yardstick(50, ""),
    "web-echo-guessed": Yardstick(200, ""),
    "web-guessers": Yardstick(120, "+960 MB"),
    "web-memory-user": Yardstick(None, ""),
    "web-wake": Yardstick(500, ""),
    "web-event": Yardstick(100, "up to 1 s (samples every second)"),
    "web-event-size": Yardstick(2, "53-66 KB (the page again)"),
    "web-idle": Yardstick(0.5, ""),
}
"""Targets are ours; the reference's figures were measured on the same kind of machine."""


def render(rows: Sequence[Measurement], facts: Sequence[str]) -> str:
    """Return the table, then the facts and the method of each row."""
    header = ("", "median", "min", "max", "n", "target", "", "reference")
    lines = [header]
    for row in rows:
        yardstick = YARDSTICKS.get(row.key, Yardstick())
        lines.append(
            (
                row.what,
                number(row.median, row.unit),
                number(min(row.samples), row.unit),
                number(max(row.samples), row.unit),
                str(len(row.samples)),
                f"< {number(yardstick.target, row.unit)}" if yardstick.target else "",
                verdict(row, yardstick),
                yardstick.reference,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in (0, 5, 6, 7) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    text.append("")
    text += facts
    text += [f"{row.what}: {row.method}" for row in rows]
    return "\n".join(text) + "\n"


def verdict(row: Measurement, yardstick: Yardstick) -> str:
    """`ok` or `MISSED` against the target, by the median; empty without a target."""
    if yardstick.target is None:
        return ""
    return "ok" if row.median < yardstick.target else "MISSED"


def number(value: float, unit: str) -> str:
    """A figure with as many digits as mean something."""
    if unit == "%":
        return f"{value:.3f} %"
    digits = 0 if value >= 100 or not unit else 1
    return f"{value:.{digits}f} {unit}".rstrip()
