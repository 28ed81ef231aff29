"""The agents of a few lines of shell write what `churn.py` finds, and refuse what they should."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import brief_agents, churn

if TYPE_CHECKING:
    from pathlib import Path

ID = str(uuid.uuid4())
STAMPED = "[agent-box session x] kickoff of one"
ARGUMENTS = {
    "claude": (["--settings", "{}", "--session-id", ID, "--", "kickoff of one"], "kickoff of one"),
    "codex": (["-c", "x=[1]", "--", STAMPED], STAMPED),
    "opencode": (["--auto", f"--prompt={STAMPED}"], STAMPED),
    "pi": (
        ["--approve", "--extension", "/x", "--session-id", ID, "kickoff of one"],
        "kickoff of one",
    ),
}
UNKNOWN = {
    "claude": ["--resume", ID],
    "codex": ["resume", "-c", "x=[1]", "--", ID],
    "opencode": ["--session", "ses_unknown00"],
}


class Home:
    """A home with the agents' programs in it, and who keeps opencode's database."""

    def __init__(self, path: Path, outside: socket.socket) -> None:
        self.path = path
        self.store = path / "store"
        os.mkfifo(self.store)
        for folder in (
            *(".claude/projects/-home-alice", ".pi/agent/sessions/--home-alice--"),
            ".local/share/opencode",
        ):
            (path / folder).mkdir(parents=True)
        script = path / "agent"
        script.write_text(brief_agents.SOURCE.replace(churn.STORE, str(self.store)))
        script.chmod(0o755)
        for agent in churn.AGENTS:
            (path / agent).symlink_to(script)
        self.database = churn.Database(path, outside)

    def run(self, agent: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path / agent, *arguments],
            env={**os.environ, "HOME": str(self.path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def receipts(self, count: int) -> list[tuple[str, str]]:
        for _ in range(100):
            found = churn.receipts(self.path, self.database)
            if len(found) >= count:
                break
            threading.Event().wait(0.05)
        return found


@pytest.fixture
def told() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


@pytest.fixture
def home(
    tmp_path: Path, told: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> Home:
    made = Home(tmp_path, told[0])
    monkeypatch.setattr(churn, "STORE", str(made.store))
    threading.Thread(target=made.database.serve, daemon=True).start()
    return made


@pytest.mark.parametrize("agent", churn.AGENTS)
def test_each_prompt_is_written_down(home: Home, agent: str) -> None:
    arguments, text = ARGUMENTS[agent]
    done = home.run(agent, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert home.receipts(1) == [(agent, text)]
    if agent == "claude":
        assert home.run(agent, *arguments).returncode == 1  # it is in use
    else:
        assert home.run(agent, *arguments).returncode == 0
        assert home.receipts(2) == [(agent, text)] * 2


@pytest.mark.parametrize("agent", UNKNOWN)
def test_what_is_not_known_is_not_resumed(
    home: Home, told: tuple[socket.socket, socket.socket], agent: str
) -> None:
    done = home.run(agent, *UNKNOWN[agent])
    if agent == "opencode":
        told[1].settimeout(10)
        assert b"ses_unknown00, which it does not know" in told[1].recv(9999)
    else:
        assert done.returncode == 1
        assert ID in done.stdout


def test_a_conversation_is_resumed(home: Home) -> None:
    home.run("codex", *ARGUMENTS["codex"][0])
    (rollout,) = home.path.glob(".codex/sessions/*/*/*/rollout-*.jsonl")
    known = rollout.stem[-36:]
    assert uuid.UUID(known).version == 7
    done = home.run("codex", "resume", "--", known, "kickoff of two")
    assert done.stdout == "at work: kickoff of two\n"
    assert home.receipts(2) == [("codex", STAMPED), ("codex", "kickoff of two")]
    done = home.run("claude", *ARGUMENTS["claude"][0])
    assert home.run("claude", "--resume", ID).stdout == "at work: \n"
