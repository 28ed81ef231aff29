"""Requests made at random, signed and not, against a receiver with subscriptions of every kind.

Runs for a few seconds; AGENT_BOX_FUZZ_SECONDS makes that longer, AGENT_BOX_FUZZ_SEED another run.
Whatever comes in, the answer is one of the contract, nothing is logged as an accident, plugins get
lines of JSON only, memory stays bounded, and a real delivery still arrives.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

from webhook_stand import issue, key_of, push, run, sign, wait_for

from agent_box.subscriptions.place import DISPATCH

SECONDS = float(os.environ.get("AGENT_BOX_FUZZ_SECONDS", "8"))
STATUSES = {0, 100, 200, 400, 401, 404, 405, 408, 413, 431, 503}

TOKENS = (
    b"", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\\ud800", b"\\udc00\\ud800", b"\xed\xa0\x80", b"NaN",
    b"-Infinity", b"1e9999", b"9" * 5000, b"0" * 40, b"[" * 600, b'{"a":' * 600, b"\r\n",
    b"\\u0000",
    b"\xe2\x9f\xab", b"\xe2\x80\xa8", b"\xf0\x9f\x98\x80", b'"', b"\\", b"{", b"}", b"[", b"]",
    b":", b",", b"null", b"true", b"{}", b"[]", b'""', b"acme/widgets", b"repository", b"full_name",
    b"__proto__", b"%00", b"payload=", b"&", b"+", b"A" * 3000,
)  # fmt: skip
NAMES = (
    "Content-Length", "Transfer-Encoding", "X-Hub-Signature-256", "X-GitHub-Event", "Content-Type",
    "X-GitHub-Delivery", "Connection", "Expect", "Upgrade", "Content-Encoding", "Host", "Trailer",
)  # fmt: skip
VALUES = (
    "", "0", "-1", "1", "99999999999999999999", "chunked", "gzip, chunked", "identity", "close",
    "100-continue", "websocket", "h2c", "application/x-www-form-urlencoded", "text/plain",
    "sha256=", "sha1=00", "\xe9" * 40, "x" * 9000, "issues", "workflow_run", "check_run", "ping",
    "push", "pull_request", "\x0b", "a\tb", "=?utf-8?", "%0d%0a", "keep-alive", "utf-16",
)  # fmt: skip


def seeds() -> list[bytes]:
    documents: list[Any] = [
        push(), issue(), run(), run(None), {}, [], 1, "x", None,
        {"action": "completed", "check_run": {"name": "l", "conclusion": "failure",
         "check_suite": {"head_branch": "b"}}, "repository": {"full_name": "acme/widgets"}},
        {"zen": "z", "hook": {"events": ["push"]}, "repository": {"full_name": "acme/widgets"}},
        {"action": "created", "comment": {"body": "@box"}, "issue": {"number": 1},
         "repository": {"full_name": "acme/widgets"}, "sender": {"login": "rosa"}},
        {"repository": "x", "sender": [], "issue": 3, "workflow_run": [], "commits": {}},
        {"repository": {"full_name": {"a": [1, None, True]}}, "sender": {"login": 1.0}},
    ]  # fmt: skip
    return [json.dumps(document).encode() for document in documents]


def mutate(dice: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    for _ in range(dice.choice((0, 0, 1, 1, 2, 4, 16))):
        at = dice.randrange(len(data) + 1)
        to = min(len(data), at + dice.choice((0, 1, 2, 8, 64)))
        kind = dice.random()
        if kind < 0.5:
            data = data[:at] + dice.choice(TOKENS) + data[to:]
        elif kind < 0.7:
            data = data[:at] + bytes(dice.randrange(256) for _ in range(to - at)) + data[to:]
        elif kind < 0.85:
            other = dice.choice(pool)
            data = data[:at] + other[dice.randrange(len(other) + 1) :]
        else:
            data = data[:to] + data[at:]
    return data[:200_000]


def request(dice: random.Random, body: bytes) -> bytes:
    headers = [("Host", "x"), ("Connection", "close"), ("X-GitHub-Event", dice.choice(VALUES))]
    if dice.random() < 0.8:
        headers.append(("X-Hub-Signature-256", sign(body)))
    if dice.random() < 0.7:
        headers.append(("X-Forwarded-For", "192.0.2.1"))
    chunked = dice.random() < 0.2
    wire = body
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
        wire = b""
        rest = body
        while rest:
            size = dice.randrange(1, len(rest) + 1)
            wire += b"%x\r\n" % size + rest[:size] + b"\r\n"
            rest = rest[size:]
        wire += b"0\r\n\r\n"
    else:
        headers.append(("Content-Length", str(len(body))))
    for _ in range(dice.choice((0, 0, 0, 1, 2))):
        headers.insert(dice.randrange(len(headers) + 1), (dice.choice(NAMES), dice.choice(VALUES)))
    path = dice.choice(("/github", "/github", "/", "/x", "/%67ithub", "/.local/status", "//", "*",
                        "/github?" + "a" * 99, "/\xe9", "http://x/github"))  # fmt: skip
    method = dice.choice(("POST",) * 12 + ("GET", "PUT", "post", "HEAD", "\xff"))
    lines = [f"{method} {path} HTTP/1.{dice.choice('1110')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    if dice.random() < 0.05:
        head = mutate(dice, head, [head])
    if dice.random() < 0.05:
        wire = mutate(dice, wire, [wire])
    return head + wire


def test_random_requests(stand: Any) -> None:
    dice = random.Random(os.environ.get("AGENT_BOX_FUZZ_SEED", "1"))
    stand.supervisor.refuse["add"] = ("internal", "not now")
    peer = stand.peer("one")
    work = stand.supervisor.add("work")
    rule = {"any": [{"path": "action", "in": ["opened"]}, {"path": "comment.body",
                                                           "contains": ["@"]}]}  # fmt: skip
    stand.subscribe(key_of(work), "acme/widgets", note="n", exclude={"path": "x", "in": [1]})
    stand.subscribe(DISPATCH, "acme/*", include=rule)
    stand.subscribe(DISPATCH, "acme/widgets")
    pool = seeds()
    counts: dict[int, int] = {}
    end = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < end:
        number += 1
        body = mutate(dice, dice.choice(pool), pool)
        data = request(dice, body)
        answer = stand.raw(data, timeout=0.4)
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.") else 0
        counts[status] = counts.get(status, 0) + 1
        assert status in STATUSES, data
        if number % 500 == 0:
            assert stand.process.poll() is None
            assert "Traceback" not in stand.log, data
    assert counts.get(200, 0) > number / 20, counts
    stand.settled()
    assert "Traceback" not in stand.log
    assert "cannot be routed" not in stand.log
    before = len(peer.lines)
    for line in peer.lines:
        json.loads(line)["payload"]
        line.decode()
    assert stand.send(push(10**6)) == (200, "ok")
    wait_for(lambda: len(peer.lines) > before)
    status_text = Path(f"/proc/{stand.process.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status_text.splitlines() if "VmHWM" in line)
    print(f"{number} requests, answers {dict(sorted(counts.items()))}, peak {peak // 1024} MiB")
    assert peak < 150 * 1024
