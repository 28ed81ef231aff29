"""The real CLIs at work: what they tell of themselves is what the box shows.

A model on the loopback plays each vendor (`stub_model`). It answers, thinks, has the agent ask
something, or refuses the login; the sessions must say so, by the agents' own hooks, plugins and
notifications where they have any, and by their screens.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import agent_box_harness
from agent_box_harness.vendors import no_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

pytestmark = [
    pytest.mark.needs("agents"),
    pytest.mark.renewed("module", touches=("alice",)),
    pytest.mark.limit(400),
]

USER = "alice"
PORT = 8123
MODEL = "/opt/agent-box-stub/stub_model.py"
LOG = "/run/stub-model.jsonl"
ANSWER = "All done here."
START = 150.0
"""Seconds to the first answer."""

OPTIONS = {
    "claude": "",
    # codex asks for commands only, and only where it is not free to do everything.
    "codex": "--no-remote-control --no-skip-permissions",
    "opencode": "",
    "pi": "",
}
ASKS = {
    "claude": ("STUB ask", "claude asks a question: attach and answer", "Which colour?"),
    "codex": ("STUB run touch asked", "permission question: attach and answer", "Would you like"),
    "opencode": ("STUB ask", "opencode asks a question: attach and answer", "Which colour?"),
}
"""What makes it ask something, what the box says, and what its screen does. pi never asks."""


@pytest.fixture
def _model(box: Box) -> Iterator[None]:
    """The vendor of all agents."""
    source = Path(agent_box_harness.__file__).with_name("stub_model.py")
    box.write_file(MODEL, source.read_bytes(), mode=0o755)
    # On the localhost of the user, which is not that of the machine.
    inside = f"ip netns exec agent-box-{USER}"
    command = f"setsid {inside} python3 {MODEL} {PORT} {LOG} </dev/null >/dev/null 2>&1 & echo $!"
    pid = int(box.succeed(command))
    box.wait_until_succeeds(f"{inside} curl -sS -o /dev/null http://127.0.0.1:{PORT}/v1/models")
    yield
    box.succeed(f"kill {pid}; rm -f {LOG}")


@pytest.mark.usefixtures("_model")
@pytest.mark.parametrize("agent", list(OPTIONS))
def test_what_it_tells_is_shown(box: Box, agent: str) -> None:
    """A prompt is answered: the session is idle and its last call worked. While the model thinks,
    the session works. A question makes it wait, the answer lets it go on. The guide about the box
    is in what the vendor gets. A login that the vendor refuses afterwards is shown as refused.
    """
    no_registry(box, USER)
    _sign_in(box, agent, "alive")
    box.ctl(USER, f"add work --agent {agent} {OPTIONS[agent]} --prompt 'hello there'").check()
    try:
        _until(box, "its answer", START, state="running", lastCall="worked", idle=True)
        box.expect_in(box.pane_text(USER, "work"), ANSWER)
        box.expect_in(box.read(LOG), "You work on an agent-box")

        box.ctl(USER, "send work 'STUB think 8'").check()
        _until(box, "its work", 10, state="running", idle=False)
        _until(box, "its answer", 40, state="running", idle=True)

        if agent in ASKS:
            words, reason, question = ASKS[agent]
            box.ctl(USER, f"send work '{words}'").check()
            _until(box, "its question", 40, state="waiting", reason=reason)
            box.wait_for("the question", lambda: question in box.pane_text(USER, "work"))
            time.sleep(1)  # to read it
            box.tmux(USER, "send-keys -t =work: Escape").check()
            _until(box, "the end of the question", 40, state="running")

        _sign_in(box, agent, "dead")
        box.ctl(USER, "restart work").check()
        # Its resume prompt is what the vendor refuses.
        view = _until(box, "the refusal", START, state="waiting", lastCall="refused")
        assert view["reason"].startswith("sign-in needed")
        assert view["credential"] is True
    finally:
        box.ctl(USER, "rm work").check()
        box.ctl(USER, "env rm ANTHROPIC_API_KEY ANTHROPIC_BASE_URL PI_OFFLINE")
        box.succeed(f"cd {box.home(USER)} && rm -rf .claude .codex .config/opencode .pi")


def _until(box: Box, what: str, seconds: float, **wanted: Any) -> dict[str, Any]:
    """Wait until the session shows all that; `idle` is whether it says since when it is."""

    def look() -> dict[str, Any] | None:
        view = box.session(USER, "work")
        seen = {**view, "idle": view["idleSince"] is not None}
        return view if all(seen[key] == value for key, value in wanted.items()) else None

    found: dict[str, Any] = box.wait_for(f"{what}: {wanted}", look, seconds)
    return found


def _sign_in(box: Box, agent: str, key: str) -> None:
    """Point the agent at the model, with a key that holds `key`."""
    base = f"http://127.0.0.1:{PORT}"
    if agent == "claude":
        box.ctl(USER, "env set ANTHROPIC_API_KEY", stdin=f"sk-ant-{key}-{'0' * 30}").check()
        box.ctl(USER, "env set ANTHROPIC_BASE_URL", stdin=base).check()
        return
    if agent == "codex":
        place, content = ".codex/config.toml", (
            'model = "mock"\nmodel_provider = "mock"\n[model_providers.mock]\nname = "mock"\n'
            f'base_url = "{base}/v1"\nwire_api = "responses"\n'
            f'experimental_bearer_token = "{key}"\n'
        )  # fmt: skip
    elif agent == "opencode":
        provider: dict[str, Any] = {"npm": "@ai-sdk/openai-compatible", "name": "Mock"}
        provider["options"] = {"baseURL": f"{base}/v1", "apiKey": key}
        provider["models"] = {"mock": {"name": "Mock"}}
        place = ".config/opencode/opencode.json"
        content = json.dumps({"model": "mock/mock", "provider": {"mock": provider}})
    else:
        box.ctl(USER, "env set PI_OFFLINE", stdin="1").check()
        mock = {"baseUrl": f"{base}/v1", "api": "openai-completions", "apiKey": key}
        place = ".pi/agent/models.json"
        content = json.dumps({"providers": {"mock": {**mock, "models": [{"id": "mock"}]}}})
    path = f"{box.home(USER)}/{place}"
    box.as_user(USER, f"mkdir -p {Path(path).parent}").check()
    box.write_file(path, content, mode=0o600, owner=f"{USER}:{USER}")
