"""`agent-box-webhook`: how agents and people say what a session wants to be told of."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "agent-box-webhook"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 ok, 1 internal, 2 usage, 3, 4."""
    from agent_box.errors import AgentBoxError
    from agent_box.webhook.cli import commands, parser
    from agent_box.webhook.cli.context import Context

    arguments = parser.build().parse_args(sys.argv[1:] if argv is None else list(argv))
    try:
        context = Context(arguments)
        commands.COMMANDS[arguments.command](context, arguments)
    except AgentBoxError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return 0
