"""Stub vendors in a box: put them in the place of the CLIs, steer them, read what they saw."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.box import Box

SOURCE = Path(__file__).with_name("stub_vendor.py")
PLACE = "/opt/agent-box-stub/stub_vendor.py"
GH = "/opt/absent/gh/bin/gh"
"""Where the PATH of a session looks for the one CLI that is no agent."""


def no_registry(box: Box, user: str) -> None:
    """Have CLIs that want packages from npm's registry learn at once that none answers.

    Without a network opencode tries for more than a minute at each start. For sessions and
    sign-ins from now on.
    """
    box.ctl(user, "env set NPM_CONFIG_FETCH_RETRIES", stdin="0").check("env set")


def spare_real(box: Box) -> None:
    """Put stubs in the place of all CLIs, until the users are made anew.

    A page that shows whether somebody is signed in asks each of them, and the real ones take
    seconds of processor time to answer.
    """
    box.write_file(PLACE, SOURCE.read_bytes(), mode=0o755)
    links = [shlex.quote(box.agent_link(name)) for name in box.document["agents"]]
    commands = [f"mkdir -p $(dirname {link}) && ln -sfn {PLACE} {link}" for link in links]
    box.succeed(f"chmod 0755 {Path(PLACE).parent} && {' && '.join(commands)}")


class Vendors:
    """The stubs of one box, for one user."""

    def __init__(self, box: Box, user: str) -> None:
        self.box, self.user = box, user

    def use(self, *names: str) -> None:
        """Put the stub in the place of these CLIs."""
        self.box.write_file(PLACE, SOURCE.read_bytes(), mode=0o755)
        for name in names:
            command = GH if name == "gh" else self.box.agent_link(name)
            if name != "gh":
                self.box.remember_real(name)
            self.box.succeed(
                f"chmod 0755 {Path(PLACE).parent} && "
                f"install -d -m 0755 /opt/absent {shlex.quote(str(Path(command).parent))} && "
                f"ln -sfn {PLACE} {shlex.quote(command)}"
            )

    def steer(self, name: str, **facts: Any) -> None:
        """Say what the stub of a CLI does from now on."""
        folder = f"{self.box.home(self.user)}/.vendor"
        owner = f"{self.user}:{self.user}"
        self.box.succeed(f"install -d -m 0700 -o {self.user} -g {self.user} {folder}")
        path = f"{folder}/{name}.json"
        self.box.write_file(path, json.dumps(facts), mode=0o600, owner=owner)

    def log(self) -> list[dict[str, Any]]:
        """Everything that the stubs did."""
        return self.box.json_lines(f"{self.box.home(self.user)}/.vendor/log.jsonl")

    def card(self, flow: str) -> dict[str, Any]:
        """How the box sees the sign-in of one CLI."""
        said = self.box.ask_supervisor(self.user, "connections", timeout=100, wait=True)
        if said is None:  # the command says why, or waits for a supervisor that starts
            answer = self.box.ctl(self.user, "signin --json", timeout=100).check()
            said = json.loads(answer.out)
        return next(dict(card) for card in said["connections"] if card["id"] == flow)

    def until(self, flow: str, *states: str, timeout: float = 40, **more: Any) -> dict[str, Any]:
        """Wait until the sign-in is in one of the states and its card has these values."""

        def look() -> tuple[bool, dict[str, Any]]:
            card = self.card(flow)
            good = card["state"] in states and all(card[key] == more[key] for key in more)
            return good, card

        what = f"{flow} in {' or '.join(states)} {more or ''}"
        return self.box.machine.poll(what, look, timeout)

    def start(self, flow: str, options: str = "") -> None:
        """Begin a sign-in."""
        self.box.ctl(self.user, f"signin {flow} {options} --no-wait --json").check()

    def code(self, flow: str, code: str) -> None:
        """Give the code as a person at the command line would pipe it in."""
        self.box.ctl(self.user, f"signin {flow} --code --json", stdin=code).check()

    def credential(self, path: str, content: str = '{"token": "of before"}') -> str:
        """Put a credential below the home; return its path."""
        full = f"{self.box.home(self.user)}/{path}"
        self.box.as_user(self.user, f"mkdir -p {Path(full).parent}").check()
        self.box.write_file(full, content, mode=0o600, owner=f"{self.user}:{self.user}")
        return full
