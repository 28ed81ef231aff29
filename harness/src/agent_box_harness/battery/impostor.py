"""A user's own server in the place of a service of the box that runs as that user.

A process of one's own account can always be taken over, so what such a service says is what the
user says: the edge must not take its word for anything.
"""

from __future__ import annotations

import base64
import contextlib
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_box_harness.battery import inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent_box_harness.battery.sockets import Socket
    from agent_box_harness.box import Box
    from agent_box_harness.edge import Answer

MARK = "battery-was-here"
"""In each value that a hostile answer carries."""

EVIL = "evil.test"

HOSTILE_HEADERS = {
    "Set-Cookie": f"__Host-agent_box={MARK}; Path=/; Secure",
    "Set-Cookie2": f"x={MARK}",
    "Clear-Site-Data": f'"cookies", "storage", "{MARK}"',
    "Service-Worker-Allowed": f"/?{MARK}",
    "Refresh": f"0; url=https://{EVIL}/{MARK}",
    "Link": f"<https://{EVIL}/{MARK}>; rel=preload; as=script",
    "Content-Security-Policy": f"default-src * 'unsafe-inline'; report-uri https://{EVIL}/{MARK}",
    "Content-Security-Policy-Report-Only": f"default-src *; report-uri https://{EVIL}/{MARK}",
    "X-Frame-Options": f"ALLOWALL {MARK}",
    "X-Content-Type-Options": MARK,
    "Permissions-Policy": f'camera=*, microphone=*, {MARK}=("https://{EVIL}")',
    "Access-Control-Allow-Origin": f"https://{EVIL}/{MARK}",
    "Access-Control-Allow-Credentials": MARK,
    "Cross-Origin-Opener-Policy": f"unsafe-none {MARK}",
    "Cross-Origin-Resource-Policy": f"cross-origin {MARK}",
    "Cross-Origin-Embedder-Policy": f"unsafe-none {MARK}",
    "Strict-Transport-Security": f"max-age=0; {MARK}",
    "Alt-Svc": f'h3="{EVIL}:443"; {MARK}',
    "WWW-Authenticate": f'Basic realm="{MARK}"',
    "Proxy-Authenticate": f'Basic realm="{MARK}"',
    "Report-To": f'{{"group":"{MARK}","max_age":9,"endpoints":[{{"url":"https://{EVIL}"}}]}}',
    "Reporting-Endpoints": f'{MARK}="https://{EVIL}/"',
    "NEL": f'{{"report_to":"{MARK}","max_age":9}}',
    "Accept-CH": MARK,
    "Critical-CH": MARK,
    "SourceMap": f"https://{EVIL}/{MARK}",
    "Speculation-Rules": f'"https://{EVIL}/{MARK}"',
    "Use-As-Dictionary": f'match="/*{MARK}"',
    "Origin-Trial": MARK,
    "Document-Policy": MARK,
    "Set-Login": f"logged-out {MARK}",
    "Activate-Storage-Access": f"load {MARK}",
    "Timing-Allow-Origin": f"* {MARK}",
    "Public-Key-Pins": MARK,
    "X-DNS-Prefetch-Control": f"on {MARK}",
    "X-Agent-Box-User": f"root {MARK}",
    "X-Accel-Redirect": f"/{MARK}",
    "X-Sendfile": f"/{MARK}",
    "Referrer-Policy": f"unsafe-url {MARK}",
    "Server": MARK,
    "Via": MARK,
    "X-Unknown-Tomorrow": MARK,
}
"""What no user's process may say on the origin that all share."""

_NAMES = frozenset({*HOSTILE_HEADERS, *map(str.lower, HOSTILE_HEADERS)})
_SCRIPT = f"<script>{MARK}</script>"
BODIES = {
    "html": "text/html; charset=utf-8",
    "xhtml": "application/xhtml+xml",
    "xml": "text/xml",
    "svg": "image/svg+xml",
    "javascript": "text/javascript",
    "old-javascript": "application/x-javascript",
    "wasm": "application/wasm",
    "mixed": "multipart/x-mixed-replace; boundary=x",
    "none": "",
    "odd": "text/html/plain",
    "two": "text/plain\r\nContent-Type: text/html",
}
"""What a body of markup and script is declared as."""

ACTIVE = ("html", "xml", "svg", "javascript", "ecmascript", "wasm", "mixed-replace", "xsl")
"""Parts of the types that a browser executes, or shows as a page."""


@dataclass(frozen=True)
class Reply:
    """One answer of an impostor, to the byte."""

    name: str
    raw: bytes


def _answer(status: str, headers: str, body: str = _SCRIPT) -> bytes:
    size = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return f"HTTP/1.1 {status}\r\n{headers}{size}{body}".encode()


def _replies() -> Iterator[Reply]:
    headers = "".join(f"{name}: {value}\r\n" for name, value in HOSTILE_HEADERS.items())
    for name, kind in BODIES.items():
        yield Reply(f"body-{name}", _answer("200 OK", f"Content-Type: {kind}\r\n" if kind else ""))
    yield Reply("headers", _answer("200 OK", f"Content-Type: text/plain\r\n{headers}"))
    lower = headers.lower()
    yield Reply("lower-case", _answer("200 OK", f"content-type: text/html\r\n{lower}"))
    for status in ("206 Partial Content", "304 Not Modified", "401 Unauthorized", "404 Not Found",
                   "407 Proxy Authentication Required", "500 Internal Server Error"):  # fmt: skip
        body = "" if status.startswith("304") else _SCRIPT
        kind = "Content-Type: text/html\r\n"
        yield Reply(f"status-{status[:3]}", _answer(status, kind + headers, body))
    early = f"HTTP/1.1 103 Early Hints\r\n{headers}\r\n".encode()
    yield Reply("early-hints", early + _answer("200 OK", "Content-Type: text/plain\r\n"))
    away = f"Location: https://{EVIL}/{MARK}\r\n"
    yield Reply("redirect", _answer("302 Found", away))
    named = ", ".join(HOSTILE_HEADERS)
    chunk = f"{len(_SCRIPT):x}\r\n{_SCRIPT}\r\n0\r\n"
    # What comes behind a body no browser acts upon, so that it may come through; the body may not.
    trailers = f"Content-Type: text/plain\r\nTrailer: {named}\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield Reply("trailers", f"HTTP/1.1 200 OK\r\n{trailers}{chunk}{headers}\r\n".encode())


REPLIES = tuple(_replies())


@dataclass(frozen=True)
class Harm:
    """Something of a hostile answer that reached a browser."""

    kind: str
    what: str


def harm(answer: Answer) -> list[Harm]:
    """Say what of a hostile answer reached a browser on the origin of the box."""
    if 100 <= answer.status < 200:
        found = [Harm("in an interim answer", name) for name, _ in _marked(answer.headers)]
        return found + harm(_final(answer))
    found = [Harm("header", f"{name}: {value[:60]}") for name, value in _marked(answer.headers)]
    policies = answer.all("content-security-policy")
    if not policies:
        found.append(Harm("missing", "content-security-policy"))
    if answer.all("x-content-type-options") != ["nosniff"]:
        found.append(Harm("missing", "x-content-type-options: nosniff"))
    kinds = answer.all("content-type")
    active = any(word in kind.lower() for kind in kinds for word in ACTIVE)
    if _SCRIPT in answer.body and (active or len(kinds) != 1):
        sandboxed = any("sandbox" in policy.replace(";", " ").split() for policy in policies)
        if not sandboxed:
            found.append(Harm("body without sandbox", " and ".join(kinds) or "of no type"))
    return found


def _marked(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if MARK in value or EVIL in value]


def _final(answer: Answer) -> Answer:
    """Return the answer that follows an interim one."""
    head, _, body = answer.body.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
    return replace(answer, status=int(first.split()[1]), headers=headers, body=body)


@contextlib.contextmanager
def in_place_of(box: Box, socket: Socket, user: str) -> Iterator[None]:
    """Have an impostor of a user's answer at a socket instead of the service, for a while."""
    units = [unit for unit in (socket.socket_unit, socket.service) if unit]
    names = " ".join(map(shlex.quote, units))
    answers = {reply.name: base64.b64encode(reply.raw).decode() for reply in REPLIES}
    box.succeed(f"systemctl stop {names}")
    job: Mapping[str, object] = {"path": socket.path, "user": user, "answers": answers}
    pid = inside.run(box, "impostor", job)["pid"]
    try:
        yield
    finally:
        inside.end(box, pid)
        box.succeed(f"rm -f {shlex.quote(socket.path)}; systemctl start {names}")
