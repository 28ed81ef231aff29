"""Each agent gets its kickoff prompt exactly once, whatever is killed, and whenever.

The receipts are what the agents store themselves, each in its own form. A reboot is played by
killing everything and starting anew with an empty runtime directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from .conftest import REPOSITORY

STUB = REPOSITORY / "harness/src/agent_box_harness/stub_agent.py"
AGENTS = ("claude", "codex", "opencode", "pi")
ROUNDS = 4


class Bench:
    """A box whose agent is the harness's stub, under the name of a real one."""

    def __init__(self, box, agent: str) -> None:
        self.box, self.agent = box, agent
        program = box.root / agent
        program.unlink(missing_ok=True)
        program.write_text(f"#!{sys.executable} -I\n" + STUB.read_text())
        program.chmod(0o755)
        document = json.loads(box.config_path.read_text())
        document["agents"] = {agent: {"command": str(program)}}
        document["defaultAgent"] = agent
        box.config_path.write_text(json.dumps(document))
        (box.home / ".codex").mkdir()
        (box.home / ".codex/auth.json").write_text('{"OPENAI_API_KEY": "x"}')
        (box.home / ".stub").mkdir()
        box.start()

    def on_start(self, *commands: str) -> None:
        """Have the next start, and no other, obey `commands` before it takes its prompt."""
        once = f"run rm {self.box.home}/.stub/on-start"
        (self.box.home / ".stub/on-start").write_text("\n".join([once, *commands]))

    def receipts(self) -> list[str]:
        """Every message of a user that an agent has stored, stamps left out."""
        found = []
        for path in self.box.home.rglob("*.jsonl"):
            if ".stub" in path.parts:
                continue
            for line in path.read_text().splitlines():
                item = json.loads(line)
                message = item.get("message") or item.get("payload") or {}
                content = message.get("content") or message.get("message")
                content = content[0]["text"] if isinstance(content, list) else content
                found += [content] if content else []
        database = self.box.home / ".local/share/opencode/opencode.db"
        if database.exists():
            rows = []
            with contextlib.suppress(sqlite3.OperationalError):  # no table yet
                rows = sqlite3.connect(database).execute("SELECT data FROM part").fetchall()
            found += [json.loads(data)["text"] for (data,) in rows]
        return [text.rpartition("] ")[2] for text in found]

    def once(self, prompt: str) -> None:
        """Wait for the receipt of a prompt and for the box to know of it; there is one only."""
        self.box.until(lambda: self.receipts().count(prompt), 30)
        name = prompt.split()[-1]
        self.box.until(lambda: not self.box.view(name)["promptPending"], 30)
        assert self.receipts().count(prompt) == 1

    def reboot(self) -> None:
        """Kill everything of the user at once, and start it again with an empty /run."""
        box = self.box
        box.kill_supervisor()
        program = str(box.root / self.agent).encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if program in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        box.kill_tmux()
        shutil.rmtree(box.run_dir)
        box.run_dir.mkdir(mode=0o700)
        box.start()


@pytest.fixture(params=AGENTS)
def bench(make_box, request):
    return Bench(make_box({}), request.param)


def test_killed_before_and_after_it_took_its_task(bench):
    box = bench.box
    bench.on_start("kill 9")
    box.call("add", name="one", prompt="task of one", wait=False)
    bench.once("task of one")
    os.kill(box.wait("one", "running", "waiting")["pid"], signal.SIGKILL)
    box.until(lambda: box.view("one")["restarts"] >= 2 and box.view("one")["pid"])
    bench.reboot()
    box.wait("one", "running", "waiting")
    bench.once("task of one")


def test_killed_at_any_moment(bench):
    seed = int(os.environ.get("AGENT_BOX_SEED") or random.randrange(1 << 32))
    print(f"AGENT_BOX_SEED={seed}")
    dice = random.Random(seed)
    box = bench.box
    prompts = []
    for number in range(ROUNDS):
        name = f"s{number}"
        prompts.append(f"task of {name}")
        box.call("add", name=name, prompt=prompts[-1], wait=False)
        time.sleep(dice.uniform(0, 0.5))
        victim = dice.choice(("supervisor", "all"))
        if victim == "all":
            bench.reboot()
        else:
            box.kill_supervisor()
            time.sleep(dice.uniform(0, 0.2))
            box.start_supervisor()
    for prompt in prompts:
        bench.once(prompt)
    tasks = [text for text in bench.receipts() if text.startswith("task of ")]
    assert sorted(tasks) == sorted(prompts)
