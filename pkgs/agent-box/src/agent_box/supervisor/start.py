"""`agent-box-supervisor` as a program: starts with no more than it needs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the supervisor of the calling user."""
    # asyncio loads OpenSSL where there is one: an eighth of the start and 4 MB, for every user, of
    # a service that speaks over UNIX sockets only. It does without where that cannot be imported.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    from agent_box.supervisor.main import main as run

    run()
