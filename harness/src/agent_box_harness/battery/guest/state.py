"""Tells how the units of the box are, and what was logged since a moment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import job, tell
else:  # beside it, inside the guest
    from telling import job, tell

PROPERTIES = ("Id", "MainPID", "NRestarts", "ActiveState", "SubState", "Result")


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def memory(pid: str) -> int:
    """Return the proportional memory of a process in KiB; 0 if there is none."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def units(patterns: list[str]) -> dict[str, dict[str, Any]]:
    """Return how units are."""
    shown = output("systemctl", "show", "-p", ",".join(PROPERTIES), *patterns)
    found = {}
    for block in shown.split("\n\n"):
        pairs = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if pairs.get("Id"):
            found[pairs["Id"]] = {**pairs, "memory": memory(pairs.get("MainPID", "0"))}
    return found


def journal(cursor: str) -> tuple[list[list[str]], str]:
    """Return unit and text of each line since a cursor, and the cursor of now."""
    output("journalctl", "--sync")
    last = output("journalctl", "-n", "1", "-o", "json", "--output-fields=MESSAGE")
    now = json.loads(last)["__CURSOR"] if last.strip() else ""
    if not cursor:
        return [], now
    fields = "_SYSTEMD_UNIT,UNIT,MESSAGE,SYSLOG_IDENTIFIER"
    text = output(
        "journalctl", "--no-pager", "-q", "--after-cursor", cursor, "-o", "json",
        f"--output-fields={fields}",
    )  # fmt: skip
    lines = []
    for line in text.splitlines():
        entry = json.loads(line)
        unit = entry.get("UNIT") or entry.get("_SYSTEMD_UNIT") or entry.get("SYSLOG_IDENTIFIER", "")
        lines.append([str(unit), str(entry.get("MESSAGE"))[:300]])
    return lines, now


def main() -> None:
    """Tell of units and journal."""
    told = job()
    lines, cursor = journal(told["cursor"])
    failed = output("systemctl", "list-units", "--failed", "--plain", "--no-legend").split("\n")
    tell({
        "units": units(told["units"]),
        "cursor": cursor,
        "lines": lines,
        "failed": [line.split()[0] for line in failed if line.strip()],
    })  # fmt: skip


if __name__ == "__main__":
    main()
