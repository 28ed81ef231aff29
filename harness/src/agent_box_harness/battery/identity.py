"""Lies about who somebody is: headers that only the edge may set, in every spelling."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_box_harness.battery.ground import ATTACKER, VICTIM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.battery.ground import Ground
    from agent_box_harness.edge import Headers

ELSEWHERE = ("X-Forwarded-User", "X-Remote-User", "Remote-User", "X-User", "X-Original-URL",
             "X-Rewrite-URL", "X-HTTP-Method-Override", "Forwarded",
             "X-Forwarded-Prefix")  # fmt: skip
"""Headers by which other servers say who or what is meant."""
_NAME = re.compile(r"X-Agent-Box-[A-Z][A-Za-z-]*")


def names(ground: Ground) -> list[str]:
    """Return the headers in which the edge tells who somebody is, as its configuration says."""
    text = ground.box.read("/etc/caddy/Caddyfile")
    return sorted(set(_NAME.findall(text)))


def spellings(name: str) -> Iterator[str]:
    """Yield ways to write a header's name that somebody behind might take for it."""
    yield name
    yield name.lower()
    yield name.upper()
    yield name.replace("-", "_")
    head, _, tail = name.rpartition("-")
    yield f"{head}_{tail}"
    yield name.replace("-", "_", 1)
    yield f"{name}."


def lies(ground: Ground) -> Iterator[tuple[str, Headers]]:
    """Yield headers that say that somebody is alice, with what they are called."""
    told = names(ground)
    for name in told:
        for spelled in spellings(name):
            yield f"{spelled}: {VICTIM}", ((spelled, VICTIM),)
        yield f"{name} twice", ((name, ATTACKER), (name, VICTIM))
        yield f"{name} as a list", ((name, f"{ATTACKER}, {VICTIM}"),)
        # What `Connection` lists, who is on the way may take off after the edge has set it.
        yield f"Connection: {name}", (("Connection", name), (name, VICTIM))
        yield f"connection: close, {name.lower()}", (("Connection", f"close, {name.lower()}"),)
        yield f"Trailer: {name}", (("Trailer", name),)
    listed = ", ".join(["Cookie", "Authorization", *told])
    yield f"Connection: {listed}", (("Connection", listed),)
    for name in ELSEWHERE:
        yield f"{name}: {VICTIM}", ((name, f"/{VICTIM}/" if "URL" in name else VICTIM),)


def claimed(echo: str) -> dict[str, list[str]]:
    """Return what a service is told of who asks, by names as a careless reader takes them."""
    found: dict[str, list[str]] = {}
    for line in echo.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        plain = re.sub(r"[^a-z]+", "-", name.lower()).strip("-")
        if plain.startswith("x-agent-box-"):
            found.setdefault(plain.removeprefix("x-agent-box-"), []).append(value.strip())
    return found
