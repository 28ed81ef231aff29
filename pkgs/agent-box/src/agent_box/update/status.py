"""`/var/lib/agent-box/update.json`: how far an update is, or how the last one ended."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from agent_box.errors import InternalError
from agent_box.locking import atomic_write

STATE = Path("/var/lib/agent-box")
"""Readable by everybody; only root writes there."""

FILE = "update.json"

PHASES = ("resolving", "checking", "building", "switching", "committing")
"""What an update does, in this order; `done` comes after them."""

RESULTS = {
    "current": "there was nothing newer",
    "updated": "the box runs the new system",
    "partly": "the box runs the new system, but something needs a look",
    "failed": "the box runs the system that it ran before",
}


class Status(msgspec.Struct, kw_only=True, rename="camel"):
    """One update, as everybody may see it."""

    version: int = 1
    phase: str = "done"
    """One of `PHASES`, or `done`."""
    result: str | None = None
    """One of `RESULTS`; None while it runs."""
    message: str = ""
    """A sentence for people: what happened, and what to do if anything."""
    before: dict[str, str] = msgspec.field(name="from", default_factory=dict)
    """Input of the flake -> revision, before the update."""
    to: dict[str, str] = {}
    """Input of the flake -> revision that the update goes to; empty until it is known."""
    exit: int | None = None
    """Exit status of the command that failed, or None."""
    started: float = 0.0
    """Seconds since 1970."""
    finished: float | None = None

    @property
    def running(self) -> bool:
        """Whether the update has not ended yet, as far as the file knows."""
        return self.result is None and self.started > 0


def read(state: Path | None = None) -> Status:
    """Return the status; that of a box which was never updated is `done` without a result."""
    path = (state or STATE) / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except FileNotFoundError:
        return Status()
    except (OSError, msgspec.MsgspecError) as error:
        raise InternalError(
            f"{path} cannot be read ({error}): the next update replaces it"
        ) from None


def write(status: Status, state: Path = STATE) -> None:
    """Replace the status, durably: after a power cut it tells how far the update got."""
    data = msgspec.json.format(msgspec.json.encode(status), indent=2)
    atomic_write(state / FILE, data + b"\n", 0o644)


def ended(status: Status, result: str, message: str, code: int | None = None) -> Status:
    """Return `status` as that of an update which is over."""
    return msgspec.structs.replace(
        status, phase="done", result=result, message=message, exit=code, finished=time.time()
    )
