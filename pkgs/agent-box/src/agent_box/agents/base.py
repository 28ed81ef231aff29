"""What the supervisor knows about an agent CLI: the types that every adapter shares.

An adapter is stateless. It gets a `Context`, looks at the files of the user's home, and answers;
the supervisor decides what follows from the answers. Everything here runs in the supervisor
process, whose memory and start latency are budgeted: standard library only, heavy modules inside
the functions that need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent_box.agents.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Longest prompt, in UTF-8 bytes, that is passed as one argument. The kernel's limit for a single
#: argument is 128 KiB; the rest is head-room for the stamp that some adapters put in front.
MAX_ARGUMENT = 100 * 1024

#: What a resumed agent is told when the session has no resume prompt of its own.
RESUME_STEER = (
    "This session was interrupted and has just been started again; the conversation so far was "
    "restored. Look at the actual state of your work first (files, running processes, version "
    "control), since the last step may have been cut off half-way, then carry on from there. "
    "If everything you were asked to do is already finished, say so in one line and stop."
)

_UUID_GROUPS = (8, 4, 4, 4, 12)


class AgentConfig(Protocol):
    """An installed agent, as box.json lists it."""

    @property
    def command(self) -> str:
        """Absolute path of the program."""

    @property
    def full_access(self) -> bool:
        """Whether the box-wide configuration of this agent lifts its own sandbox."""

    @property
    def remote_control(self) -> str | None:
        """Program of the pane of a session that the vendor's apps drive; None without."""


class Box(Protocol):
    """The part of `agent_box.config.Box` that adapters use."""

    @property
    def agents(self) -> Mapping[str, AgentConfig]:
        """Installed agents by name."""

    @property
    def host_label(self) -> str | None:
        """How this machine is called in the vendors' apps."""

    def plugin_of(self, user: str) -> str | None:
        """Return the directory of the plugin that tells Claude sessions of `user` of events."""


class User(Protocol):
    """The part of `agent_box.config.User` that adapters use."""

    @property
    def name(self) -> str:
        """Account name."""

    @property
    def home(self) -> Path:
        """Home directory."""

    @property
    def shell(self) -> str:
        """Absolute path of the login shell."""


class Entry(Protocol):
    """The part of a registry entry that adapters use."""

    @property
    def agent(self) -> str:
        """Name of the adapter."""

    @property
    def skip_permissions(self) -> bool:
        """Whether the agent acts without asking."""

    @property
    def remote_control(self) -> bool:
        """Whether the vendor's apps may drive the session."""

    @property
    def remote_control_name(self) -> str | None:
        """Name of the session in those apps; null derives one."""

    @property
    def working_directory(self) -> str:
        """Absolute, resolved directory that the agent starts in."""

    @property
    def extra_args(self) -> Sequence[str]:
        """Arguments added by the user."""

    @property
    def initial_prompt(self) -> str | None:
        """The kickoff prompt."""

    @property
    def resume_prompt(self) -> str | None:
        """Said to the agent on each resume; null means `RESUME_STEER`."""


class Record(Protocol):
    """The part of the supervisor's side state that adapters use."""

    @property
    def launch_id(self) -> str:
        """Id (a uuid) handed to the agent at the last spawn, or to hand to it at the first."""

    @property
    def conversation(self) -> str | None:
        """What `Agent.conversation` last returned."""

    @property
    def launched(self) -> bool:
        """Whether the session was ever spawned."""

    @property
    def delivered(self) -> bool:
        """Whether the kickoff prompt is known to have reached the agent."""

    @property
    def started_at(self) -> float:
        """When the last spawn happened (unix seconds; 0 before the first)."""


@dataclass(frozen=True)
class Context:
    """Everything an adapter may look at. `env` is the user's env file; `id` the session's id."""

    box: Box
    user: User
    name: str
    id: str
    entry: Entry
    record: Record
    env: Mapping[str, str]


@dataclass(frozen=True)
class Launch:
    """How to start an agent now.

    `env` is set on top of the user's env file. `delivers_prompt` says that the kickoff prompt is
    in `argv`; `resumes` that a recorded conversation is continued. `note` is a sentence for the
    log. `launch_id` is the id that `AGENT_BOX_SESSION_ID` carries in this run: keep it as
    `Record.launch_id` (it differs from the given one when the agent moved on to another
    conversation by itself). `typed` is text for the caller to paste into the pane, Enter behind
    it, as soon as the agent shows its input: set when the CLI takes no words on a resume.
    """

    argv: list[str]
    env: dict[str, str]
    delivers_prompt: bool
    resumes: bool
    note: str | None = None
    launch_id: str | None = None
    typed: str | None = None


class Agent:
    """An agent CLI. The defaults suit a program without sign-in, prompt or memory."""

    name = ""
    terminal = Terminal()
    """What it tells through its terminal, for want of hooks."""

    def prepare(self, ctx: Context) -> None:
        """Write the first-run state that keeps dialogs away; only on difference, a few ms.

        Never raises for a file of the user that cannot be read or written: the session then
        starts anyway and shows its dialog.
        """

    def launch(self, ctx: Context, prompt: str | None) -> Launch:
        """Return how to start the session; `prompt` is the kickoff prompt if still undelivered.

        With a recorded conversation the agent resumes it, told the kickoff prompt if given and
        the resume prompt otherwise. Without one it starts afresh and is never told that it was
        resumed.
        """
        raise NotImplementedError

    def conversation(self, ctx: Context) -> str | None:
        """Return the id of this session's conversation, or None while there is none.

        An id is returned only once the agent has stored a user message of this session, so that
        after a start with the kickoff prompt it is the evidence of delivery. Ambiguity is None.
        """
        return None

    def transcript(self, ctx: Context) -> Path | None:
        """Return the file in which the agent keeps this session's conversation; None without."""
        return None

    def stored(self, ctx: Context) -> list[Path]:
        """Return the files that are the evidence of `conversation`."""
        path = self.transcript(ctx)
        return [] if path is None else [path]

    def heard(self, ctx: Context, text: str) -> bool | None:
        """Return whether the agent has taken `text` as a message; None when that cannot be told.

        The answer is what the agent itself has stored: its transcript, a JSON document a line.
        """
        path = self.transcript(ctx)
        if path is None:
            return None
        import json
        import mmap

        # As a whole string: a short prompt may occur within anything.
        forms = [json.dumps(text.strip(), ensure_ascii=yes).encode() for yes in (False, True)]
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                return any(data.find(form) >= 0 for form in forms)
        except (OSError, ValueError):  # ValueError: it is empty
            return None

    def signed_in(self, ctx: Context) -> bool | None:
        """Return whether credentials are in place; None when that cannot be told."""
        return None

    def holds_prompt(self, ctx: Context) -> str | None:
        """Return why the kickoff prompt must not be passed yet, or None to pass it."""
        return None

    def takes_no_input(self, ctx: Context) -> str | None:
        """Return why nothing that is typed into the pane reaches the agent, or None."""
        return None

    def attention(self, ctx: Context, screen: str) -> str | None:
        """Return what the screen asks a human for, in plain words; None when nothing.

        `screen` is the visible pane as plain text, lines separated by newlines.
        """
        return None

    def refusal(self, ctx: Context, screen: str) -> str | None:
        """Return what to do about a login that the vendor refused in the last turn, or None.

        A credential in its place (`signed_in`) says nothing about that: it may have expired, been
        revoked, or belong to an account that may not use the model.
        """
        return None

    def asks(self, ctx: Context, screen: str) -> str | None:
        """Return what a human is needed for, whether the agent asks or its vendor refuses."""
        return self.attention(ctx, screen) or self.refusal(ctx, screen)


def valid_uuid(text: object) -> bool:
    """Return whether `text` has the 8-4-4-4-12 hexadecimal shape; ask before any use in a path."""
    if not isinstance(text, str):
        return False
    groups = text.split("-")
    return tuple(map(len, groups)) == _UUID_GROUPS and all(
        character in "0123456789abcdefABCDEF" for group in groups for character in group
    )


def state_directory(user: User) -> Path:
    """Return where the runtime keeps this user's side state."""
    return user.home / ".local" / "state" / "agent-box"
