"""What the supervisor has observed of a session: kept apart from what the user wants.

One small file per session id below `~/.local/state/agent-box/sessions`, so that a registry
edited or restored by hand can never make a running session look new.
"""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from agent_box.locking import atomic_write
from agent_box.registry import is_uuid

if TYPE_CHECKING:
    from pathlib import Path

ENDED = "See: agent-box-session ls"
"""The end of the line that tmux puts below an ended run (remain-on-exit-format)."""

KEPT_EXITS = 20
KEPT_LOGS = 5
MAX_LOG = 1024 * 1024
"""Bytes of scrollback kept of one ended run."""


class Exit(msgspec.Struct, frozen=True, omit_defaults=False):
    """How a run of a session ended."""

    at: float
    """Unix time in seconds."""
    code: int | None = None
    signal: int | None = None
    cause: str = ""
    """In words, such as `exit 3` or `out of memory`."""


class Record(msgspec.Struct, rename="camel", kw_only=True):
    """Side state of one session."""

    id: str
    launch_id: str
    """The id that the agent was given at its last launch."""
    conversation: str | None = None
    """The agent's own id of the conversation to resume, once it is known."""
    launched: bool = False
    """Whether the agent was ever started."""
    delivered: bool = False
    """Whether the kickoff prompt is known to have reached the agent."""
    prompted: bool = False
    """Whether a launch was given the kickoff prompt: only then can a conversation prove it."""
    logged: str | None = None
    """The launch whose scrollback was kept last."""
    started_at: float = 0.0
    restarts: int = 0
    runs: int = 0
    """Ended runs so far; numbers the logs."""
    exits: list[Exit] = []


class Records:
    """The records of one user, and the scrollback of ended runs beside them."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = state_dir / "sessions"
        self.logs = state_dir / "logs"
        self.prompts = state_dir / "prompts"
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def prepare(self) -> None:
        """Make the directories."""
        for path in (self.directory, self.logs):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self, session_id: str) -> Record:
        """Return the record of `session_id`; a fresh one if there is none that can be read."""
        try:
            data = (self.directory / f"{session_id}.json").read_bytes()
            record = msgspec.json.decode(data, type=Record)
        except FileNotFoundError:
            record = Record(id=session_id, launch_id=session_id)
        except (OSError, msgspec.MsgspecError):
            # Not every file system keeps a file whole that was replaced just before the power
            # went. There was a launch: a conversation that is found must count for the kickoff
            # prompt, or the agent would be told its task twice.
            record = Record(id=session_id, launch_id=session_id, prompted=True)
        if not is_uuid(record.launch_id):
            record.launch_id = session_id
        return record

    def save(self, record: Record, *, durable: bool) -> None:
        """Write `record`; `durable` where a power cut must not undo it."""
        # Threads that save the same record take turns, and each writes what holds by then: an older
        # state must not replace a newer one that was quicker to the disk.
        with self._turns[record.id]:
            data = msgspec.json.format(msgspec.json.encode(record), indent=2)
            atomic_write(self.directory / f"{record.id}.json", data, durable=durable)

    def save_log(self, record: Record, text: str) -> None:
        """Keep the scrollback of a run that ended, the newest `KEPT_LOGS` of them."""
        directory = self.logs / record.id
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = tidy(text).encode("utf-8", "replace")[-MAX_LOG:]
        atomic_write(directory / f"{record.runs}.log", data, durable=False)
        for old in self._log_runs(record.id)[:-KEPT_LOGS]:
            (directory / f"{old}.log").unlink(missing_ok=True)

    def log(self, session_id: str, run: int | None) -> tuple[int, str] | None:
        """Return number and text of an ended run, the last one by default."""
        runs = self._log_runs(session_id)
        if run is None and runs:
            run = runs[-1]
        if run is None or run not in runs:
            return None
        path = self.logs / session_id / f"{run}.log"
        return run, path.read_text("utf-8", "replace")

    def _log_runs(self, session_id: str) -> list[int]:
        try:
            names = [path.stem for path in (self.logs / session_id).glob("*.log")]
        except OSError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def forget(self, session_id: str) -> None:
        """Remove everything known of a session."""
        if not is_uuid(session_id):
            return
        self._turns.pop(session_id, None)
        launch_id = self.load(session_id).launch_id
        (self.directory / f"{session_id}.json").unlink(missing_ok=True)
        for path in (*self.prompts.glob(f"{session_id}.md"), *self.prompts.glob(f"{session_id}-*")):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.logs / session_id, ignore_errors=True)
        # Conversation ids that claude moved on to, one noted under the other.
        for _ in range(64):
            noted = self.directory.with_name("live") / launch_id
            try:
                launch_id = noted.read_text("ascii")[:64].strip()
                noted.unlink()
            except (OSError, ValueError):
                return
            if not is_uuid(launch_id):
                return

    def known(self) -> set[str]:
        """Return the ids that have a record or logs."""
        ids = {path.stem for path in self.directory.glob("*.json")}
        ids |= {path.name for path in self.logs.iterdir()}
        return {session_id for session_id in ids if is_uuid(session_id)}


def tidy(text: str) -> str:
    """Return a captured screen without its emptiness and without tmux's own last line.

    A run of blank lines becomes one.
    """
    kept: list[str] = []
    for line in map(str.rstrip, text.splitlines()):
        if line.startswith("[agent-box] ended (") and line.endswith(ENDED):
            continue
        if line or (kept and kept[-1]):
            kept.append(line)
    return "\n".join(kept).rstrip("\n") + "\n"
