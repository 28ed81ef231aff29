"""Results of `agent-box-webhook` as people read them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from agent_box.visible import visible, visible_line

if TYPE_CHECKING:
    from collections.abc import Sequence


def setup(found: dict[str, Any], what: str, events: Sequence[str]) -> str:
    """Return what to enter at the sender."""
    source = found["source"]
    lines = [
        f"{source}: a new secret was made."
        if found["fresh"]
        else f"{source}: already configured, reusing its secret.",
        "",
        f"Payload URL:   {found['url']}",
        f"Secret:        {found['secret']}",
        f"Content type:  {found['contentType']}",
        f"Signature:     {what}, in the header {found['signatureHeader']}",
    ]
    if source == "github":
        fields = " ".join(f"-f 'events[]={event}'" for event in events)
        lines += [
            "",
            "In the repository: Settings, Webhooks, Add webhook. Or:",
            f"  gh api -X POST repos/OWNER/REPO/hooks -f name=web {fields} \\",
            f"    -f 'config[url]={found['url']}' -f 'config[content_type]=json' \\",
            f"    -f 'config[secret]={found['secret']}'",
        ]
    topic = "OWNER/REPO" if source == "github" else f"{source}:KEY"
    lines += [
        "",
        "Then, in a session:",
        f'  agent-box-webhook subscribe {topic} --note "why I wait for it"',
        f"  agent-box-webhook subscribe {topic} --deliver-to subagent   # a fresh session for each",
    ]
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> list[str]:
    more = []
    if row.get("note"):
        more.append(f'"{row["note"]}"')
    if row.get("ignoreSenders"):
        more.append(f"ignoring {', '.join(row['ignoreSenders'])}")
    rules = [name for name in ("include", "exclude") if name in row]
    if rules:
        more.append(f"{'+'.join(rules)} rules")
    if row.get("governed"):
        more.append("rules of the box's configuration")
    if row.get("invalid"):
        more.append(f"INVALID: {row['reason']}")
    ends = row["expiresIn"]
    ends = ends if ends.startswith("never") or ends == "expired" else f"ends in {ends}"
    return [f"  {row['topic']}  ({ends})", *(f"      {text}" for text in more)]


def listing(name: str, found: dict[str, Any]) -> str:
    """Return the subscriptions of a session and the standing watches."""
    lines = [f"{name}:"]
    if not found["enabled"]:
        lines.append("  MUTED: nothing is delivered")
    for row in found["topics"]:
        lines += _row(row)
    if not found["topics"]:
        lines.append(f"  nothing: {found.get('warning', 'unsubscribed from everything')}")
    watches = found.get("dispatch")
    if watches:
        lines += ["standing watches:"]
        for row in watches["topics"]:
            lines += _row(row)
        if watches.get("warning"):
            lines.append(f"  {watches['warning']}")
        elif not watches["topics"]:
            lines.append("  none")
    return "\n".join(lines)


def subscribed(found: dict[str, Any]) -> str:
    """Return what was subscribed to."""
    row = found["subscribed"]
    word = "renewed subscription to" if found["renewed"] else "subscribed to"
    ends = row["expiresIn"]
    if ends.startswith("never"):
        ends = "pinned (never expires)"
    else:
        ends = f"expires {ends} after the last renewal"
    if row.get("renewOnEvent"):
        ends += ", renews on every event"
    text = f"{word} {row['topic']}; {ends}"
    if found["deliverTo"] == "subagent":
        text += "; each event starts a fresh session"
    others = ", ".join(other["topic"] for other in found["topics"])
    return f"{text} (current: {others})"


def status(found: dict[str, Any]) -> str:
    """Return the state in a few lines."""
    running, hooks = found["running"], found["dispatch"]["hookSessions"]
    names = [
        f"{name} ({source['scheme']}{'' if source['hasSecret'] else ', NO SECRET'})"
        for name, source in found["sources"].items()
    ]
    lines = [
        f"endpoint:   {found['url']}",
        f"sources:    {', '.join(names) or 'none yet: agent-box-webhook setup'}",
        f"this box:   {found['self'] or 'not known on GitHub: agent-box-webhook self --refresh'}",
        f"plugins:    {found['peers']['live']} running",
        f"watches:    {found['dispatchTopicCount']} ({hooks['live']} of {hooks['max']} sessions)",
    ]
    if running is None:
        lines.append("receiver:   DOES NOT ANSWER")
    else:
        answers = ", ".join(
            f"{code}: {count}" for code, count in sorted(running["answers"].items())
        )
        lines += [
            f"receiver:   up since {_when(running['startedAt'])}; answers {answers or 'none'}",
            f"waiting:    {running['waitingForSession']} for a session, {running['unrouted']} new",
        ]
    return "\n".join(lines)


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def log(rows: list[dict[str, Any]]) -> str:
    """Return deliveries, one a line."""
    if not rows:
        return "no deliveries"
    lines = []
    for row in rows:
        copies = f" (+{row['copies']} copies)" if row["copies"] else ""
        result = row["result"] or ("nobody listens" if row["routed"] else "on its way")
        lines.append(
            f"{row['id']:>6}  {_when(row['at'])}  {row['source']}:{row['key'] or '(none)'}"
            f"  {row['event'] or '(none)'}  {result}{copies}"
        )
    lines = [visible_line(text) for text in lines]
    return "\n".join(lines)


def delivery(found: dict[str, Any]) -> str:
    """Return a delivery with its content."""
    head = log([found])
    content = json.dumps(found["payload"], indent=2, ensure_ascii=False)
    return f"{head}\n{visible(content)}"


def followed(row: dict[str, Any]) -> str:
    """Return what became of a test."""
    if not row["routed"]:
        return f"accepted as delivery {row['id']}, and not dealt with yet"
    return f"accepted as delivery {row['id']}: {row['result'] or 'nobody listens to this topic'}"


def url(found: dict[str, Any]) -> str:
    """Return where senders deliver to."""
    names = ", ".join(found["sources"]) or "(none yet, run: agent-box-webhook setup)"
    return (
        f"endpoint: {found['url']}\nsources:  {names}\n"
        f"per-source path: {found['url']}/{found['default']}"
    )
