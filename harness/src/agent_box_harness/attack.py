"""Runs many small attacks of one user on another in one go.

An attack is a shell script that exits 0 exactly when it got through. Starting each by itself
would cost a round trip into the guest, seconds under emulation; all of them go in as one
script, which starts each in an empty directory, with a time limit and without standard input.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_box_harness.apart import Result
    from agent_box_harness.box import Box

LIMIT = 5.0
"""Seconds at native speed after which an attack counts as refused: nobody answered."""

_RUNNER = """\
attack() {
    mkdir "$d/$1"; cd "$d/$1"; printf %s "$2" | base64 -d >"$d/script"
    rc=0; timeout -k 1 "$limit" sh -eu "$d/script" >"$d/out" 2>&1 </dev/null || rc=$?
    cd /; rm -rf "$d/$1"
    echo "attack $1 $rc $(base64 -w0 <"$d/out")"
}
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one attack."""

    rc: int
    output: str
    """Standard output and error."""

    @property
    def through(self) -> bool:
        """Whether it got through."""
        return self.rc == 0


def attack_from_login(
    box: Box, user: str, scripts: Mapping[str, str], facts: Mapping[str, str]
) -> dict[str, Outcome]:
    """Run scripts as a user outside of the sandbox; `facts` are their environment."""
    text = _script(box, scripts, facts)
    return _read(box.as_user(user, "sh -s", timeout=_limit(scripts), stdin=text), scripts)


def attack_from_session(
    box: Box,
    user: str,
    scripts: Mapping[str, str],
    facts: Mapping[str, str],
    limit: float = LIMIT,
) -> dict[str, Outcome]:
    """Run scripts inside a user's sandbox, each for at most `limit` seconds at native speed."""
    text = _script(box, scripts, facts, limit)
    return _read(box.in_session(user, text, timeout=_limit(scripts, limit)), scripts)


def attack_as_root(
    box: Box, scripts: Mapping[str, str], facts: Mapping[str, str]
) -> dict[str, Outcome]:
    """Run scripts as root, outside of every sandbox."""
    text = _script(box, scripts, facts)
    return _read(box.run("sh -s", timeout=_limit(scripts), stdin=text), scripts)


def _limit(scripts: Mapping[str, str], limit: float = LIMIT) -> float:
    return 20 + limit * len(scripts)


def _script(
    box: Box, scripts: Mapping[str, str], facts: Mapping[str, str], limit: float = LIMIT
) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in facts.items()]
    lines += [f"limit={limit * box.machine.time_factor:g}", "d=$(mktemp -d)", _RUNNER]
    for name, script in scripts.items():
        lines.append(f"attack {name} {base64.b64encode(script.encode()).decode()}")
    return "\n".join([*lines, 'rm -rf "$d"', ""])


def _read(result: Result, scripts: Mapping[str, str]) -> dict[str, Outcome]:
    found = {}
    for line in result.out.splitlines():
        word, _, rest = line.partition(" ")
        if word == "attack":
            name, rc, *output = rest.split(" ")
            text = base64.b64decode("".join(output)).decode(errors="replace").strip()
            found[name] = Outcome(int(rc), text)
    missing = scripts.keys() - found.keys()
    if missing:
        raise RequestFailedError(f"no verdict on {', '.join(sorted(missing))}: {result}")
    return found
