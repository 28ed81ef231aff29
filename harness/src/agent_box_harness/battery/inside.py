"""Runs the battery's programs inside a guest: as root, as a user who signed in, in a session."""

from __future__ import annotations

import base64
import json
import shlex
import weakref
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from agent_box_harness.box import Box

FOLDER = "/opt/agent-box-battery"
SECONDS = 60.0
"""How long a program may take at native speed, unless told otherwise."""

_equipped: weakref.WeakSet[Any] = weakref.WeakSet()
"""Machines that have the programs already."""


class Stand(Enum):
    """Where somebody stands who attacks."""

    ROOT = "root"
    """Nobody attacks as root: root looks, and stands in for whom an outer wall already failed."""
    LOGIN = "login"
    SESSION = "session"


USERS = (Stand.LOGIN, Stand.SESSION)
"""Where a user can stand."""


def run(
    box: Box, program: str, job: Any = None, *, stand: Stand = Stand.ROOT, user: str = "bob",
    timeout: float = SECONDS,
) -> Any:  # fmt: skip
    """Run a program of `guest/` with a job and return what it tells."""
    _equip(box)
    packed = base64.b64encode(json.dumps(job).encode()).decode()
    command = f"python3 {FOLDER}/{program}.py"
    if stand is Stand.ROOT:
        done = box.run(command, timeout, stdin=packed)
    elif stand is Stand.LOGIN:
        done = box.as_user(user, command, timeout, stdin=packed)
    else:
        told = f"python3 {FOLDER}/{program}.py <<'EOF'\n{packed}\nEOF"
        done = box.in_session(user, told, timeout=timeout)
    done.check(f"{program} as {stand.value}")
    try:
        return json.loads(done.out)
    except ValueError:
        raise RequestFailedError(f"{program} told {done.out[:400]!r} {done.err[:400]!r}") from None


def end(box: Box, pid: int) -> None:
    """End a program that went on in the background, and wait until it is gone."""
    box.succeed(
        f"kill {pid} 2>/dev/null || true; for _ in $(seq 100); do "
        f"kill -0 {pid} 2>/dev/null || exit 0; sleep 0.05; done; kill -KILL {pid} || true"
    )


def _equip(box: Box) -> None:
    if box.machine in _equipped:
        return
    sources = sorted(Path(__file__).with_name("guest").glob("[a-z]*.py"))
    script = f"install -d -m 0755 {FOLDER}\n"
    for source in sources:
        text = base64.b64encode(source.read_bytes()).decode()
        target = shlex.quote(f"{FOLDER}/{source.name}")
        script += f"echo {text} | base64 -d >{target}; chmod 0644 {target}\n"
    box.run("sh -eu -s", stdin=script).check("the programs of the battery")
    _equipped.add(box.machine)
