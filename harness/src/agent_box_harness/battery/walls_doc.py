"""Writes docs/sockets-and-paths.md: every socket and users' path that something else reads."""

from __future__ import annotations

from pathlib import Path

from agent_box_harness.battery import declared, walls

PAGE = Path("docs/sockets-and-paths.md")

_HEAD = """\
# Sockets and paths that somebody else reads

A component with more rights, or one that users share, trusts nothing that one user controls. This
is the list of all places where one could: each socket, and each path below a home or in a directory
of a user's that systemd or a service of somebody else looks at. USER is each user of the box.

Owner, mode and units are those of the rendered config of the host `test`; the other columns are
kept in `harness/src/agent_box_harness/battery/sockets-and-paths.toml`. A unit test fails while a
socket or path is in the units and not here, or here and in no unit; scenarios below
`harness/scenarios/attack` try each on a running box. `python -m
agent_box_harness.battery.walls_doc` in a checkout writes this page.
"""
_SOCKETS = """
## Sockets

| socket | owner, mode | who may write there | who connects | why it is safe |
| --- | --- | --- | --- | --- |
"""
_PATHS = """
## Paths

| path | owner, mode | who may write there | who reads it | why it is safe |
| --- | --- | --- | --- | --- |
"""
_SYSTEM = """
## Sockets of the operating system

| socket | open to users from | who listens | why it is safe |
| --- | --- | --- | --- |
"""


def text(table: walls.Table, found: declared.Declared) -> str:
    """Return the page."""
    page = _HEAD + _SOCKETS
    for row in table.sockets:
        if not row.system:
            page += _row(row, found.sockets.get(row.path))
    page += _PATHS
    for row in table.paths:
        page += _row(row, found.paths.get(row.path))
    page += _SYSTEM
    for row in table.sockets:
        if row.system:
            where = ", ".join(row.open_to) or "nowhere"
            page += f"| `{row.path}` | {where} | {row.readers} | {row.safe} |\n"
    return page


def _row(row: walls.Row, entry: declared.Found | None) -> str:
    told = entry.told() if entry else "made by a program"
    units = "".join(f"<br>`{each}`" for each in sorted(entry.readers)) if entry else ""
    return f"| `{row.path}` | {told} | {row.writers} | {row.readers}{units} | {row.safe} |\n"


def problems(repo: Path) -> list[str]:
    """Say why the committed page, or its table, cannot be trusted. Empty: all is well."""
    table, found = walls.read(), declared.read(repo)
    wrong = walls.problems(table, found)
    page = repo / PAGE
    if not page.exists() or page.read_text(encoding="utf-8") != text(table, found):
        wrong.append(f"{PAGE} is not what the table and the units say: write it again")
    return wrong


def write(repo: Path) -> None:
    """Write the page."""
    page = repo / PAGE
    page.write_text(text(walls.read(), declared.read(repo)), encoding="utf-8")


if __name__ == "__main__":
    write(Path.cwd())
    for problem in problems(Path.cwd()):
        print(problem)
