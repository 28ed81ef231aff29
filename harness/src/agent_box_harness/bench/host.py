"""A private box on this machine: tmux server and supervisor in a throw-away directory.

Needs no root and touches nothing of the user's own: home, runtime directory and registry are
temporary. What it lacks against a real box is the sandbox and the control groups, which cost
nothing while sessions are idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT = 15.0  # seconds for the supervisor to answer
TMUX_CONF = "set -g remain-on-exit on\nset -s exit-empty off\nset -s exit-unattached off\n"


class HostBox:
    """Paths and processes of a private box."""

    def __init__(self, directory: Path, repo: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.runtime_dir = directory / "run"
        self.config = directory / "box.json"
        self.log = directory / "log"
        rendered = repo / "nixos-tests/rendered/vm/etc/agent-box/tmux.conf"
        self.tmux_conf = directory / "tmux.conf"
        self.tmux_conf.write_text(rendered.read_text() if rendered.exists() else TMUX_CONF)
        for folder in (self.home, self.runtime_dir):
            folder.mkdir(mode=0o700)
        self.config.write_text(json.dumps(self._document()))
        self.environment = {
            **os.environ,
            "AGENT_BOX_CONFIG": str(self.config),
            "TMUX_TMPDIR": str(self.runtime_dir),
            "HOME": str(self.home),
            "SHELL": "/bin/sh",
        }
        self.environment.pop("TMUX", None)
        self.environment.pop("NOTIFY_SOCKET", None)

    @property
    def command(self) -> list[str]:
        """argv of agent-box-session for this box."""
        return [_program("agent-box-session")]

    def _document(self) -> dict[str, object]:
        user = {
            "home": str(self.home),
            "shell": "/bin/sh",
            "runtimeDirectory": str(self.runtime_dir),
            "seed": {},
            "limits": {"memoryMax": None, "tasksMax": None},
        }
        return {
            "version": 1,
            "box": {"revision": None, "hostLabel": "bench"},
            "defaultAgent": "shell",
            "programs": {"tmux": _program("tmux"), "launch": _program("agent-box-launch")},
            "agents": {},
            "users": {pwd.getpwuid(os.getuid()).pw_name: user},
        }


@contextlib.contextmanager
def host_box(repo: Path) -> Iterator[HostBox]:
    """Run a private box until the block ends; its processes and files are gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="agent-box-bench-"))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        box = HostBox(directory, repo)
        with box.log.open("wb") as log:
            server = [_program("tmux"), "-L", "agent-box", "-f", str(box.tmux_conf), "-D"]
            for argv in (server, [_program("agent-box-supervisor")]):
                processes.append(  # noqa: PERF401 - the second needs the first to have started
                    subprocess.Popen(
                        argv,
                        env=box.environment,
                        cwd=box.home,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        _wait_answering(box, processes)
        yield box
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait_answering(box: HostBox, processes: list[subprocess.Popen[bytes]]) -> None:
    from agent_box.control_client import Client
    from agent_box.errors import AgentBoxError

    deadline = time.monotonic() + START_TIMEOUT
    error: Exception | None = None
    while time.monotonic() < deadline:
        dead = [process for process in processes if process.poll() is not None]
        if dead:
            break
        try:
            with Client(box.runtime_dir) as client:
                if client.call("status")["server"]["state"] == "running":
                    return
        except AgentBoxError as caught:
            error = caught
        time.sleep(0.05)
    raise HarnessError(f"the private supervisor does not answer ({error})\n{box.log.read_text()}")


def _program(name: str) -> str:
    """Absolute path of a program: beside this interpreter first, then on PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise HarnessError(f"{name} is not installed; run scripts/bench, which installs it")
    return found
