"""The real CLIs, as npm has them, start in sessions of a box without network and without sign-in.

Everything else is proven with a stub, which does what a scenario tells it. These scenarios hold
the adapters to what the programs really do: that they start inside the sandbox, what they show,
and that the box understands it. They run at native speed wherever a container can run; with
``--guest qemu``, and on the machines of NixOS tests, in a sandbox on a kernel of its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside
from agent_box_harness.vendors import no_registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.box import Box

USER = "alice"
START = 60.0
"""Seconds to the sign-in's screen."""

SIGN_IN = {
    "claude": "sign-in needed: attach and run /login",
    "codex": "sign-in needed: attach and press Enter",
    "codex --no-remote-control": "sign-in needed: attach and choose how to sign in",
    "opencode": "sign-in needed: attach and run /connect",
    "pi": "sign-in needed: attach and run /login",
}
FIRST_RUN_DIALOGS = (
    "Enter to confirm",
    "Choose the text style",
    "Select login method",
    "trust this folder",
    "Do you trust the files",
    "Bypass Permissions mode",
    "Detected a custom API key",
    "Press Enter to continue",
)
"""What claude would show to somebody who starts it for the first time."""


@pytest.mark.needs("agents")
@pytest.mark.renewed("module", touches=("alice",))
@pytest.mark.limit(200)
@pytest.mark.parametrize("agent", list(SIGN_IN))
def test_waits_for_sign_in(box: Box, agent: str, measured: Callable[[str, float], None]) -> None:
    """Each CLI starts, stays alive, and is `waiting` with words that say what to do: sign in.
    The list for humans has the same words.
    """
    no_registry(box, USER)
    view = _waiting(box, agent)
    measured(f"{agent}: start to the sign-in", view["seconds"])
    assert view["reason"] == SIGN_IN[agent]
    assert view["restarts"] == 0
    name = agent.partition(" ")[0]
    lines = [line for line in box.ctl(USER, "ls").check().out.splitlines() if name in line]
    assert len(lines) == 1
    box.expect_in(lines[0], "waiting")
    box.expect_in(lines[0], SIGN_IN[agent])
    # The real program, not something that stands in for it, and none of its helpers died.
    assert outside.alive(box, view["pid"])
    real = "/nix/store/" if box.kind == "nixos" else f"/{name}/node_modules/"
    box.expect_in(box.run(f"readlink -f {box.agent_link(name)}").check(), real)
    box.ctl(USER, f"rm real-{name}").check()
    assert not outside.alive(box, view["pid"])


@pytest.mark.needs("agents")
@pytest.mark.renewed("module", touches=("alice",))
def test_claude_asks_for_sign_in_only(box: Box) -> None:
    """claude's first session ever, the next one in a directory that it has never seen, and one
    that asks before it acts all come to claude's own prompt, with no dialog on the way.
    """
    home = box.home(USER)
    asks = "--no-skip-permissions"
    for name, words in {
        "first": "",
        "elsewhere": f"--cwd {home}/new/place --mkdir",
        "careful": f"--cwd {home}/other --mkdir {asks}",
    }.items():
        box.ctl(USER, f"add {name} --agent claude {words}").check()
        view = box.wait_session(USER, name, "waiting", START)
        assert view["reason"] == SIGN_IN["claude"]
        screen = box.pane_text(USER, name)
        box.expect_in(screen, "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}")
        for dialog in FIRST_RUN_DIALOGS:
            box.expect_not_in(box.ctl(USER, f"logs {name}").check(), dialog)
        # It takes what is typed: nothing lies over its prompt.
        box.ctl(USER, f"send {name} --no-enter 'typed by a test'").check()
        _shows(box, name, "typed by a test")
        box.ctl(USER, f"rm {name}").check()


@pytest.mark.needs("agents")
@pytest.mark.renewed("module", touches=("alice",))
def test_prompt_is_held_until_sign_in(box: Box) -> None:
    """A kickoff prompt is not thrown at a claude that nobody is signed in to: it stays pending,
    through a restart too, and no transcript comes about.
    """
    box.ctl(USER, "add work --agent claude --prompt 'first task'").check()
    box.wait_session(USER, "work", "waiting", START)
    box.ctl(USER, "restart work").check()
    view = box.wait_session(USER, "work", "waiting", START)
    assert view["promptPending"] is True
    assert view["reason"] == SIGN_IN["claude"]
    box.expect_not_in(box.ctl(USER, "logs work").check(), "first task")
    assert box.run(f"find {box.home(USER)}/.claude/projects -name '*.jsonl'").out == ""
    box.ctl(USER, "rm work").check()


def _waiting(box: Box, agent: str) -> dict[str, Any]:
    """Add a session of a CLI (options behind its name) and return its view once it waits for good.

    On the way there codex waits, seconds to minutes, for a page that it cannot reach. `seconds`
    tells how long it all took.
    """
    began = time.monotonic()
    name = agent.partition(" ")[0]
    box.ctl(USER, f"add real-{name} --agent {agent}").check()

    def there() -> dict[str, Any] | None:
        view = box.wait_session(USER, f"real-{name}", "waiting", START)
        return view if view["reason"] == SIGN_IN[agent] else None

    view = box.wait_for(f"{agent} to say: {SIGN_IN[agent]}", there, START)
    return {**view, "seconds": time.monotonic() - began}


def _shows(box: Box, name: str, text: str) -> None:
    box.wait_for(f"{text!r} on the screen of {name}", lambda: text in box.pane_text(USER, name))
