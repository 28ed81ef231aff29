"""What a sender is answered, whatever it sends."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import hmac
import json
import socket
import threading
import time
from typing import Any
from urllib.parse import urlencode

import pytest
from webhook_stand import SECRET, push, sign, wait_for

from agent_box.subscriptions.place import DISPATCH

MIB = 1 << 20


def test_statuses(stand: Any) -> None:
    """The contract of senders, and nothing about who listens."""
    body = json.dumps(push()).encode()
    assert stand.send(push()) == (200, "ok")
    assert stand.send(push(2), path="/") == (200, "ok")
    assert stand.send(push(3), path="/git%68ub/?x=1") == (200, "ok")
    assert stand.send(push(4), secret="wrong") == (401, "invalid signature")
    assert stand.request(body) == (401, "invalid signature")
    assert stand.send(push(), path="/GitHub") == (404, "unknown source")
    assert stand.request(body, path="/nothing") == (404, "unknown source")
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert stand.request(b"", method=method) == (405, "method not allowed")
    nested = b"[" * 100_000 + b"]" * 100_000
    for odd in (b"", b"{", b"\xef\xbb\xbf{}", b'{"a": "\xe9"}', b"a=b", b"[" * 100_000, nested,
                b"\0", b'{"a":"\0"}', b"{}\0",
                b'{"a":' * 100_000 + b"1" + b"}" * 100_000):  # fmt: skip
        assert stand.send(odd) == (400, "bad json"), odd[:20]
    for fine in (b"[]", b"1", b'"x"', b"null", b'{"a": NaN, "b": Infinity}', b'{"a":1,"a":2}',
                 b'\r\n{\r\n"a":\r\n1}\r\n', '{"a":"\U0001f600"}'.encode()):  # fmt: skip
        assert stand.send(fine) == (200, "ok"), fine


def test_no_source(make: Any) -> None:
    """Without a source, or one without a secret, nothing gets in."""
    stand = make()
    assert stand.send(push()) == (404, "unknown source")
    (stand.directory / "sources.json").write_text("{ not json")
    assert stand.send(push()) == (404, "unknown source")
    stand.directory.joinpath("sources.json").write_text('{"sources": {"github": {}, "x": 1}}')
    assert stand.send(push(), secret="") == (401, "invalid signature")
    assert stand.send(push(), path="/x") == (404, "unknown source")
    assert stand.deliveries() == []


@pytest.mark.parametrize(
    "signature",
    ["", "sha256=", "sha1=" + "0" * 40, "sha256=" + "0" * 63, "sha256=" + "0" * 65, "x" * 64,
     "sha256=sha256=" + "0" * 64, "0" * 64 + ", " + "0" * 64, "\xe9" * 64, "sha256:" + "0" * 64],
)  # fmt: skip
def test_signatures_that_are_none(stand: Any, signature: str) -> None:
    headers = {"X-Hub-Signature-256": signature}
    assert stand.request(b"{}", headers) == (401, "invalid signature")


def test_spellings_of_a_signature(stand: Any) -> None:
    """Upper case and plain hex count, a second header does not."""
    for number, change in enumerate((str.upper, lambda text: text[7:], lambda text: f"  {text} ")):
        body = json.dumps(push(number)).encode()
        signature = sign(body)
        headers = {"X-Hub-Signature-256": change(signature)}
        assert stand.request(body, headers)[0] == 200
    body = json.dumps(push(99)).encode()
    twice = (
        f"POST /github HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        f"X-Hub-Signature-256: sha256={'0' * 64}\r\nX-Hub-Signature-256: {sign(body)}\r\n\r\n"
    )
    assert b" 401 " in stand.raw(twice.encode() + body).partition(b"\r\n")[0]


def test_odd_texts_reach_a_plugin(stand: Any) -> None:
    """Whatever text is in it, a plugin gets one line of JSON that means the same, made harmless."""
    peer = stand.peer("one")
    odd = (
        b'{"repository":{"full_name":"acme/widgets"},"a":"\\ud800x","b":"\xf0\x9f\x98\x80","c":NaN,'
        b'"d":"line\\r\\nend \\u2028 \\u27eb\\u001b[2J\\u0007","\\ud83d":[-1e999],"e":"\\u0000"}'
    )
    assert stand.send(odd)[0] == 200
    (event,) = wait_for(peer.events)
    payload = event["payload"]
    assert payload["a"] == "\ufffdx"
    assert payload["b"] == "😀"
    assert payload["c"] is None
    assert payload["d"] == "line ⏎ end  ⏎  ⟩[2J".replace("⟩", "⟩")
    assert payload["e"] == ""
    assert payload["\ufffd"] == [None]


def test_form_of_github(stand: Any) -> None:
    peer = stand.peer("one")
    form = urlencode({"payload": json.dumps(push())}).encode()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert stand.send(form, headers=kind) == (200, "ok")
    assert wait_for(peer.events)[0]["key"] == "acme/widgets"
    for bad in (b"payload=%ff", b"payload=1&payload=2", b"x=1", b"payload=", b"\xff"):
        assert stand.send(bad, headers=kind) == (400, "bad json"), bad


def test_gzip_is_no_json(stand: Any) -> None:
    packed = gzip.compress(b"{}")
    assert stand.send(packed, headers={"Content-Encoding": "gzip"}) == (400, "bad json")


def test_size(stand: Any) -> None:
    """GitHub's largest deliveries fit, larger ones are refused, and memory stays bounded."""
    peer = stand.peer("one")
    text = b'{"repository":{"full_name":"acme/widgets"},"a":"' + b"x" * int(25.9 * MIB) + b'"}'
    assert stand.send(text) == (200, "ok")
    (event,) = wait_for(peer.events, 30)
    assert len(event["payload"]["a"]) == int(25.9 * MIB)
    text = b'{"a":"' + b"x" * int(26.1 * MIB) + b'"}'
    assert stand.send(text)[0] == 413
    chunked = b"POST /github HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += (b"%x\r\n" % MIB + b"x" * MIB + b"\r\n") * 27 + b"0\r\n\r\n"
    assert b" 413 " in stand.raw(chunked).partition(b"\r\n")[0]
    assert stand.send(b"[" + b"[]," * 2_000_000 + b"1]")[0] == 413
    assert stand.send(push())[0] == 200
    assert peak(stand) < 400 * MIB


def peak(stand: Any) -> int:
    from pathlib import Path

    status = Path(f"/proc/{stand.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) * 1024


FRAMINGS = (
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2;ext=\x00\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"Content-Length: -1\r\n\r\n{}",
    b"Content-Length: x\r\n\r\n{}",
    b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    b"Content-Length: 0x2\r\n\r\n{}",
    b"Transfer-Encoding: gzip\r\n\r\n{}",
    b"Transfer-Encoding: chunked, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: \x0bchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Content-Length : 2\r\n\r\n{}",
    b"X: \x00\r\n\r\n",
    b"X" * 70_000 + b": 1\r\n\r\n",
    b"X: " + b"y" * 200_000 + b"\r\n\r\n",
    b"A: 1\r\n" * 20_000 + b"\r\n",
    b"Transfer-Encoding: chunked\r\nTrailer: X-Hub-Signature-256\r\n\r\n2\r\n{}\r\n0\r\n"
    b"X-Hub-Signature-256: " + sign(b"{}").encode() + b"\r\n\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}",
    b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
)


def test_framing(stand: Any) -> None:
    """No way to frame a body gets past the signature or brings the receiver down."""
    pid = stand.process.pid
    for framing in FRAMINGS:
        first = b"POST /github HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        answer = stand.raw(first + framing, timeout=2)
        codes = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert {*codes} <= {b"100", b"400", b"401", b"413", b"431"}, framing[:60]
    for line in (b"post /github HTTP/1.1", b"POST /github HTTP/9.9", b"POST", b"\x00\x01", b"\r\n",
                 b"POST http://[ HTTP/1.1", b"POST /\xff HTTP/1.1",
                 b"POST /%00%ff HTTP/1.1"):  # fmt: skip
        answer = stand.raw(line + b"\r\nHost: x\r\nConnection: close\r\n\r\n", timeout=2)
        assert answer[9:12] in (b"", b"400", b"401", b"404"), line
    assert stand.send(push())[0] == 200
    assert stand.process.poll() is None
    assert stand.process.pid == pid


def test_good_chunks(stand: Any) -> None:
    body = json.dumps(push()).encode()
    chunks = b"".join(b"%x;a=b\r\n%c\r\n" % (1, byte) for byte in body)
    head = (
        "POST /github HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        f"X-Hub-Signature-256: {sign(body)}\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
    )
    answer = stand.raw(head.encode() + chunks + b"0\r\nX-Trailer: 1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_two_requests_on_one_connection(stand: Any) -> None:
    # Each has a turn of its own: who connects is told so with the first answer.
    parts = b""
    for number in range(2):
        body = json.dumps(push(number)).encode()
        parts += (
            f"POST /github HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            f"X-Hub-Signature-256: {sign(body)}\r\n"
            f"{'Connection: close' if number else 'X: y'}\r\n\r\n"
        ).encode() + body
    answer = stand.raw(parts)
    assert answer.count(b"HTTP/1.1 200 ") == 1
    assert b"connection: close" in answer


def test_slow_senders(stand: Any) -> None:
    """500 connections that hardly send anything keep no real sender out."""
    links = []
    for number in range(500):
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(stand.socket_path))
        head = b"POST /github HTTP/1.1\r\nHost: x\r\n"
        link.sendall(head if number % 2 else head + b"Content-Length: 20000000\r\n\r\n{")
        links.append(link)
    try:
        began = time.monotonic()
        for number in range(20):
            assert stand.send(push(number)) == (200, "ok")
        assert time.monotonic() - began < 5
        assert peak(stand) < 150 * MIB
        # and they are not kept for ever
        links[0].settimeout(40)
        links[1].settimeout(40)
        assert b" 408 " in links[0].recv(100)
        assert links[1].recv(100) == b""
    finally:
        for link in links:
            link.close()


def test_large_bodies_wait_for_memory(stand: Any) -> None:
    """Many large bodies at once are refused in part; small ones still get in."""
    links, answers = [], []
    for _ in range(12):
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(stand.socket_path))
        links.append(link)

    def fill(link: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link.sendall(b"POST /github HTTP/1.1\r\nHost: x\r\nContent-Length: 27000000\r\n\r\n")
            for _ in range(26):
                link.sendall(b"x" * 1_000_000)

    threads = [threading.Thread(target=fill, args=(link,)) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert stand.send(push()) == (200, "ok")
    assert peak(stand) < 300 * MIB
    for link in links:
        with contextlib.suppress(OSError):
            link.sendall(b"x" * 1_000_000)
        link.settimeout(30)
        with contextlib.suppress(OSError):
            answers.append(link.recv(20)[9:12])
        link.close()
    assert b"503" in answers
    assert b"401" in answers


def test_replays(stand: Any) -> None:
    """The same again is acknowledged, delivered once and starts at most one session, under
    whatever id, also at once.
    """
    peer = stand.peer("one")
    stand.subscribe(DISPATCH, "acme/*")
    assert stand.send(push())[0] == 200
    assert stand.send(push())[0] == 200
    results: list[tuple[int, str]] = []
    threads = [
        threading.Thread(target=lambda: results.append(stand.send(push(2)))) for _ in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(200, "ok")] * 50
    stand.kill(15)
    stand.start()
    assert stand.send(push())[0] == 200
    assert stand.send(push(3))[0] == 200
    wait_for(lambda: len(peer.events()) >= 3)
    assert [event["payload"]["number"] for event in peer.events()] == [1, 2, 3]
    assert [each.copies for each in stand.deliveries()] == [2, 49, 0]
    stand.settled()
    (asked,) = stand.supervisor.did("add")
    assert asked["prompt"].count("[UNTRUSTED") == 1
    assert stand.status()["waitingForSession"] == 2


def test_own_programs_may_repeat_themselves(stand: Any) -> None:
    """Without the edge in between it is the user's own program: its id tells copies apart."""
    body = json.dumps({"level": 90}).encode()
    stand.source("disk", keyPath="level")
    for ident in ("a", "b", "b"):
        headers = {"X-Webhook-Delivery": ident, "X-Hub-Signature-256": sign(body)}
        assert stand.request(body, {**headers, "X-Forwarded-For": None}, "/disk")[0] == 200  # type: ignore[dict-item]
    for ident in ("c", "d"):
        headers = {"X-Webhook-Delivery": ident, "X-Hub-Signature-256": sign(body)}
        assert stand.request(body, headers, "/disk")[0] == 200
    assert [each.delivery for each in stand.deliveries()] == ["a", "b", "c"]


def test_local_addresses_are_for_the_user_alone(stand: Any) -> None:
    """What the edge hands over never reaches them."""
    assert stand.status() is not None
    for path in ("/.local/status", "//.local/status", "/%2elocal/status"):
        assert stand.request(b"{}", path=path) == (404, "unknown source")
    assert stand.send(push())[0] == 200
    assert stand.request(b'{"id": 1}', path="/.local/redeliver")[0] == 404
    assert len(stand.deliveries()) == 1


def mac(body: bytes) -> bytes:
    return hmac.new(SECRET.encode(), body, hashlib.sha256).digest()


def test_schemes(stand: Any) -> None:
    """Each documented scheme, right, wrong, and too old."""
    body, now = b'{"type":"x"}', int(time.time())
    key = base64.b64encode(SECRET.encode()).decode()
    stand.source("stripe", scheme="stripe")
    stand.source("slack", scheme="slack")
    stand.source(
        "svix", f"whsec_{key}", scheme="standard-webhooks", signatureHeader="svix-signature"
    )
    stand.source("gitlab", scheme="token")
    stand.source("shopify", scheme="hmac-sha256-base64")
    stand.source("odd", scheme="md5")

    def stripe(moment: int, sent: bytes = body) -> dict[str, str]:
        good = mac(f"{moment}.".encode() + sent).hex()
        return {"Stripe-Signature": f"t={moment},v0=00,v1={'0' * 64},v1={good}"}

    def slack(moment: int) -> dict[str, str]:
        good = mac(f"v0:{moment}:".encode() + body).hex()
        return {"X-Slack-Signature": f"v0={good}", "X-Slack-Request-Timestamp": str(moment)}

    def svix(moment: int) -> dict[str, str]:
        good = base64.b64encode(mac(f"msg_1.{moment}.".encode() + body)).decode()
        return {"svix-id": "msg_1", "svix-timestamp": str(moment),
                "svix-signature": f"v1a,AAAA v1,{good}"}  # fmt: skip

    for name, make in (("stripe", stripe), ("slack", slack), ("svix", svix)):
        assert stand.request(body, make(now), f"/{name}") == (200, "ok"), name
        assert stand.request(body, make(now - 400), f"/{name}")[0] == 401, name
        assert stand.request(body, make(now + 400), f"/{name}")[0] == 401, name
        assert stand.request(body + b" ", make(now), f"/{name}")[0] == 401, name
        broken = {key: value.replace(str(now), "x") for key, value in make(now).items()}
        assert stand.request(body, broken, f"/{name}")[0] == 401, name
    assert stand.request(body, stripe(now) | {"Stripe-Signature": f"t={now}"}, "/stripe")[0] == 401
    assert stand.request(body, {"X-Gitlab-Token": SECRET}, "/gitlab")[0] == 200
    assert stand.request(body, {"X-Gitlab-Token": SECRET + "x"}, "/gitlab")[0] == 401
    assert stand.request(body, {}, "/gitlab")[0] == 401
    good = base64.b64encode(mac(body)).decode()
    assert stand.request(body, {"X-Shopify-Hmac-Sha256": good}, "/shopify")[0] == 200
    assert stand.request(body, {"X-Shopify-Hmac-Sha256": good[:-2] + "A="}, "/shopify")[0] == 401
    assert stand.request(body, {"X-Shopify-Hmac-Sha256": "é" * 44}, "/shopify")[0] == 401
    assert stand.request(body, {"X-Hub-Signature-256": sign(body)}, "/odd")[0] == 401
    # a signature with another time is another delivery, the same one is not
    assert stand.request(body, stripe(now - 1), "/stripe")[0] == 200
    assert stand.request(body, stripe(now - 1), "/stripe")[0] == 200
    assert sum(each.source == "stripe" for each in stand.deliveries()) == 2


def test_several_secrets(stand: Any) -> None:
    """While a secret is changed, the old one counts, too."""
    (stand.directory / "new.secret").write_text("n" * 32)
    (stand.directory / "old.secret").write_text("o" * 32 + "\n")
    raw = {"sources": {"github": {"secretFile": "new.secret",
                                  "secretFiles": ["old.secret", "missing", "\0", 3]}}}  # fmt: skip
    (stand.directory / "sources.json").write_text(json.dumps(raw))
    assert stand.send(push(1), secret="n" * 32)[0] == 200
    assert stand.send(push(2), secret="o" * 32)[0] == 200
    assert stand.send(push(3))[0] == 401
