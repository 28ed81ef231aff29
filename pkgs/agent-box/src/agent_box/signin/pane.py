"""`agent-box-signin`: what runs in the sandbox for a sign-in.

`run FLOW [PROVIDER]` is the program of the pane: it becomes the parent of the vendor's CLI, which
has the terminal to itself, asks that CLI afterwards whether it worked, and leaves the outcome in
`/run/agent-box-USER/signin/FLOW.json`. `probe FLOW…` only asks. Both print nothing of their own,
and no code or token passes through here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from agent_box import config, envfile, locking
from agent_box.errors import AgentBoxError
from agent_box.signin import probe, vault
from agent_box.signin.flows import FLOWS

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box.config import Box, User
    from agent_box.signin.flows import Flow

GRACE = 3.0
"""Seconds that the CLI gets to leave when the pane goes."""

MISSING = 127
"""Exit status for a CLI that is not on the box."""


def main() -> int:
    """Run the command line."""
    os.umask(0o077)
    words = sys.argv[1:]
    if len(words) < 2 or words[0] not in ("run", "probe") or words[1] not in FLOWS:
        print("usage: agent-box-signin run FLOW [PROVIDER] | probe FLOW…", file=sys.stderr)
        return 2
    try:
        box = config.load()
        user = config.current_user(box)
        if words[0] == "run":
            return Attempt(box, user, FLOWS[words[1]]).run(words[2] if len(words) > 2 else None)
        for name in words[1:]:
            if name in FLOWS:
                Attempt(box, user, FLOWS[name]).look()
    except AgentBoxError as error:
        print(f"agent-box-signin: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def results(user: User) -> Path:
    """Return the directory of the outcomes."""
    return user.runtime_dir / "signin"


def program(box: Box, flow: Flow, path: str | None) -> str | None:
    """Return the CLI of `flow`, or None when the box does not have it."""
    if flow.program:
        return shutil.which(flow.program, path=path)
    agent = box.agents.get(flow.id)
    return agent.command if agent else None


class Attempt:
    """One sign-in, or one question about it."""

    def __init__(self, box: Box, user: User, flow: Flow) -> None:
        self._user = user
        self._flow = flow
        own = _read_env(user)
        self._shadows = [key for key in flow.shadows if own.get(key)]
        self._env = {**os.environ, **own}
        self._program = program(box, flow, self._env.get("PATH"))
        state = user.state_dir / "signin"
        self._staging = state / flow.id
        self._credential = flow.credential_path(self._env, user.home)
        self._kept = vault.Kept(self._credential, state / f"{flow.id}.kept")

    def look(self) -> None:
        """Ask the CLI and leave the answer."""
        if self._program is None:
            self._leave("probe", missing=True)
            return
        self._kept.restore_missing()
        if self._flow.only_file and not self._credential.exists():
            self._leave("probe", connected=False, detail="")
            return
        connected, detail = probe.ask(self._flow, self._program, self._env)
        self._leave("probe", connected=connected, detail=detail)

    def run(self, provider: str | None) -> int:
        """Sign in; 0 when the CLI itself says that it worked."""
        flow = self._flow
        if self._program is None:
            self._leave("run", exit=MISSING, connected=False, missing=True)
            return 1
        if flow.providers and provider not in flow.providers:
            print(f"choose a provider: {', '.join(flow.providers)}", file=sys.stderr)
            return 2
        env = {key: value for key, value in self._env.items() if key not in flow.clears}
        if flow.staged:
            variable, name = flow.credential[0], self._credential.name
            vault.stage(self._staging, self._credential.parent / "config.toml")
            env[variable] = str(self._staging)
        else:
            self._kept.keep()
        argv = [self._program, *(word.format(provider=provider) for word in flow.login)]
        status = _run(argv, env)
        connected, detail = probe.ask(flow, self._program, env)
        if flow.staged:
            connected = status == 0 and connected is True
            if connected:
                connected = vault.take_over(self._staging / name, self._credential)
            vault.clear(self._staging)
        elif connected is False:
            # Whatever it did, the old one is no worse.
            self._kept.restore()
            self._kept.drop()
        else:
            self._kept.restore_missing()
            self._kept.drop()
        self._leave("run", exit=status, connected=connected, detail=detail)
        return 0 if status == 0 and connected else 1

    def _leave(self, kind: str, **facts: Any) -> None:
        directory = results(self._user)
        directory.mkdir(mode=0o700, exist_ok=True)
        content = json.dumps({"shadows": self._shadows, **facts}).encode()
        path = directory / f"{self._flow.id}.{kind}.json"
        locking.atomic_write(path, content, durable=False)


def _run(argv: list[str], env: dict[str, str]) -> int:
    """Run the CLI on this terminal and return its status; when the terminal goes, so does it."""
    try:
        child = subprocess.Popen(argv, env=env)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        return MISSING
    # Ctrl-C is for the CLI. A closed terminal is for both, and this one has to tidy up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave(*_: object) -> None:
        child.terminate()
        signal.signal(signal.SIGALRM, lambda *_: child.kill())
        signal.setitimer(signal.ITIMER_REAL, GRACE)

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, leave)
    try:
        return child.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _read_env(user: User) -> dict[str, str]:
    try:
        return envfile.read(user.env_path)
    except (AgentBoxError, OSError, ValueError):
        return {}


if __name__ == "__main__":
    sys.exit(main())
