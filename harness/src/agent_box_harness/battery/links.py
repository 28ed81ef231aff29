"""A user's socket as a link to the same one of another user: is anybody taken for the other?

Root makes the link, in the place of an attacker for whom the outer wall has failed already.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from agent_box_harness.battery import edge_config
from agent_box_harness.battery.ground import ATTACKER, MARKER, SAYS, VICTIM
from agent_box_harness.edge import Ask
from agent_box_harness.routes import served

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground


def crossed(ground: Ground) -> list[str]:
    """Say where a link from bob's socket to alice's lets him be her, or read what is hers."""
    dials = edge_config.dials(ground.box)
    wrong = []
    for path in sorted(dials):
        other = path.replace(ATTACKER, VICTIM)
        if ATTACKER in path and other in dials:
            wrong += _through(ground, path, other)
    return wrong


def _through(ground: Ground, path: str, other: str) -> list[str]:
    box, edge = ground.box, ground.edge
    here, aside = shlex.quote(path), shlex.quote(f"{path}.battery")
    targets = _targets(ground, path)
    box.succeed(f"mv {here} {aside}; ln -s {shlex.quote(other)} {here}")
    try:
        answers = edge.ask([Ask(target, headers=ground.as_attacker) for target in targets])
        opens = f"/{ATTACKER}/t/main/ws" in targets
        told = edge.steps(ground.who_is_in(ATTACKER))[-2] if opens else {}
    finally:
        box.succeed(f"rm {here}; mv {aside} {here}")
    wrong = [
        f"{path} -> {other}: bob's GET {target} ({answer.status}) shows alice's {MARKER}"
        for target, answer in zip(targets, answers, strict=True)
        if MARKER in answer.body
    ]
    if f"{SAYS}{VICTIM}" in told.get("text", ""):
        wrong.append(f"{path} -> {other}: bob's terminal is a shell of alice's")
    return wrong


def _targets(ground: Ground, path: str) -> list[str]:
    """Return addresses that lead to a socket: samples, and those that services tell themselves."""
    found = []
    for way in edge_config.ways(ground.box):
        if way.socket == path:
            fits = re.compile(way.patterns[-1] if way.patterns else "")
            told = [target for target in served(ground.edge, ATTACKER) if fits.search(target)]
            found += [*way.targets, *told]
    return list(dict.fromkeys(found))
