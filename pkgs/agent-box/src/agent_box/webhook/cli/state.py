"""How deliveries fare: `agent-box-webhook status`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from agent_box.errors import AgentBoxError
from agent_box.subscriptions import listing
from agent_box.subscriptions.place import clean, key_of, known_login
from agent_box.webhook import local, sources
from agent_box.webhook.cli import show
from agent_box.webhook.cli.context import note

if TYPE_CHECKING:
    import argparse

    from agent_box.webhook.cli.context import Context


def capacity(context: Context, watches: dict[str, Any] | None) -> str | None:
    """Return why a standing watch would start nothing right now; None when it would."""
    if not watches or not watches["topics"]:
        return None
    live, limit = _hooks(context)
    if live < limit:
        return None
    return (
        f"{live} hook-* sessions are running, the limit is {limit}: every standing watch is inert"
        " and its events wait; remove one that is done: agent-box-session rm NAME"
    )


def _hooks(context: Context) -> tuple[int, int]:
    live = sum(
        view["name"].startswith("hook-") and view["state"] not in ("stopped", "failed")
        for view in context.views
    )
    said = listing.receiver(context.directory) or {}
    limit = said.get("hookSessionMax", context.webhook.session_max)
    return live, limit if isinstance(limit, int) else context.webhook.session_max


def status(context: Context, _: argparse.Namespace) -> None:
    """Tell everything about the state of deliveries."""
    key = clean(os.environ.get("LOCAL_WEBHOOK_SESSION", ""))
    mine = listing.one(context.directory, key, login=None, policy=context.webhook.watch_policy)
    watches = mine.get("dispatch")
    known = sources.load(context.directory)
    found: dict[str, Any] = {
        "url": context.mine.url,
        "stateDir": str(context.directory),
        "session": key or None,
        "self": known_login(context.user.home),
        "filterFile": mine["filterFile"],
        "enabled": mine["enabled"],
        "topicCount": len(mine["topics"]),
        "dispatchTopicCount": len(watches["topics"]) if watches else 0,
        "receiver": listing.receiver(context.directory),
        "defaultSource": known.default,
        "sources": {
            name: {"hasSecret": bool(source.secrets), "scheme": source.scheme}
            for name, source in known.known.items()
        },
        "peers": _peers(context),
        "dispatch": _dispatch(context, watches),
        "plugin": context.webhook.plugin,
    }
    try:
        found["running"] = local.ask(context.mine.socket, "status")
    except AgentBoxError as error:
        found["running"] = None
        note(str(error))
    context.print(found, show.status(found))
    if found["dispatch"].get("warning"):
        note(found["dispatch"]["warning"])
    deaf = found["peers"]["missing"] if context.webhook.plugin else []
    if deaf:
        note(
            f"no plugin runs in {', '.join(deaf)}: told by the terminal instead; look at /mcp there"
            " or run agent-box-session restart NAME"
        )


def _peers(context: Context) -> dict[str, Any]:
    """Return how many plugin processes live, and which sessions should have one."""
    living = listing.peers(context.directory)
    keyed = {key for key in living if key not in ("", "-")}
    missing = [
        view["name"]
        for view in context.views
        if view["agent"] == "claude"
        and view["id"]
        and view["state"] in ("running", "waiting")
        and key_of(view["id"]) not in keyed
    ]
    return {
        "live": sum(map(len, living.values())),
        "keyed": sum(len(living[key]) for key in keyed),
        "shared": len(living.get("", [])),
        "legacy": len(living.get("-", [])),
        "missing": missing,
    }


def _dispatch(context: Context, watches: dict[str, Any] | None) -> dict[str, Any]:
    live, limit = _hooks(context)
    path = context.user.state_dir / "webhook-spawn-refused.json"
    try:
        refused = json.loads(path.read_bytes())
    except (OSError, ValueError):
        refused = None
    said = listing.receiver(context.directory)
    found: dict[str, Any] = {
        "topicCount": len(watches["topics"]) if watches else 0,
        "spawnCommand": said.get("spawn") if said else None,
        "hookSessions": {"live": live, "max": limit, "atCapacity": live >= limit},
        "lastRefusal": refused,
    }
    if watches and watches["topics"] and found["spawnCommand"] is False:
        found["warning"] = "every standing watch is inert: the receiver starts no sessions"
    elif warning := capacity(context, watches):
        found["warning"] = warning
    return found
