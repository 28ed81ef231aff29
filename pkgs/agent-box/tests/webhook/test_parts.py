"""The parts of the receiver alone: starting sessions, tidying up, files, published signatures."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_box import config
from agent_box.errors import ConflictError, InternalError, UsageError
from agent_box.subscriptions import actions, files, listing, place, predicates, routing, topics
from agent_box.webhook import payload, spawner, verify
from agent_box.webhook.caretaker import Caretaker
from agent_box.webhook.spawner import Spawner
from agent_box.webhook.spool import Arrival, Spool

if TYPE_CHECKING:
    from pathlib import Path

GROUP = ("github", "acme/widgets")


class Link:
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.views: list[dict[str, Any]] = []
        self.error: Exception | None = None

    async def call(self, op: str, **args: Any) -> Any:
        self.asked.append((op, args))
        if op == "ls":
            return {"sessions": self.views}
        if self.error is not None:
            raise self.error
        view = {"name": args["name"], "id": args.get("id"), "state": "starting", "agent": "claude"}
        self.views.append(view)
        return {"session": view}


class Bench:
    """A spool and a spawner with everything around them made up."""

    def __init__(self, root: Path) -> None:
        user = SimpleNamespace(
            home=root, env_path=root / "env", name="alice", state_dir=root / "state"
        )
        webhook = config.Webhook(users={}, session_max=2)
        self.box = SimpleNamespace(webhook=webhook, default_agent="claude")
        self.spool = Spool(root / "spool")
        self.link = Link()
        self.sessions: Any = SimpleNamespace(
            link=self.link, views={}, known=asyncio.Event(), hooks=lambda: list(self.living)
        )
        self.living: list[str] = []
        self.owners: dict[int, str] = {}
        self.spawner = Spawner(
            self.box, user, self.sessions, self.spool,  # type: ignore[arg-type]
            lambda envelope: self.owners.get(envelope.payload["number"]),
        )  # fmt: skip

    def event(self, number: int) -> int:
        envelope = payload.Envelope("github", "github", "issues", "acme/widgets", "rosa", "",
                                    {"number": number, "issue": {"number": number}})  # fmt: skip
        (ident,) = self.spool.accept([arrival(str(number), envelope.line())])
        assert ident is not None
        with self.spool.transaction():
            self.spool.want(GROUP, ident, "github:acme/*", "note", f"event {number}")
        return ident

    def age(self, seconds: float) -> None:
        self.spool._db.execute("UPDATE pending SET at = at - ?", (seconds,))

    def round(self) -> float | None:
        return asyncio.run(self.spawner._round())

    def added(self) -> list[dict[str, Any]]:
        return [args for op, args in self.link.asked if op == "add"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def arrival(digest: str, line: bytes = b"{}\n", **more: Any) -> Arrival:
    fields: dict[str, Any] = dict.fromkeys(("event", "key", "sender", "delivery"), "x")
    fields |= {"source": "github", "size": 2, "replay_seconds": 3600.0}
    return Arrival(line=line, digest=digest.encode(), **(fields | more))


def test_a_burst_is_one_session_and_then_another(bench: Bench) -> None:
    bench.event(1)
    bench.round()
    for number in (2, 3, 4):
        bench.event(number)
    pause = bench.round()
    assert pause is not None
    assert 50 < pause <= spawner.WINDOW
    assert len(bench.added()) == 1
    bench.spawner._started[GROUP] -= spawner.WINDOW
    bench.age(60)
    bench.owners[3] = "work"  # somebody took it on meanwhile
    bench.round()
    _, second = bench.added()
    assert [f"event {number}" in second["prompt"] for number in (2, 3, 4)] == [True, False, True]
    assert bench.spool.wanted() == []


def test_events_that_somebody_took_on_start_nothing(bench: Bench) -> None:
    bench.event(1)
    bench.age(60)
    bench.owners[1] = "work"
    assert bench.round() is None
    assert bench.added() == []
    assert bench.spool.wanted() == []


def test_too_old_and_too_many(bench: Bench) -> None:
    bench.event(1)
    bench.age(spawner.PATIENCE + 1)
    for number in range(2, spawner.MAX_PENDING + 5):
        bench.event(number)
    bench.round()
    (asked,) = bench.added()
    assert "event 1\n" not in asked["prompt"]
    assert f"and {spawner.MAX_PENDING - 40} earlier events" in asked["prompt"]
    assert bench.spool.wanted() == []


def test_the_ceiling_holds_and_lets_go(bench: Bench) -> None:
    bench.living = ["hook-1", "hook-2"]
    bench.event(1)
    assert bench.round() == spawner.RETRY
    assert bench.added() == []
    bench.living.pop()
    bench.round()
    assert len(bench.added()) == 1


def test_an_unknown_outcome_is_asked_for_again_under_the_same_id(bench: Bench) -> None:
    bench.event(1)
    bench.link.error = InternalError("gone")
    with pytest.raises(InternalError):
        bench.round()
    bench.link.error = None
    bench.round()
    first, second = bench.added()
    assert first["id"] == second["id"]
    assert bench.spool.wanted() == []
    # It was started after all: the conflict is with itself.
    bench.event(2)
    bench.spawner._started.clear()
    bench.link.error = ConflictError("exists already")
    with pytest.raises(ConflictError):
        bench.round()
    assert bench.spool.wanted() == [GROUP]


def test_a_session_that_cannot_be_is_not_half_made(bench: Bench) -> None:
    bench.event(1)
    bench.link.error = UsageError("agent is not installed")
    with pytest.raises(UsageError):
        bench.round()
    assert bench.spool.spawns() == []
    assert list(bench.spawner._directory.glob("filter.*.json")) == []
    assert bench.spool.wanted() == [GROUP]


def test_sessions_that_are_over_are_removed(bench: Bench) -> None:
    now = time.time()
    views = {}
    for name, state, since, attached in (
        ("running", "running", now, 0), ("ended", "stopped", now - 4000, 0),
        ("just-ended", "stopped", now - 10, 0), ("abandoned", "waiting", now, 0),
        ("watched", "running", now, 1),
    ):  # fmt: skip
        views[name] = {"name": name, "id": name, "state": state, "since": since,
                       "attached": attached}  # fmt: skip
        bench.spool.starting(name, name, GROUP, 0)
        bench.spool.started(name)
    bench.spool._db.execute(
        "UPDATE spawns SET at = ? WHERE session IN ('abandoned', 'watched')", (now - 90000,)
    )
    bench.sessions.views = views
    views["mine"] = {"name": "hook-mine", "id": "mine", "state": "stopped", "since": 0,
                     "attached": 0}  # fmt: skip
    caretaker = Caretaker(bench.box, bench.sessions, bench.spool)  # type: ignore[arg-type]
    asyncio.run(caretaker.sweep(now))
    removed = [args["name"] for op, args in bench.link.asked if op == "rm"]
    assert sorted(removed) == ["abandoned", "ended"]


def test_old_deliveries_go_and_waiting_ones_stay(bench: Bench) -> None:
    spool = bench.spool
    for number in range(10):
        spool.accept([arrival(str(number), b"x" * 5000)])
    with spool.transaction():
        for number in range(1, 9):
            spool.routed(number, "done")
    assert spool.expire(time.time(), size=20_000) == 6
    assert [row.id for row in spool.log()] == [7, 8, 9, 10]
    assert spool.expire(time.time() + 8 * 86400) == 2
    assert [row.id for row in spool.log()] == [9, 10]
    # and what came before is still known as such
    assert spool.accept([arrival("0")]) == [None]


def test_repetitions_count_within_their_window(bench: Bench) -> None:
    assert bench.spool.accept([arrival("a"), arrival("a"), arrival("b")]) == [1, None, 2]
    assert bench.spool.accept([arrival("a", source="other")]) == [3]
    assert bench.spool.accept([arrival("a", replay_seconds=0.0)]) == [4]


# Published examples of signatures ------------------------------------------------

GITHUB = ("It's a Secret to Everybody", b"Hello, World!",
          "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")  # fmt: skip


def test_the_example_of_github() -> None:
    secret, body, signature = GITHUB
    request = verify.Request({"h": f"sha256={signature}"}, body, 0)
    assert verify.hmac_hex(request, [secret.encode()], "h")
    assert not verify.hmac_hex(request, [secret.encode() + b"x"], "h")


def test_the_example_of_slack() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {"h": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
               "x-slack-request-timestamp": "1531420618"}  # fmt: skip
    secret = [b"8f742231b10e8888abcd99yyyzzz85a5"]
    assert verify.slack(verify.Request(headers, body, 1531420618), secret, "h")
    assert not verify.slack(verify.Request(headers, body, 1531420618 + 301), secret, "h")


def test_the_example_of_standard_webhooks() -> None:
    headers = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
               "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}  # fmt: skip
    request = verify.Request(headers, b'{"test": 2432232314}', 1614265330)
    secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert verify.standard(request, [secret], "webhook-signature")
    assert not verify.standard(request, [b"whsec_AAAA"], "webhook-signature")


def test_the_example_of_svix() -> None:
    """From the manual of Svix, whose headers have a prefix of their own."""
    headers = {"svix-id": "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", "svix-timestamp": "1649367553",
               "svix-signature": "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="}  # fmt: skip
    body = b'{"email":"test@example.com","username":"test_user"}'
    request = verify.Request(headers, body, 1649367553)
    secret = b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    assert verify.standard(request, [secret], "svix-signature")
    assert not verify.standard(verify.Request(headers, body + b" ", 1649367553), [secret],
                               "svix-signature")  # fmt: skip


def test_what_the_library_of_stripe_signs() -> None:
    """Signed by `stripe.WebhookSignature` 16.1.0: Stripe publishes no signature with its secret."""
    body = b'{\n  "id": "evt_test_webhook",\n  "object": "event"\n}'
    signature = "4f1cd7feda9826e746b7d482c4badebb657398df1099e1046364f6196a230150"
    headers = {"h": f"t=1700000000,v1={signature}"}
    secret = [b"whsec_test_secret"]
    assert verify.stripe(verify.Request(headers, body, 1700000000), secret, "h")
    assert not verify.stripe(verify.Request(headers, body, 1700000301), secret, "h")
    moved = {"h": f"t=1700000001,v1={signature}"}
    assert not verify.stripe(verify.Request(moved, body, 1700000000), secret, "h")
    assert not verify.stripe(verify.Request({"h": f"t=1700000000,v0={signature}"}, body,
                                            1700000000), secret, "h")  # fmt: skip


def test_an_example_in_the_way_of_shopify() -> None:
    """From the manual of SQLPage, which takes Shopify's deliveries."""
    body = b'{"id":1234567890,"email":"customer@example.com","total_price":"123.45"}'
    headers = {"h": "QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw="}
    request = verify.Request(headers, body, 0)
    assert verify.hmac_base64(request, [b"test-webhook-secret"], "h")
    assert not verify.hmac_base64(request, [b"test-webhook-secre"], "h")


# Texts, topics, rules ---------------------------------------------------------------

unhurried = settings(suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


@unhurried
@given(st.text(st.characters()))
def test_harmless_text(text: str) -> None:
    shown = payload.harmless(text)
    shown.encode()
    assert not set(shown) & {"\n", "\r", "\x1b", "\x00", "⟪", "⟫", "\u2028", "\u202e"}


@unhurried
@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
))  # fmt: skip
def test_any_document_becomes_one_line(document: Any) -> None:
    body = json.dumps(document).encode()
    parsed = payload.parse(body, "")
    envelope = payload.envelope("s", parsed, github=False, key_path="a", sender_path="b",
                                event=None, delivery=None)  # fmt: skip
    line = envelope.line()
    assert line.count(b"\n") == 1
    assert payload.Envelope.parse(line) == envelope


WORDS = ["any", "all", "path", "in", "notIn", "contains", "notContains", "x"]
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)


@unhurried
@given(st.dictionaries(st.sampled_from(WORDS), VALUES), st.booleans())
def test_what_the_check_accepts_has_a_meaning(rule: Any, nest: bool) -> None:
    rule = {"any": [rule]} if nest else rule
    try:
        predicates.check(rule, "include")
    except UsageError:
        predicates.holds(rule, {"a": 1})
        return
    assert predicates.holds(rule, {"a": 1}) in (True, False)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
HOURS = ANYTHING | st.sampled_from([10**400, -1, 0, 1e308, 5e-324])
TIMES = ANYTHING | st.sampled_from(
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-02T03:04:05.678Z",
     "2026-01-02", "20260102T030405"]
)  # fmt: skip
ENTRIES = ANYTHING | st.fixed_dictionaries(
    {"topic": ANYTHING | st.sampled_from(["github:a/b", "github:a/*", "github:*", "x"])},
    optional={
        "note": ANYTHING, "ttlHours": HOURS, "renewOnEvent": ANYTHING, "ignoreSenders": ANYTHING,
        "include": ANYTHING, "exclude": ANYTHING, "when": ANYTHING, "drop": ANYTHING,
        "subscribedAt": TIMES, "lastActivityAt": TIMES, "more": ANYTHING,
    },
)  # fmt: skip


@unhurried
@example({"topics": [{"topic": "a:b", "subscribedAt": "0001-01-01T00:00:00+14:00"}]})
@example({"topics": [{"topic": "a:b", "lastActivityAt": "9999-12-31T23:59:59-14:00"}]})
@example({"topics": [{"topic": "a:b", "ttlHours": 10**400}], "ttlHours": 10**400})
@given(
    ANYTHING
    | st.fixed_dictionaries(
        {}, optional={"topics": ANYTHING | st.lists(ENTRIES, max_size=3), "repos": ANYTHING,
                      "enabled": ANYTHING, "ttlHours": HOURS, "//": ANYTHING},
    )
)  # fmt: skip
def test_whatever_a_file_holds(document: Any) -> None:
    """No content of a file of subscriptions stops deliveries, a listing or a change."""
    now = time.time()
    content = files.parse(json.dumps(document).encode())
    event = routing.Event("github", "push", "a/b", "rosa", {"event": "x"})
    decision = routing.decide(content, event, now, "boxbot")
    for entry in decision.accepted:
        routing.stamp(entry, now)
    routing.claims(content, event, now, None)
    for entry in content.entries:
        listing.row(entry, content, now)
    actions.prune(content, now)
    again = files.parse(files.serialize(content, now))
    assert [entry.topic for entry in again.entries] == [entry.topic for entry in content.entries]


def test_topics() -> None:
    assert topics.normal(" acme/widgets ") == "github:acme/widgets"
    assert topics.normal("acme/*") == "github:acme/*"
    for bad in ("", "acme", "*", "github:*", "a b:c", "github:", ":x", "git hub:a/b", "a:b c"):
        with pytest.raises(UsageError):
            topics.normal(bad)
    assert topics.matches("GitHub:ACME/*", "github", "acme/widgets")
    assert not topics.matches("github:acme/*", "github", "acme")
    assert not topics.matches("github:acme/*", "github", "")
    assert not topics.matches("github:ch_*", "github", "ch_1")


def test_files_keep_what_we_do_not_know(tmp_path: Path) -> None:
    path = tmp_path / "filter.x.json"
    raw = {"mine": 1, "topics": [{"topic": "a:b", "extra": {"x": 1}, "when": {"path": "p"}}, 3]}
    path.write_text(json.dumps(raw))
    actions.subscribe(tmp_path, "x", actions.Wish("a:c"), None)
    after = json.loads(path.read_bytes())
    assert after["mine"] == 1
    assert after["topics"][0]["extra"] == {"x": 1}
    assert after["topics"][0]["include"] == {"path": "p"}
    assert path.stat().st_mode & 0o077 in (0, 0o044)
    assert [row["topic"] for row in listing.one(tmp_path, "x", login=None)["topics"]] == [
        "a:b",
        "a:c",
    ]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    import threading

    def work(first: int) -> None:
        for number in range(first, 100, 4):
            actions.subscribe(tmp_path, "x", actions.Wish(f"a:{number}"), None)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(files.read(tmp_path / "filter.x.json").entries) == 100


def test_the_key_of_a_session_fits_a_socket() -> None:
    """The kernel allows 107 bytes of path, whatever the user is called."""
    home = "/home/" + "u" * 31
    key = place.key_of(str(uuid.uuid4()))
    path = f"{home}/.local/state/local-webhook/instances/{key}.4194304.sock"
    assert len(path) <= 107
    assert place.clean(key) == key


def test_a_removed_session_leaves_nothing(tmp_path: Path) -> None:
    ident = str(uuid.uuid4())
    directory = place.state_dir(tmp_path)
    actions.subscribe(directory, place.key_of(ident), actions.Wish("a:b"), None)
    actions.subscribe(directory, "dispatch", actions.Wish("a:b"), None)
    place.forget(tmp_path, ident)
    assert [path.name for path in directory.glob("filter*.json")] == ["filter.dispatch.json"]
