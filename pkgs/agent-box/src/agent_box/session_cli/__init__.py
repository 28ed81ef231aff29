"""`agent-box-session`: what a person, a script or an agent types to manage sessions.

The command asks the user's supervisor over its socket. So the whole of a request is carried out
even when it ends the session that the command was typed in. Imports are made where they are
needed: people wait for this program, and completion runs it at each press of a key.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "agent-box-session"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 ok, 1 internal, 2 usage, 3, 4."""
    from agent_box.session_cli import run

    return run.run(sys.argv[1:] if argv is None else list(argv))
