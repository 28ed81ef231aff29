"""Changes of intent: what a command does to the registry document.

Used by the supervisor and, while that is down, by the command line directly, so that both
accept and refuse the same things in the same words.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box import naming
from agent_box.config import SHELL
from agent_box.errors import ConflictError, UsageError
from agent_box.registry import is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box.config import Box, User
    from agent_box.registry import Document

    Change = Callable[[Document], None]


@dataclass(frozen=True)
class Request:
    """What `add` asks for. Names follow the registry's fields."""

    id: str | None = None
    """The id of the session, for who needs to know it beforehand."""
    name: str | None = None
    agent: str | None = None
    working_directory: str | None = None
    mkdir: bool = False
    prompt: str | None = None
    resume_prompt: str | None = None
    extra_args: tuple[str, ...] = ()
    skip_permissions: bool = True
    remote_control: bool = True
    remote_control_name: str | None = None

    @classmethod
    def from_wire(cls, args: dict[str, Any]) -> Request:
        """Build a request from the arguments of the `add` operation."""
        known: dict[str, tuple[str, type | tuple[type, ...]]] = {
            "id": ("id", str),
            "name": ("name", str),
            "agent": ("agent", str),
            "workingDirectory": ("working_directory", str),
            "mkdir": ("mkdir", bool),
            "prompt": ("prompt", str),
            "resumePrompt": ("resume_prompt", str),
            "extraArgs": ("extra_args", list),
            "skipPermissions": ("skip_permissions", bool),
            "remoteControl": ("remote_control", bool),
            "remoteControlName": ("remote_control_name", str),
        }
        values: dict[str, Any] = {}
        for wire, (field, kind) in known.items():
            value = args.get(wire)
            if value is None:
                continue
            if not isinstance(value, kind):
                raise UsageError(f"{wire} has the wrong type")
            values[field] = value
        extra = values.get("extra_args", [])
        if not all(isinstance(item, str) for item in extra):
            raise UsageError("extraArgs must be a list of strings")
        values["extra_args"] = tuple(extra)
        return cls(**values)


def add(box: Box, user: User, request: Request) -> tuple[Change, Callable[[], str]]:
    """Return the change that lists a new session, and a getter of the name it got."""
    agent = request.agent or box.default_agent
    if not box.knows_agent(agent):
        raise UsageError(
            f"agent '{agent}' is not installed here; use one of: {', '.join(box.agent_names())}"
        )
    if request.name is not None:
        naming.check_new(request.name)
    if request.id is not None and not is_uuid(request.id):
        raise UsageError("the id of a session must be a UUID")
    if request.prompt and agent == SHELL:
        raise UsageError(
            "a shell takes no prompt; leave --prompt out, or choose an agent with --agent"
        )
    label = request.remote_control_name
    if label is not None and (not label.strip() or "\n" in label or "\r" in label):
        raise UsageError("the remote control name must not be empty or hold a line break")
    for text in (request.prompt, request.resume_prompt, *request.extra_args):
        if text and "\0" in text:
            raise UsageError("a prompt or argument must not hold a NUL character")
    directory = _directory(user, request)
    chosen = ""

    def change(document: Document) -> None:
        nonlocal chosen
        taken = document.sessions.keys()
        if request.name is not None and request.name in taken:
            raise ConflictError(
                f"session '{request.name}' exists already; choose another name, "
                f"or remove it first: agent-box-session rm {request.name}"
            )
        if request.id in {entry.id for entry in document.entries.values()} - {None}:
            raise ConflictError(f"a session with the id {request.id} exists already")
        chosen = request.name or naming.derive(agent, directory, user.home, taken)
        document.sessions[chosen] = {
            "agent": agent,
            "skipPermissions": request.skip_permissions,
            "remoteControl": request.remote_control,
            "remoteControlName": label,
            "workingDirectory": str(directory),
            "extraArgs": list(request.extra_args),
            "initialPrompt": request.prompt or None,
            "resumePrompt": request.resume_prompt or None,
            "boxSessionId": request.id or str(uuid.uuid4()),
        }

    return change, lambda: chosen


def _directory(user: User, request: Request) -> Path:
    given = request.working_directory
    path = Path(given) if given else user.home
    if not path.is_absolute():
        raise UsageError(f"the working directory {given!r} is not an absolute path")
    path = path.resolve()
    try:
        if request.mkdir:
            path.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            raise UsageError(
                f"the working directory {path} does not exist; create it, or add --mkdir"
            )
    except OSError as error:
        raise UsageError(
            f"the working directory {path} cannot be used: {error.strerror}"
        ) from error
    return path


def remove(name: str) -> Change:
    """Delist session `name`."""

    def change(document: Document) -> None:
        if name not in document.sessions:
            document.entry(name)
        del document.sessions[name]

    return change


def set_stopped(name: str, *, stopped: bool) -> Change:
    """Park session `name`, or let it run again. The key is absent unless it is parked."""

    def change(document: Document) -> None:
        document.entry(name)
        if stopped:
            document.sessions[name]["stopped"] = True
        else:
            document.sessions[name].pop("stopped", None)

    return change


def rename(old: str, new: str) -> Change:
    """Give session `old` the name `new`, its place in the list kept."""
    naming.check_new(new)

    def change(document: Document) -> None:
        document.entry(old)
        if new in document.sessions:
            raise ConflictError(f"session '{new}' exists already; choose another name")
        renamed = {new if name == old else name: item for name, item in document.sessions.items()}
        document.raw["sessions"] = renamed

    return change


def give_ids(document: Document) -> None:
    """Mint an id for every valid entry that has none (hand-written ones)."""
    for name, entry in document.entries.items():
        if entry.id is None:
            document.sessions[name]["boxSessionId"] = str(uuid.uuid4())
