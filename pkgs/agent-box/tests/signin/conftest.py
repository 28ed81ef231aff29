"""A box in a directory with stub vendors, and the supervisor's sign-ins over a real tmux server."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import agent_box
from agent_box import config
from agent_box.supervisor.lifecycle import Lifecycle
from agent_box.supervisor.signin import LIVE, Signin
from agent_box.tmux import Tmux, TmuxError

SOURCES = Path(agent_box.__file__).parents[1]
VENDOR = Path(__file__).parents[4] / "harness/src/agent_box_harness/stub_vendor.py"
AGENTS = ("claude", "codex", "opencode", "pi")


class Stand:
    """One user's box; `signin` is what is tested."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.run = root / "run"
        for path in (self.home, self.run, root / "bin"):
            path.mkdir(mode=0o700)
        tmux = shutil.which("tmux")
        assert tmux is not None
        stub = VENDOR.read_text().split("\n", 1)[1]
        for name in (*AGENTS, "gh"):
            path = root / "bin" / name
            path.write_text(f"#!{sys.executable} -I\n{stub}")
            path.chmod(0o755)
        program = root / "bin/agent-box-signin"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m agent_box.signin.pane "$@"\n')
        program.chmod(0o755)
        document = {
            "version": 1,
            "defaultAgent": "claude",
            "programs": {"tmux": tmux, "launch": str(root / "bin/agent-box-launch")},
            "agents": {name: {"command": str(root / "bin" / name)} for name in AGENTS},
            "users": {
                getpass.getuser(): {
                    "home": str(self.home),
                    "shell": "/bin/sh",
                    "runtimeDirectory": str(self.run),
                }
            },
        }
        self.config = root / "box.json"
        self.config.write_text(json.dumps(document))
        self.box = config.load(self.config)
        self.user = config.current_user(self.box)
        self.server_env = {
            "TMUX_TMPDIR": str(self.run),
            "HOME": str(self.home),
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCES),
            "AGENT_BOX_CONFIG": str(self.config),
            "LANG": "C.UTF-8",
        }
        self.tmux = Tmux(tmux, self.run)
        self.server = subprocess.Popen(
            [tmux, "-L", "agent-box", "-f", "/dev/null", "-D"], env=self.server_env, cwd=self.home
        )
        self.supervisor = self.new_supervisor()
        self.signin = Signin(self.supervisor)

    def new_supervisor(self) -> SimpleNamespace:
        async def look(_timeout: float | None = None) -> bool:
            try:
                _, supervisor.foreign = await self.tmux.state()
            except TmuxError:
                supervisor.server = "down"
                return False
            supervisor.server = "running"
            return True

        supervisor = SimpleNamespace(
            box=self.box,
            user=self.user,
            tmux=self.tmux,
            server="running",
            foreign={},
            sessions={},
            look=look,
            wake=lambda: None,
            lifecycle=Lifecycle(self.box, self.user, self.tmux, None),  # type: ignore[arg-type]
        )
        return supervisor

    def steer(self, name: str, **facts: object) -> None:
        folder = self.home / ".vendor"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(facts))

    def log(self) -> list[dict[str, object]]:
        try:
            text = (self.home / ".vendor/log.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    async def start(self, flow: str, **more: object) -> dict[str, object]:
        result = await self.signin.act({"flow": flow, "action": "start", **more})
        return dict(result["connection"])

    async def code(self, flow: str, text: str) -> dict[str, object]:
        """Enter a code, as a person does: once it is asked for, if that comes about."""
        for _ in range(100):
            if (await self.card(flow))["needsCode"]:
                break
            await asyncio.sleep(0.05)
        return dict(
            (await self.signin.act({"flow": flow, "action": "code", "text": text}))["connection"]
        )

    async def card(self, flow: str, **args: object) -> dict[str, object]:
        cards = (await self.signin.connections(dict(args)))["connections"]
        return next(dict(card) for card in cards if card["id"] == flow)

    async def until(self, flow: str, *states: str, seconds: float = 15) -> dict[str, object]:
        for _ in range(int(seconds * 10)):
            card = await self.card(flow)
            if card["state"] in states:
                return card
            assert card["state"] in (*LIVE, "checking", "idle"), card
            await asyncio.sleep(0.1)
        pane = await self.tmux.run("capture-pane", "-p", "-t", f"=_signin-{flow}:")
        pytest.fail(f"{flow} is still {card}; its screen:\n{pane}")

    def close(self) -> None:
        self.server.kill()
        self.server.wait()


@pytest.fixture
async def stand(tmp_path, monkeypatch):
    monkeypatch.setattr("agent_box.supervisor.signin.SETTLE", 0.3)
    monkeypatch.setattr("agent_box.supervisor.signin.LOOK", 0.1)
    found = Stand(tmp_path)
    for _ in range(100):
        if await found.supervisor.look():
            break
        await asyncio.sleep(0.05)
    yield found
    await cancel_others()
    found.close()


async def cancel_others() -> None:
    """End what follows attempts, as a supervisor's end does."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=2)
