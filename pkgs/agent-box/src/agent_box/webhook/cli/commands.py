"""What the verbs of `agent-box-webhook` do."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agent_box.errors import ConflictError, InternalError, NotFoundError, UsageError
from agent_box.subscriptions import actions, listing, receiving
from agent_box.subscriptions.actions import Wish
from agent_box.subscriptions.place import DISPATCH, known_login
from agent_box.webhook import identity, local, sources, verify
from agent_box.webhook.cli import show, state
from agent_box.webhook.cli.context import note

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from agent_box.webhook.cli.context import Context

EVENTS = (
    *("push", "pull_request", "pull_request_review", "pull_request_review_comment", "issues"),
    *("issue_comment", "workflow_run", "check_run"),
)
"""What GitHub is asked to send."""

FOLLOW = 5.0
"""Seconds that a test waits for its delivery to be dealt with."""


def setup(context: Context, arguments: argparse.Namespace) -> None:
    """Give a source a secret."""
    secret = sys.stdin.readline() if arguments.secret_stdin else None
    ready = sources.prepare(
        context.directory, arguments.source, rotate=arguments.rotate, secret=secret
    )
    receiving.wake(context.mine.socket)
    source = ready.source
    if len(ready.secret.encode()) < sources.SHORT_SECRET:
        note(f"this secret has fewer than {sources.SHORT_SECRET} bytes and can be guessed")
    url = f"{context.mine.url}/{source.name}"
    found = {
        "source": source.name,
        "url": url,
        "secret": ready.secret,
        "fresh": ready.fresh,
        "scheme": source.scheme,
        "signatureHeader": source.signature_header,
        "contentType": "application/json",
    }
    context.print(found, show.setup(found, verify.SCHEMES[source.scheme].what, EVENTS))


def ls(context: Context, arguments: argparse.Namespace) -> None:
    """List subscriptions."""
    key = context.key(arguments.session)
    found = listing.one(
        context.directory,
        key,
        login=known_login(context.user.home),
        policy=context.webhook.watch_policy,
    )
    context.print(found, show.listing(context.name_of(key), found))
    warning = state.capacity(context, found.get("dispatch"))
    if warning:
        note(warning)


def subscribe(context: Context, arguments: argparse.Namespace) -> None:
    """Subscribe or renew."""
    ignore = arguments.ignore_sender
    if ignore is not None:
        ignore = [name for text in ignore for name in text.split(",")]
    rules = {"include": arguments.include, "exclude": arguments.exclude}
    given = _given(arguments)
    wish = Wish(
        arguments.topic,
        note=arguments.note,
        ttl=arguments.ttl,
        renew=arguments.renew_on_event,
        ignore=ignore,
        clear=frozenset(name for name in given if rules[name] in (None, {})),
        **{name: rules[name] for name in given if rules[name] not in (None, {})},
    )
    watch = arguments.deliver_to == "subagent"
    key = DISPATCH if watch else context.key(arguments.session)
    login = None
    if ignore and any(name.strip().lower() == "@self" for name in ignore):
        login = identity.resolve(context.user)
    outcome = actions.subscribe(context.directory, key, wish, login)
    assert outcome.entry is not None  # noqa: S101 - subscribe sets it or raises
    now = time.time()
    row = listing.row(outcome.entry, outcome.filter, now)
    rows = [listing.row(entry, outcome.filter, now) for entry in outcome.filter.entries]
    warning = None
    if watch and (listing.receiver(context.directory) or {}).get("spawn") is False:
        warning = "WARNING: the receiver of this box starts no sessions"
    elif watch and outcome.entry.topic in context.webhook.watch_policy:
        warning = "the box's configuration governs this topic; its rules win over yours"
    found = {"subscribed": row, "renewed": outcome.renewed, "deliverTo": arguments.deliver_to,
             "topics": rows, "expired": outcome.expired}  # fmt: skip
    if warning:
        note(warning)
    context.print(found, show.subscribed(found))


def _given(arguments: argparse.Namespace) -> list[str]:
    """Return which rules were given; `null` takes one away just like `{}`."""
    words = {"include": ("--include", "--when"), "exclude": ("--exclude", "--drop")}
    return [
        name
        for name, options in words.items()
        if getattr(arguments, name) is not None
        or any(word.partition("=")[0] in options for word in sys.argv)
    ]


def unsubscribe(context: Context, arguments: argparse.Namespace) -> None:
    """Unsubscribe; fine when there was nothing."""
    watch = arguments.deliver_to == "subagent"
    key = DISPATCH if watch else context.key(arguments.session)
    outcome = actions.unsubscribe(context.directory, key, arguments.topic)
    word = "unsubscribed from" if outcome.removed else "not subscribed to"
    found = {"topic": arguments.topic, "removed": outcome.removed, "expired": outcome.expired}
    context.print(found, f"{word} {arguments.topic}")


def log(context: Context, arguments: argparse.Namespace) -> None:
    """List deliveries, or show one."""
    spool = context.spool()
    if arguments.id is not None:
        delivery, line = spool.find(arguments.id), spool.line(arguments.id)
        if delivery is None or line is None:
            raise NotFoundError(f"no delivery {arguments.id}; agent-box-webhook log lists them")
        found = {**asdict(delivery), "payload": json.loads(line)["payload"]}
        context.print(found, show.delivery(found))
        return
    since = time.time() - arguments.since if arguments.since else 0
    rows = spool.log(
        limit=max(arguments.lines, 1), since=since, source=arguments.source, key=arguments.key
    )
    found_rows = [asdict(row) for row in rows]
    context.print(found_rows, show.log(found_rows))


def redeliver(context: Context, arguments: argparse.Namespace) -> None:
    """Deliver once more."""
    found = local.ask(context.mine.socket, "redeliver", {"id": arguments.id})
    if found["id"] is None:
        raise ConflictError(
            f"{found['error']}; try again when fewer wait: agent-box-webhook status"
        )
    context.print(found, f"delivery {arguments.id} goes out again as {found['id']}")


def _source(context: Context, name: str) -> sources.Source:
    source = sources.load(context.directory).known.get(name)
    if source is None:
        raise NotFoundError(f"unknown source '{name}'; make it: agent-box-webhook setup {name}")
    if not source.secrets:
        raise ConflictError(f"'{name}' has no secret; run: agent-box-webhook setup {name}")
    return source


def emit(context: Context, arguments: argparse.Namespace) -> None:
    """Deliver an event of the box's own."""
    source = _source(context, arguments.source)
    given = sys.stdin.buffer.read() if arguments.payload == "-" else arguments.payload.encode()
    try:
        json.loads(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the payload is no JSON: {error}") from error
    headers = local.request(source, given, arguments.event)
    code, text = local.post(context.mine.socket, f"/{source.name}", given, headers)
    if code != 200:
        raise InternalError(f"the receiver rejected the event: {code} {text}")
    found = {"source": source.name, "path": context.mine.socket}
    context.print(found, f"delivered {source.name} event to {context.mine.socket}")


def test(context: Context, arguments: argparse.Namespace) -> None:
    """Send a delivery and follow it."""
    source = _source(context, arguments.source)
    document: dict[str, Any] = {"zen": "This is a test.", "at": time.time()}
    for path, value in ((source.key_path, arguments.key), (source.sender_path, "agent-box")):
        _put(document, path, value)
    body = json.dumps(document).encode()
    headers = local.request(source, body, "ping")
    before = 0
    try:
        with_spool = context.spool()
        before = max((row.id for row in with_spool.log(limit=1)), default=0)
        with_spool.close()
    except NotFoundError:
        pass
    if arguments.public:
        code, text = _post_public(f"{context.mine.url}/{source.name}", body, headers)
    else:
        code, text = local.post(context.mine.socket, f"/{source.name}", body, headers)
    if code != 200:
        raise InternalError(f"refused: {code} {text}")
    found = _followed(context, before, headers[source.delivery_header])
    context.print(found, show.followed(found))


def _followed(context: Context, before: int, delivery: str) -> dict[str, Any]:
    end = time.monotonic() + FOLLOW
    while True:
        spool = context.spool()
        rows = [row for row in spool.log(limit=100, after=before) if row.delivery == delivery]
        spool.close()
        if (rows and rows[0].routed) or time.monotonic() > end:
            break
        time.sleep(0.05)
    if not rows:
        raise InternalError("it was accepted, and then it is not in the log: agent-box-webhook log")
    return asdict(rows[0])


def _post_public(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return answer.status, answer.read(1000).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(1000).decode("utf-8", "replace")
    except OSError as error:
        raise InternalError(f"{url} cannot be reached from here: {error}") from error


def _put(document: dict[str, Any], path: str | None, value: str) -> None:
    if not path:
        return
    *parents, last = path.split(".")
    for name in parents:
        document = document.setdefault(name, {})
    document[last] = value


def rm(context: Context, arguments: argparse.Namespace) -> None:
    """Forget a source."""
    if not sources.remove(context.directory, arguments.source):
        raise NotFoundError(f"unknown source '{arguments.source}'")
    context.print(
        {"removed": arguments.source}, f"'{arguments.source}' is forgotten: its sender gets 404"
    )


def url(context: Context, _: argparse.Namespace) -> None:
    """Print the address."""
    known = sources.load(context.directory)
    names = sorted(known.known)
    found = {"url": context.mine.url, "sources": names, "default": known.default}
    context.print(found, show.url(found))


def myself(context: Context, arguments: argparse.Namespace) -> None:
    """Print the login."""
    login = identity.resolve(context.user, refresh=arguments.refresh)
    if login is None:
        raise InternalError(
            "not known; sign in with gh auth login, or store GH_TOKEN: agent-box-session env set"
        )
    context.print({"self": login}, login)


COMMANDS: dict[str, Callable[[Context, argparse.Namespace], None]] = {
    "setup": setup,
    "ls": ls,
    "subscribe": subscribe,
    "unsubscribe": unsubscribe,
    "status": state.status,
    "log": log,
    "redeliver": redeliver,
    "emit": emit,
    "test": test,
    "rm": rm,
    "url": url,
    "self": myself,
}
