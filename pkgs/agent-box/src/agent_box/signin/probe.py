"""Asking a CLI whether somebody is signed in, in its own words."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

from agent_box.signin import screen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_box.signin.flows import Flow

TIMEOUT = 20.0
"""Seconds that a CLI may take for its answer; they start slowly without a network."""


def ask(flow: Flow, program: str, env: Mapping[str, str]) -> tuple[bool | None, str]:
    """Return whether the stored sign-in is there and as whom; None when the CLI cannot tell.

    Variables that win over the stored sign-in are left out of the question.
    """
    clean = {key: value for key, value in env.items() if key not in flow.shadows}
    try:
        answer = subprocess.run(
            [program, *flow.status], env=clean, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=TIMEOUT, check=False, text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"{flow.label} did not answer within {TIMEOUT:g} s"
    except OSError as error:
        return None, f"{program} cannot be run: {error.strerror}"
    text = "\n".join(screen.plain(answer.stdout) + screen.plain(answer.stderr))
    return read(flow, answer.returncode, text)


def read(flow: Flow, status: int, text: str) -> tuple[bool | None, str]:
    """Understand an answer."""
    connected, detail = _READERS[flow.id](status, text)
    return connected, screen.failure(detail) if detail else ""


def _claude(status: int, text: str) -> tuple[bool | None, str]:
    start, end = text.find("{"), text.rfind("}")
    try:
        answer = json.loads(text[start : end + 1])
    except ValueError:
        return None, "claude gave an answer that nobody understands"
    if answer.get("loggedIn") is not True:
        return False, ""
    who = answer.get("email") or answer.get("authMethod")
    return status == 0, f"as {who}" if isinstance(who, str) else ""


def _codex(status: int, text: str) -> tuple[bool | None, str]:
    match = re.search(r"Logged in[^\n]*", text)
    if status == 0:
        return True, match.group().partition(" - ")[0] if match else ""
    return (False, "") if "Not logged in" in text else (None, _last(text))


def _gh(status: int, text: str) -> tuple[bool | None, str]:
    match = re.search(r"Logged in to github\.com (?:account|as) ([A-Za-z0-9-]+)", text)
    if status == 0:
        return True, f"as {match.group(1)}" if match else ""
    if "not logged in" in text.lower() or "not logged into" in text.lower():
        return False, ""
    # gh asks the network: a token that GitHub refuses is not a sign-in, an outage is no answer.
    return (False, _last(text)) if "is invalid" in text else (None, _last(text))


def _opencode(status: int, text: str) -> tuple[bool | None, str]:
    match = re.search(r"(\d+) credentials?", text)
    if status != 0 or match is None:
        return None, _last(text)
    names = re.findall(r"^[●•]\s+(\S.*?)(?:\s+(?:api|oauth|wellknown))?$", text, re.MULTILINE)
    return int(match.group(1)) > 0, ", ".join(names)


def _pi(status: int, text: str) -> tuple[bool | None, str]:
    if "No models available" in text:
        return False, ""
    rows = re.findall(r"^(\S+) {2,}\S", text, re.MULTILINE)
    providers = sorted(set(rows) - {"provider"})
    return (True, ", ".join(providers)) if status == 0 and providers else (None, _last(text))


def _last(text: str) -> str:
    return next((line for line in reversed(text.split("\n")) if line.strip()), "")


_READERS = {
    "claude": _claude,
    "codex": _codex,
    "github": _gh,
    "opencode": _opencode,
    "pi": _pi,
}
