"""The vocabulary of the browser side: what a scenario asks the box over HTTPS.

The steps run inside the guest (`edge_client.py`), many in one go: a round trip into the guest
costs seconds under emulation.
"""

from __future__ import annotations

import base64
import contextlib
import json
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent_box_harness.box import Box

CLIENT, CROWD, LIAR = "edge_client.py", "edge_load.py", "lying_service.py"
FOLDER = "/opt/agent-box-stub"

PATIENCE = 20.0
"""Seconds, at native speed, for an answer: a service may have to start first."""

COOKIE = "__Host-agent_box"
_CADDYFILE = "/etc/caddy/Caddyfile"

PASSWORDS = {
    "alice": "tulip-Anchor-vexing-orbit-maple",
    "bob": "quartz Lemon-fjord:ribbon%slöth",
    "agent": "walrus-Kettle-mantis-pillow-ivy",
}
"""What the users of a test sign in with. Nobody else ever does."""


_equipped: weakref.WeakSet[Any] = weakref.WeakSet()
"""Machines that have the clients already."""


@dataclass(frozen=True)
class Answer:
    """What the edge answered."""

    status: int
    """0 where it hung up without an answer."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""
    body: str = ""

    def all(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for key, value in self.headers if key == name]

    def one(self, name: str) -> str:
        """Return the value of a header that occurs once; fails otherwise."""
        values = self.all(name)
        if len(values) != 1:
            raise RequestFailedError(f"{name} occurs {len(values)} times: {self.headers}")
        return values[0]


Headers = tuple[tuple[str, str], ...]


def with_cookie(*pairs: str) -> Headers:
    """Return the header that sends cookies."""
    return (("Cookie", "; ".join(pairs)),)


@dataclass(frozen=True)
class Ask:
    """One request. The target is sent as it is."""

    target: str
    method: str = "GET"
    headers: Headers = ()
    body: str = ""
    source: str = ""
    """Address to send from, if that matters."""

    def step(self) -> dict[str, Any]:
        """Return it as `edge_client` takes it."""
        return {
            "do": "ask",
            "target": self.target,
            "method": self.method,
            "headers": self.headers,
            "body": self.body,
            "source": self.source,
        }


def page_headers(edge: Edge, cookie: Headers, kind: str = "application/json") -> Headers:
    """Return the headers with which a page of the box calls its API."""
    return (
        *cookie,
        ("Origin", edge.origin),
        ("Sec-Fetch-Site", "same-origin"),
        ("Content-Type", kind),
    )


class Edge:
    """The box as seen over HTTPS, from the machine itself unless told otherwise."""

    def __init__(self, box: Box, *, address: str = "127.0.0.1", port: int = 443) -> None:
        self.box = box
        self.domain: str = box.document["web"]["domain"]
        self.origin: str = box.document["web"]["origins"][0]
        self._address, self._port = address, port
        if box.machine in _equipped:
            return
        for name in (CLIENT, CROWD, LIAR):
            content = Path(__file__).with_name(name).read_bytes()
            box.machine.write_file(f"{FOLDER}/{name}", content, mode=0o755)
        _equipped.add(box.machine)

    def steps(
        self,
        steps: list[dict[str, Any]],
        *,
        prefix: str = "",
        program: str = CLIENT,
        timeout: float = 60,
    ) -> list[dict[str, Any]]:
        """Carry out steps one after the other; `prefix` starts the client elsewhere.

        Some steps are those of a `program` of its own (`CROWD`).
        """
        patience = self.box.machine.scaled(PATIENCE)
        steps = [{"seconds": patience, **step} if step["do"] == "ask" else step for step in steps]
        job = {
            "domain": self.domain,
            "address": self._address,
            "port": self._port,
            "steps": steps,
        }
        command = f"{prefix} python3 {FOLDER}/{program}"
        done = self.box.run(command, timeout, stdin=json.dumps(job)).check(program)
        results: list[dict[str, Any]] = _unpacked(done.out)
        if len(results) != len(steps):
            what = f"{len(results)} results of {len(steps)} steps came out of the guest"
            raise RequestFailedError(f"{what}: its shell lost some of {len(done.out)} characters")
        return results

    def ask(self, requests: Iterable[Ask], *, bodies: bool = True, **options: Any) -> list[Answer]:
        """Send requests, each on a connection of its own; without `bodies` none come out."""
        steps = [{**request.step(), "bodies": bodies} for request in requests]
        return self.read(self.steps(steps, **options))

    def fetch(self, version: str, requests: Iterable[Ask], **options: Any) -> list[Answer]:
        """Send requests over HTTP/2 or 3, one after the other on one connection; no bodies come.

        `source` and `seconds` are those of a step; an answer over another version is a failure.
        """
        more = {key: options.pop(key) for key in {"source", "seconds"} & options.keys()}
        asks = [request.step() for request in requests]
        step = {"do": "fetch", "version": version, "asks": asks, **more}
        (result,) = self.steps([step], **options)
        found = result.get("answers", [])
        wrong = {each["version"] for each in found if each["status"]} - {version}
        if len(found) != len(asks) or wrong:
            raise RequestFailedError(
                f"{len(found)} answers to {len(asks)} requests, {wrong}: {result}"[:2000]
            )
        return self.read(found)

    @contextlib.contextmanager
    def as_with(self, settings: str) -> Iterator[None]:
        """Have the edge run with what other options of the module make (hosts/test.nix)."""
        with self.changed(lambda _: self.box.read(f"/etc/agent-box/edges/{settings}.Caddyfile")):
            yield

    @contextlib.contextmanager
    def changed(self, change: Callable[[str], str]) -> Iterator[None]:
        """Have the edge run with what `change` makes of its file."""
        kept = self.box.read(_CADDYFILE)
        self._load(change(kept))
        try:
            yield
        finally:
            self._load(kept)

    def _load(self, content: str) -> None:
        """Give the edge another file; on NixOS it is a link to what nobody can change."""
        self.box.succeed(f"rm -f {_CADDYFILE}")
        self.box.machine.write_file(_CADDYFILE, content.encode(), mode=0o444)
        self.box.succeed("systemctl reload caddy.service")

    @staticmethod
    def read(found: list[dict[str, Any]]) -> list[Answer]:
        """Return the answers among the results of steps."""
        return [
            Answer(
                result["status"],
                tuple((name, value) for name, value in result.get("headers", [])),
                result.get("body", result.get("error", "")),
            )
            for result in found
        ]

    def set_password(self, user: str) -> None:
        """Give a user the password of the tests, on behalf of root."""
        command = f"agent-box-gate set-password {user}"
        self.box.run(command, stdin=PASSWORDS[user] + "\n").check(command)

    def sign_in(self, user: str, password: str | None = None) -> str:
        """Sign in the way the form does and return the `Cookie` header that a browser sends."""
        (answer,) = self.ask([self.form(user, password or PASSWORDS[user])])
        if answer.status != 303:
            raise RequestFailedError(f"{user} cannot sign in: {answer}")
        return answer.one("set-cookie").partition(";")[0]

    def basic(self, user: str, password: str) -> Headers:
        """Return the header with which programs sign in."""
        text = base64.b64encode(f"{user}:{password}".encode()).decode()
        return (("Authorization", f"Basic {text}"),)

    def form(self, user: str, password: str) -> Ask:
        """Return what the login form sends."""
        from urllib.parse import urlencode

        headers = (
            ("Origin", self.origin),
            ("Sec-Fetch-Site", "same-origin"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        )
        body = urlencode({"user": user, "password": password})
        return Ask("/login", "POST", headers, body)


def _unpacked(text: str) -> Any:
    """Return the results that a client in the guest delivered."""
    if not text.startswith("["):
        text = zlib.decompress(base64.b64decode(text)).decode()
    return json.loads(text)
