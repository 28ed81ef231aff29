"""`agent-box-update-service`: what `agent-box-update.service` runs, as root.

Without arguments it updates the box. `--recover` settles what an update left that was killed or
lost its power; the unit runs that after every end, and the box after every boot.
"""

from __future__ import annotations

import os
import sys

from agent_box import config
from agent_box.errors import AgentBoxError, ConflictError, NotFoundError
from agent_box.locking import locked
from agent_box.update.run import Updater

_ENDS = {
    "timeout": "it took too long and was ended",
    "oom-kill": "it ran out of memory",
    "signal": "it was killed",
    "core-dump": "it crashed",
}


def main() -> None:
    """Run once."""
    arguments = sys.argv[1:]
    try:
        if arguments not in ([], ["--recover"]):
            raise ConflictError("usage: agent-box-update-service [--recover]")
        box = config.load()
        if box.update is None:
            raise NotFoundError("updates are off: set services.agent-box.selfUpdate.enable")
        updater = Updater(box.update)
        updater.state.mkdir(mode=0o755, parents=True, exist_ok=True)
        with locked(updater.state / "update", timeout=1):
            if arguments:
                updater.recover(
                    _ENDS.get(os.environ.get("SERVICE_RESULT", ""), "it was interrupted")
                )
                return
            ended = updater.update()
    except AgentBoxError as error:
        sys.stderr.write(f"agent-box-update: {error}\n")
        sys.exit(error.exit_code)
    sys.stderr.write(f"agent-box-update: {ended.message}\n")
    sys.exit(1 if ended.result == "failed" else 0)
