"""The session commands while the supervisor is down: straight on the registry, under its lock.

Takes and returns what the control socket's operations do. A session is ended through tmux if
that runs; nothing is started, since that is the supervisor's work and it starts what is listed
when it comes back.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from agent_box import intent, naming
from agent_box.errors import AgentBoxError, InternalError, NotFoundError, UsageError
from agent_box.registry import Document, Store
from agent_box.views import unmanaged

if TYPE_CHECKING:
    from agent_box.config import Box, User
    from agent_box.registry import Entry

TMUX_TIMEOUT = 2.0
"""Seconds that tmux gets to answer."""


def ls(user: User, box: Box) -> dict[str, Any]:
    """List what the registry wants; whether it lives is told as far as tmux answers."""
    problems = []
    store = Store(user)
    try:
        document = store.read()
    except AgentBoxError as error:
        problems.append(str(error))
        document = store.last_good()
    alive, answered = _live(user, box)
    if not answered:
        problems.append("tmux does not answer either; whether sessions live is not known")
    views = [_view(entry, alive) for entry in document.entries.values()]
    problems += [f"session '{name}': {why}" for name, why in document.invalid.items()]
    foreign = sorted(alive - document.sessions.keys())
    views += [unmanaged(name) for name in foreign if not naming.is_reserved(name)]
    return {"sessions": views, "problems": problems}


def show(user: User, box: Box, *, name: str) -> dict[str, Any]:
    """Tell what the registry says of one session."""
    for view in ls(user, box)["sessions"]:
        if view["name"] == name:
            document = _read(user)
            return {**view, "entry": document.sessions.get(name), "exits": []}
    raise NotFoundError(f"no session '{name}'; `agent-box-session ls` lists them")


def add(user: User, box: Box, **args: Any) -> dict[str, Any]:
    """List a new session."""
    change, name = intent.add(box, user, intent.Request.from_wire(args))
    document = Store(user).mutate(change)
    return {"session": _view(document.entry(name()), set())}


def rm(user: User, box: Box, *, name: str) -> dict[str, Any]:
    """Delist a session and end it."""
    ids: list[Any] = []

    def change(document: Document) -> None:
        item = document.sessions.get(name)
        ids.append(item.get("boxSessionId") if isinstance(item, dict) else None)
        intent.remove(name)(document)

    Store(user).mutate(change)
    _kill(user, box, name, ids[-1])
    return {"session": None}


def stop(user: User, box: Box, *, name: str) -> dict[str, Any]:
    """Park a session and end it."""
    document = Store(user).mutate(intent.set_stopped(name, stopped=True))
    _kill(user, box, name, document.entry(name).id)
    return {"session": _view(document.entry(name), set())}


def start(user: User, box: Box, *, name: str) -> dict[str, Any]:
    """Let a parked session run again, once the supervisor is there."""
    document = Store(user).mutate(intent.set_stopped(name, stopped=False))
    return {"session": _view(document.entry(name), _live(user, box)[0])}


def restart(
    user: User,
    box: Box,
    *,
    name: str | None = None,
    all: bool = False,  # noqa: A002  (the word of the control socket)
    includeStopped: bool = False,  # noqa: N803
) -> dict[str, Any]:
    """End one or all sessions; the supervisor starts them again."""
    document = _read(user)
    if name is None and not all:
        raise UsageError("name a session, or say --all")
    if name is not None:
        names = [document.entry(name).name]
    else:
        names = [e.name for e in document.entries.values() if includeStopped or not e.stopped]
        # The session that this command runs in goes last, or the rest would never be reached.
        names.sort(key=lambda item: item == os.environ.get("AGENT_BOX_SESSION"))
    sessions, errors = [], []
    for item in names:
        try:
            after = Store(user).mutate(intent.set_stopped(item, stopped=False))
            _kill(user, box, item, after.entry(item).id)
            sessions.append(_view(after.entry(item), set()))
        except AgentBoxError as error:
            errors.append({"name": item, "message": str(error)})
    return {"sessions": sessions, "errors": errors}


def rename(user: User, box: Box, *, name: str, newName: str) -> dict[str, Any]:  # noqa: N803
    """Give a session another name."""
    document = Store(user).mutate(intent.rename(name, newName))
    found = _tmux_session(user, box, document.entry(newName).id)
    if found:
        _tmux(user, box, "rename-session", "-t", found, newName)
    return {"session": _view(document.entry(newName), _live(user, box)[0])}


def _read(user: User) -> Document:
    return Store(user).read()


def _tmux(user: User, box: Box, *args: str) -> subprocess.CompletedProcess[str] | None:
    env = {"TMUX_TMPDIR": str(user.runtime_dir), "PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    try:
        return subprocess.run(
            [box.programs.tmux, "-N", "-u", "-L", naming.TMUX_SOCKET, *args],
            env=env,
            capture_output=True,
            text=True,
            timeout=TMUX_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _live(user: User, box: Box) -> tuple[set[str], bool]:
    result = _tmux(user, box, "list-panes", "-a", "-F", "#{pane_dead} #{session_name}")
    if result is None or result.returncode:
        return set(), False
    lines = [line.partition(" ") for line in result.stdout.splitlines()]
    return {name for dead, _, name in lines if dead != "1"}, True


def _tmux_session(user: User, box: Box, session_id: str | None) -> str | None:
    """Return tmux's own id of the session started for `session_id`.

    None when there is none, empty when tmux does not answer. A session of the user's own that
    happens to have the name is never taken for it.
    """
    result = _tmux(user, box, "list-sessions", "-F", "#{session_id} #{@agent-box-id}")
    if result is None:
        return ""
    pairs = (line.split() for line in result.stdout.splitlines())
    found = (pair[0] for pair in pairs if len(pair) == 2 and pair[1] == session_id)
    return next(found, None)


def _kill(user: User, box: Box, name: str, session_id: str | None) -> None:
    found = _tmux_session(user, box, session_id)
    if found is None:
        return
    result = _tmux(user, box, "kill-session", "-t", found) if found else None
    if result is None:
        raise InternalError(
            f"session '{name}' is no longer wanted, but tmux does not answer: it may still run. "
            f"It ends when agent-box-{user.name}.service is restarted"
        )
    known = ("can't find session", "no server running", "error connecting")
    if result.returncode and not any(text in result.stderr for text in known):
        raise InternalError(f"session '{name}' could not be ended: {result.stderr.strip()}")


def _view(entry: Entry, alive: set[str]) -> dict[str, Any]:
    state = "stopped" if entry.stopped else "running" if entry.name in alive else "starting"
    return {
        **unmanaged(entry.name),
        "agent": entry.agent,
        "state": state,
        "reason": None if state != "starting" else "waits for the supervisor",
        "id": entry.id,
        "workingDirectory": entry.working_directory,
        "promptPending": False,
    }
