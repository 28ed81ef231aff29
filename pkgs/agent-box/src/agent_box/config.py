"""`/etc/agent-box/box.json` as typed objects: the one description of a box.

The NixOS module renders the document; every program of the runtime reads it here and
nowhere else. Unknown fields are ignored, so that an older runtime reads a newer document.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import msgspec

from agent_box.errors import InternalError, UsageError

DEFAULT_PATH = Path("/etc/agent-box/box.json")
"""Where the module renders the document. `AGENT_BOX_CONFIG` overrides it."""

VERSION = 1
"""The document version that this runtime understands."""

SHELL = "shell"
"""The pseudo-agent that runs the user's login shell. Always available."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one session may use. `None` means no limit of its own."""

    memory_max: str | None = None
    """Bytes with an optional K, M, G or T suffix (powers of 1024), or a percentage of RAM."""
    tasks_max: int | None = None
    """Processes and threads."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An installed agent CLI."""

    command: str
    """Absolute path of the program."""
    full_access: bool = False
    """Codex only: the box-wide configuration turns approvals and Codex's own sandbox off."""
    remote_control: str | None = None
    """Codex only: program of the pane of a session that the vendor's apps drive."""


class Programs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Programs that the supervisor starts, by absolute path."""

    tmux: str
    launch: str


class Seed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that the first boot writes into the registry."""

    agent: str
    skip_permissions: bool = True
    remote_control: bool = True
    remote_control_name: str | None = None
    working_directory: str | None = None
    extra_args: list[str] = []
    initial_prompt: str | None = None
    initial_prompt_credential: str | None = None
    """Name of the credential of the supervisor that holds the initial prompt."""
    resume_prompt: str | None = None


class UserConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One user as the document holds it, keyed by name there."""

    home: str
    shell: str
    runtime_directory: str
    seed: dict[str, Seed] = {}
    """In documents of old; see `User.seed`."""
    limits: Limits = Limits()
    slice: str | None = None
    """Unit that all that runs for the user is below, logins apart; `None` in older documents."""
    disk_max: str | None = None
    """Most that the user may keep on the file system of the home, as `memory_max` is written."""
    network: str | None = None
    """Network namespace that the user's programs have for themselves; `None`: the machine's."""


class BoxInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Facts about the machine."""

    revision: str | None = None
    host_label: str | None = None


class GateConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the gate keeps logins."""

    state: str = "/var/lib/agent-box-gate"
    """Directory of password hashes and logins, the gate's alone."""
    idle_days: float = 7
    """A login ends after so many days without use."""
    absolute_days: float = 30
    """A login ends after so many days, used or not."""


class WebUser(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user who can sign in from a browser."""

    password_hash_file: str | None = None
    """File whose hash becomes the user's first password. Read once, then never again."""


class Web(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The box in the browser."""

    domain: str
    origins: list[str]
    """Every origin that the box's own pages have, as browsers write it."""
    root_user: str
    """Whose workspace `/` leads to."""
    users: dict[str, WebUser]
    gate: GateConfig = GateConfig()
    sites_domain: str | None = None
    """What host names of sites end in; `None`: `domain`."""


class WebhookUser(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user whose agents can be told of events."""

    url: str
    """Where senders deliver to."""
    socket: str
    """Where the edge hands over what they send."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Deliveries from outside."""

    users: dict[str, WebhookUser]
    session_max: int = 4
    """Sessions of standing watches that may live at once."""
    session_args: list[str] = []
    """Arguments of their agent."""
    session_agent: str | None = None
    """Their agent; `None` is the default one of the box."""
    session_hours: float = 24
    """After so many hours such a session is removed unless somebody looks at it; 0: never."""
    watch_policy: dict[str, dict[str, Any]] = {}
    """Rules of standing watches by topic, which users cannot change."""
    plugin: str | None = None
    """Directory of the pinned plugin for Claude sessions."""


class Cloud(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Notices of the cloud that the machine goes away."""

    provider: str = "auto"
    """`ec2`, or `auto` to ask the firmware."""
    grace_period: float = 75
    """Seconds that sessions get between such a notice and their end."""
    poll_interval: float = 5
    """Seconds between two looks."""
    message: str | None = None
    """What sessions are told instead of what is known."""


class Network(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Networks of their own for users."""

    addresses: str
    """IPv4 range that each of them gets an address of."""
    addresses6: str
    metadata_users: list[str] = []
    """Users who reach the metadata addresses of clouds."""
    metadata_group: int = 0
    """Group of their interfaces, which the packet filter knows; 0 is that of all others."""


class Update(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the box updates itself."""

    flake: str
    """Directory of the flake that the box is built from."""
    input: str
    """The input that the module comes from: it must only go forward."""
    commands: dict[str, list[str]]
    """argv of `resolve`, `build`, `switch`, `stop` (a switch) and `profile` (to set to a system,
    the last argument); `{flake}` stands for the work copy of the flake.
    """
    users: list[str] = []
    """Who may start an update."""
    api: str = "https://api.github.com"


class Box(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole document."""

    version: int
    default_agent: str
    programs: Programs
    agents: dict[str, AgentConfig]
    users: dict[str, UserConfig]
    box: BoxInfo = BoxInfo()
    web: Web | None = None
    """`None` where the box has no browser surface."""
    webhook: Webhook | None = None
    """`None` where nothing is received."""
    cloud: Cloud | None = None
    """`None` where nobody watches for notices."""
    update: Update | None = None
    """`None` where the box is not updated from inside."""
    network: Network | None = None
    """`None` where all users are in the network of the machine."""

    @property
    def host_label(self) -> str | None:
        """The host part of names that an agent's own apps show."""
        return self.box.host_label

    def plugin_of(self, user: str) -> str | None:
        """Return the directory of the plugin that tells Claude sessions of `user` of events."""
        return self.webhook.plugin if self.webhook and user in self.webhook.users else None

    def knows_agent(self, name: str) -> bool:
        """Tell whether a session may run agent `name` here."""
        return name == SHELL or name in self.agents

    def agent_names(self) -> list[str]:
        """Return the agents a session may run, the default first."""
        names = sorted(self.agents, key=lambda name: (name != self.default_agent, name))
        return [*names, SHELL]

    def user(self, name: str) -> User:
        """Return user `name`, or raise `UsageError` naming the users there are."""
        try:
            found = self.users[name]
        except KeyError:
            raise _not_a_user(self, name) from None
        return User(name, found)


class User:
    """One user of the box, with the places where their things live."""

    def __init__(self, name: str, config: UserConfig) -> None:
        self.name = name
        self.home = Path(config.home)
        self.shell = config.shell
        self.runtime_dir = Path(config.runtime_directory)
        self.limits = config.limits
        self._seed = config.seed
        self.network = config.network
        self.config_dir = self.home / ".config/agent-box"
        self.state_dir = self.home / ".local/state/agent-box"

    @property
    def seed(self) -> dict[str, Seed]:
        """The sessions of the first boot. They are in a file that only this user reads."""
        path = document_path().with_name("seeds") / f"{self.name}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Seed])
        except FileNotFoundError:
            return self._seed
        except (OSError, msgspec.MsgspecError) as error:
            raise InternalError(
                f"{path}: {error}. It is rendered by the NixOS module: rebuild, do not edit"
            ) from error

    @property
    def registry_path(self) -> Path:
        """The list of sessions that should exist."""
        return self.config_dir / "sessions.json"

    @property
    def sites_path(self) -> Path:
        """The list of what the user publishes."""
        return self.config_dir / "sites.json"

    @property
    def env_path(self) -> Path:
        """The secrets and settings that every session gets as environment."""
        return self.config_dir / "env"

    @property
    def session_env_dir(self) -> Path:
        """Secrets and settings of single sessions."""
        return self.config_dir / "session-env"

    def session_env_path(self, session_id: str) -> Path:
        """What one session gets besides those of all, and instead where both say something."""
        return self.session_env_dir / session_id

    @property
    def control_path(self) -> Path:
        """The supervisor's socket."""
        return self.runtime_dir / "control.sock"


def _not_a_user(box: Box, name: str) -> UsageError:
    names = ", ".join(sorted(box.users)) or "none"
    example = next(iter(sorted(box.users)), "USER")
    return UsageError(
        f"'{name}' is not a user of this box (its users: {names}). "
        f"Run this as one of them: sudo -u {example} agent-box-session …"
    )


def document_path() -> Path:
    """Return where the document is: `$AGENT_BOX_CONFIG`, or the place in `/etc`."""
    return Path(os.environ.get("AGENT_BOX_CONFIG") or DEFAULT_PATH)


def load(path: Path | None = None) -> Box:
    """Read the document from `path`, from `$AGENT_BOX_CONFIG`, or from `/etc`."""
    if path is None:
        path = document_path()
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InternalError(
            f"cannot read {path}: {error.strerror}. "
            "Is services.agent-box.enable set on this machine?"
        ) from error
    try:
        box = msgspec.json.decode(raw, type=Box)
    except msgspec.MsgspecError as error:
        raise InternalError(
            f"{path}: {error}. It is rendered by the NixOS module: rebuild, do not edit"
        ) from error
    if box.version != VERSION:
        raise InternalError(
            f"{path} has version {box.version}, this program reads version {VERSION}: "
            "the module and the runtime come from different revisions, rebuild the box"
        )
    return box


def current_user(box: Box) -> User:
    """Return the box's user that owns this process, by uid and never by environment."""
    return box.user(current_name())


def current_name() -> str:
    """Return the name of the account that owns this process."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
