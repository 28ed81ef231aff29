"""The vocabulary of agent-box: what a scenario says about users, sessions and sandboxes.

A `Box` wraps a machine (qemu, container, or the NixOS test driver's own object) and adds the
words that scenarios need. Whatever it does not know itself it passes on to the machine, so
``box.succeed(…)`` and ``box.wait_for_unit(…)`` work as they do there.

Shell quoting happens here and in the machine only. A scenario hands over a command line as a
user would type it, once, and never nests another layer of quotes around it.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness import apart
from agent_box_harness.errors import RequestFailedError, UnexpectedOutputError, WaitTimeoutError
from agent_box_harness.machine import ANSWER_TIMEOUT, COMMAND_TIMEOUT, WAIT_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent_box_harness.apart import Result
    from agent_box_harness.machine import Machine

STUB_SOURCE = Path(__file__).with_name("stub_agent.py")
STUB_PATH = "/opt/agent-box-stub/stub_agent.py"
BOX_JSON = "/etc/agent-box/box.json"
CREDENTIALS = {
    "claude": (".claude/.credentials.json", {"claudeAiOauth": {"accessToken": "of a stub"}}),
    "codex": (".codex/auth.json", {"OPENAI_API_KEY": "of a stub"}),
    "opencode": (".local/share/opencode/auth.json", {"stub": {"type": "api", "key": "of a stub"}}),
    "pi": (".pi/agent/auth.json", {"stub": {"type": "api_key", "key": "of a stub"}}),
}
"""Agent -> the file below a home that makes it signed in, and a content that does."""


class Box:
    """One running box, as scenarios see it. `document` is its box.json, where that is known."""

    def __init__(self, machine: Machine, document: dict[str, Any] | None = None) -> None:
        self.machine = machine
        self._probes = 0
        self._box_json = document
        self._real_commands: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        """Everything else is the machine's vocabulary."""
        if name == "machine":  # not constructed yet: never look it up in itself
            raise AttributeError(name)
        return getattr(self.machine, name)

    # -- running things -------------------------------------------------------------------

    def run(
        self,
        command: str,
        timeout: float | None = COMMAND_TIMEOUT,
        stdin: bytes | str | None = None,
    ) -> Result:
        """Run a shell command line as root and keep status, stdout and stderr apart.

        Seconds of `timeout` are at native speed; the machine scales them. A command that runs
        out of time has rc 124. Standard input is empty unless `stdin` is given.
        """
        return apart.run(self.machine, command, timeout, stdin)

    def as_user(
        self,
        user: str,
        command: str,
        timeout: float | None = COMMAND_TIMEOUT,
        stdin: bytes | str | None = None,
    ) -> Result:
        """Run a command line as `user` outside the sandbox, with a login-like environment.

        What a person gets through ``sudo -u`` or ssh: none of the sandbox applies.
        """
        return self.run(self._user_command(user, command), timeout, stdin)

    def in_session(
        self,
        user: str,
        command: str,
        *,
        session: str | None = None,
        timeout: float | None = COMMAND_TIMEOUT,
    ) -> Result:
        """Run a command line INSIDE the user's sandbox, the way a pane's program runs.

        The user's own tmux server starts it, so namespaces, uid, capabilities, seccomp filter
        and NoNewPrivileges are those of the unit, not an imitation. With `session`, it
        also joins that session's control group (limits apply). The command has no terminal.
        """
        self._probes += 1
        run_dir = f"/run/agent-box-{user}"
        probe = f"{run_dir}/probe-{self._probes}"
        join = ""
        if session is not None:
            ident = self.session(user, session)["id"]
            join = f"echo $$ > /sys/fs/cgroup/session-{ident}/cgroup.procs || exit 125\n"
        text = f"{join}{command}\n"
        inner = (
            f"sh {probe}/script </dev/null >{probe}/out 2>{probe}/err; "
            f"echo $? >{probe}/rc.new; mv {probe}/rc.new {probe}/rc"
        )
        tmux = f"{self._tmux()} -L agent-box -N run-shell {shlex.quote(inner)}"
        client = self._user_command(user, tmux, {"TMUX_TMPDIR": run_dir})
        script = (
            f"install -d -m 0700 -o {user} -g {user} {probe}; cat >{probe}/script; "
            f"chown {user}:{user} {probe}/script; "
            f"{client} >{probe}/client 2>&1 </dev/null || true; "
            # the answer, or what the tmux client complained about
            f"if [ -e {probe}/rc ]; then cat {probe}/rc; base64 -w0 {probe}/out; echo; "
            f"base64 -w0 {probe}/err; echo; else echo 126; echo; base64 -w0 {probe}/client; echo; "
            f"fi; rm -rf {probe}"
        )
        return apart.parse(self.machine.execute(script, timeout=timeout, stdin=text), command)

    def expect_in(self, output: str | Result, text: str) -> None:
        """Assert that a command's output contains `text`; the error shows the whole output.

        Exists so that nobody writes ``producer | grep -q``, which fails at random: grep closes
        the pipe at the first hit and the producer dies of SIGPIPE.
        """
        body = output if isinstance(output, str) else output.out
        if text not in body:
            raise UnexpectedOutputError(f"expected {text!r} in:\n{body}")

    def expect_not_in(self, output: str | Result, text: str) -> None:
        """Assert that a command's output, stdout and stderr, does not contain `text`."""
        body = output if isinstance(output, str) else f"{output.out}\n{output.err}"
        if text in body:
            raise UnexpectedOutputError(f"did not expect {text!r} in:\n{body}")

    def wait_for(self, what: str, probe: Callable[[], Any], timeout: float = WAIT_TIMEOUT) -> Any:
        """Poll `probe` until it returns something true, and return that.

        `timeout` is in seconds at native speed. The error of a time-out tells the last value.
        An `RequestFailedError` inside the probe counts as "not yet".
        """

        def attempt() -> tuple[bool, Any]:
            try:
                value = probe()
            except RequestFailedError as error:
                return False, str(error)
            return bool(value), value

        return self.machine.poll(what, attempt, timeout)

    # -- users and sessions ---------------------------------------------------------------

    @property
    def document(self) -> dict[str, Any]:
        """The box's own description, /etc/agent-box/box.json."""
        if self._box_json is None:
            self._box_json = json.loads(self.run(f"cat {BOX_JSON}").check("reading box.json").out)
        return self._box_json

    @property
    def users(self) -> list[str]:
        """Names of the box's users."""
        return list(self.document["users"])

    def home(self, user: str) -> str:
        """Home directory of a user."""
        return str(self.document["users"][user]["home"])

    def ctl(
        self,
        user: str,
        arguments: str,
        timeout: float | None = COMMAND_TIMEOUT,
        stdin: bytes | str | None = None,
    ) -> Result:
        """Run ``agent-box-session ARGUMENTS`` as the user, from outside the sandbox."""
        return self.as_user(user, f"agent-box-session {arguments}", timeout, stdin)

    def sessions(self, user: str) -> list[dict[str, Any]]:
        """All sessions of a user, as ``agent-box-session ls --json`` tells them."""
        said = self.ask_supervisor(user, "ls")  # costs no start of the command
        if said is None:
            said = json.loads(self.ctl(user, "ls --json").check("agent-box-session ls").out)
        return list(said["sessions"])

    def ask_supervisor(
        self, user: str, op: str, timeout: float = ANSWER_TIMEOUT, **args: Any
    ) -> dict[str, Any] | None:
        """What a user's supervisor answers at its control socket; None if it does or can not."""
        control = f"{self.document['users'][user]['runtimeDirectory']}/control.sock"
        request = json.dumps({"op": op, "args": args}).encode() + b"\n"
        said = self.machine.ask_socket(control, request, timeout)
        answer = json.loads(said) if said.endswith(b"\n") else {}
        result: dict[str, Any] | None = answer.get("result")
        return result

    def session(self, user: str, name: str) -> dict[str, Any]:
        """One session of a user; an `RequestFailedError` if it does not exist."""
        found = {view["name"]: view for view in self.sessions(user)}
        if name in found:
            return found[name]
        names = ", ".join(found) or "none"
        raise RequestFailedError(f"{user} has no session {name} (sessions: {names})")

    def wait_session(
        self, user: str, name: str, state: str | Iterable[str], timeout: float = WAIT_TIMEOUT
    ) -> dict[str, Any]:
        """Wait until a session is in a state (or one of several) and return its view."""
        wanted = {state} if isinstance(state, str) else set(state)
        seen: dict[str, Any] = {}

        def look() -> dict[str, Any] | None:
            seen.clear()
            seen.update(self.session(user, name))
            # One that has just begun to run has no pid until the supervisor has seen its pane.
            begun = seen["state"] in ("running", "waiting") and seen["pid"] is None
            return dict(seen) if seen["state"] in wanted and not begun else None

        what = f"session {user}/{name} in state {' or '.join(sorted(wanted))}"
        try:
            view: dict[str, Any] = self.wait_for(what, look, timeout)
        except WaitTimeoutError as error:
            raise WaitTimeoutError(f"{error}\nlast view: {json.dumps(seen, indent=2)}") from None
        return view

    def pane_text(self, user: str, name: str) -> str:
        """The screen of a session, as a person attached to it would read it."""
        return self.tmux(user, f"capture-pane -p -t ={name}:").check("capture-pane").out.rstrip()

    def tmux(self, user: str, arguments: str, timeout: float | None = COMMAND_TIMEOUT) -> Result:
        """Talk to the user's tmux server; never starts one."""
        command = f"{self._tmux()} -L agent-box -N {arguments}"
        extra = {"TMUX_TMPDIR": f"/run/agent-box-{user}"}
        return self.run(self._user_command(user, command, extra), timeout)

    def registry(self, user: str) -> dict[str, Any]:
        """The user's registry file, parsed. Fails if it does not parse, which it always must."""
        path = f"{self.home(user)}/.config/agent-box/sessions.json"
        document: dict[str, Any] = json.loads(self.run(f"cat {path}").check(path).out)
        return document

    # -- files ----------------------------------------------------------------------------

    def read(self, path: str) -> str:
        """Text of a file in the guest."""
        return self.machine.read_file(path).decode(errors="replace")

    def json_lines(self, path: str) -> list[dict[str, Any]]:
        """Records of a JSON-lines file in the guest; a missing file has none."""
        quoted = shlex.quote(path)
        text = self.run(f"if [ -e {quoted} ]; then cat {quoted}; fi").check(path).out
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    # -- the steerable agent --------------------------------------------------------------

    def use_stub(self, agent: str, *, signed_in: bool = True) -> None:
        """Put the stub agent in the place of a real CLI; sessions started from now on get it.

        It is signed in for every user, unless told otherwise: no prompt reaches an agent that
        is not.
        """
        command = self.agent_link(agent)
        self.machine.write_file(STUB_PATH, STUB_SOURCE.read_bytes(), mode=0o755)
        self.remember_real(agent)
        self.machine.succeed(
            f"chmod 0755 {Path(STUB_PATH).parent} && "
            f"mkdir -p {shlex.quote(str(Path(command).parent))} && "
            f"ln -sfn {STUB_PATH} {shlex.quote(command)}"
        )
        if signed_in:
            for user in self.users:
                self.sign_in(user, agent)

    def sign_in(self, user: str, agent: str) -> None:
        """Give a user credentials that look real to the box. No real CLI would take them."""
        name, content = CREDENTIALS[agent]
        path = f"{self.home(user)}/{name}"
        script = f'umask 077; mkdir -p "${{0%/*}}"; cat >{shlex.quote(path)}'
        command = f"sh -c {shlex.quote(script)} {shlex.quote(path)}"
        self.as_user(user, command, stdin=json.dumps(content)).check(f"signing {agent} in")

    def remember_real(self, agent: str) -> None:
        """Note where the real CLI is, for `use_real`, before something takes its place."""
        if agent not in self._real_commands:
            command = shlex.quote(self.agent_link(agent))
            self._real_commands[agent] = self.run(f"readlink {command}").out

    def use_real(self, agent: str) -> None:
        """Put the real CLI back after `use_stub`."""
        command, real = self.agent_link(agent), self._real_commands.pop(agent, "")
        if real:
            self.machine.succeed(f"ln -sfn {shlex.quote(real)} {shlex.quote(command)}")

    def remove_agent(self, agent: str) -> None:
        """Take a CLI's binary away (what a broken installation looks like)."""
        command = self.agent_link(agent)
        self.remember_real(agent)
        self.machine.succeed(f"rm -f {shlex.quote(command)}")

    def stub_command(self, user: str, command: str, conversation: str | None = None) -> None:
        """Give the stub a command (see stub_agent); with `conversation`, to that one only."""
        name = f"command.{conversation}" if conversation else "command"
        self._stub_file(user, name, command + "\n")

    def stub_on_start(self, user: str, *commands: str) -> None:
        """Commands that each stub of this user obeys when it starts; none: behave normally."""
        self._stub_file(user, "on-start", "".join(f"{line}\n" for line in commands))

    def stub_prompts(self, user: str) -> list[dict[str, Any]]:
        """Every prompt that a stub of this user received."""
        return self.json_lines(f"{self.home(user)}/.stub/prompts.jsonl")

    def stub_launches(self, user: str) -> list[dict[str, Any]]:
        """Every start of a stub of this user."""
        return self.json_lines(f"{self.home(user)}/.stub/launches.jsonl")

    # -- helpers --------------------------------------------------------------------------

    def _stub_file(self, user: str, name: str, text: str) -> None:
        folder = f"{self.home(user)}/.stub"
        self.machine.succeed(f"install -d -m 0700 -o {user} -g {user} {folder}")
        self.machine.write_file(f"{folder}/{name}", text, mode=0o600, owner=f"{user}:{user}")

    def agent_link(self, agent: str) -> str:
        """The symbolic link that decides which program the box runs as an agent.

        It is the command of the box, or what that leads to where it is in the Nix store, which
        nobody can write to.
        """
        try:
            command = str(self.document["agents"][agent]["command"])
            if not command.startswith("/nix/store/"):
                return command
            return self.machine.succeed(f"readlink {shlex.quote(command)}").strip()
        except KeyError:
            known = ", ".join(self.document["agents"])
            raise RequestFailedError(f"this box has no agent {agent} (it has {known})") from None

    def _tmux(self) -> str:
        return shlex.quote(self.document["programs"]["tmux"])

    def _user_command(self, user: str, command: str, extra: dict[str, str] | None = None) -> str:
        """Command line (for root's shell) that runs `command` as the user."""
        described = self.document["users"].get(user, {})
        home = described.get("home", f"/home/{user}")
        environment = {
            "HOME": home,
            "USER": user,
            "LOGNAME": user,
            "SHELL": described.get("shell", "/bin/sh"),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            **(extra or {}),
        }
        words = [f"{key}={value}" for key, value in environment.items()]
        # PATH is the guest's own: NixOS and Debian keep programs in different places
        return (
            f"runuser -u {shlex.quote(user)} -- env -i -C {shlex.quote(home)} "
            f'PATH="$PATH" {shlex.join(words)} sh -c {shlex.quote(command)}'
        )
