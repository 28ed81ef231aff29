"""What the edge really does with which address, as its running configuration says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness.battery.samples import samples
from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

_UNIX = "unix/"


@dataclass(frozen=True)
class Way:
    """A way from an address to somebody behind the edge."""

    hosts: tuple[str, ...]
    """Names that it is for; empty for any."""
    patterns: tuple[str, ...]
    """Expressions that the address fits, outermost first."""
    dial: str
    """Path of the socket, or `host:port`; empty where the edge answers by itself."""

    @property
    def socket(self) -> str:
        """Path of the socket that the edge dials; empty if it is none."""
        return self.dial if self.dial.startswith("/") else ""

    @property
    def targets(self) -> list[str]:
        """Addresses that go this way."""
        return samples(self.patterns[-1]) if self.patterns else ["/"]


def ways(box: Box) -> list[Way]:
    """Return every way through the running edge."""
    command = "curl -sf --unix-socket /run/caddy/admin.sock http://localhost/config/"
    config = json.loads(box.run(command).check("the running configuration").out)
    servers = config["apps"]["http"]["servers"]
    found = [
        way
        for server in servers.values()
        for way in _routes(server.get("routes", []), (), ())
    ]  # fmt: skip
    if not any(way.socket for way in found):
        raise RequestFailedError("the running edge dials no socket: is this its configuration?")
    return list(dict.fromkeys(found))


def dials(box: Box) -> set[str]:
    """Return the paths of all sockets that the edge dials."""
    return {way.socket for way in ways(box) if way.socket}


def _routes(routes: list[Any], hosts: tuple[str, ...], fits: tuple[str, ...]) -> Iterator[Way]:
    for route in routes:
        matchers = route.get("match", [{}])
        for matcher in matchers:
            names = tuple(matcher.get("host", ())) or hosts
            patterns = (*fits, *_patterns(matcher))
            for handler in route.get("handle", []):
                yield from _handler(handler, names, patterns)


def _patterns(matcher: dict[str, Any]) -> Iterator[str]:
    of_uri = matcher.get("vars_regexp", {}).get("{http.request.uri}", {})
    if pattern := of_uri.get("pattern"):
        yield pattern
    if pattern := matcher.get("path_regexp", {}).get("pattern"):
        yield pattern


def _handler(handler: Any, hosts: tuple[str, ...], fits: tuple[str, ...]) -> Iterator[Way]:
    if isinstance(handler, list):
        for each in handler:
            yield from _handler(each, hosts, fits)
    if not isinstance(handler, dict):
        return
    if handler.get("handler") == "subroute":
        yield from _routes(handler.get("routes", []), hosts, fits)
    elif handler.get("handler") == "reverse_proxy":
        for upstream in handler.get("upstreams", []):
            yield Way(hosts, fits, _path(str(upstream.get("dial", ""))))
        for nested in handler.get("handle_response", []):  # of forward_auth
            yield from _routes(nested.get("routes", []), hosts, fits)
    elif handler.get("handler") in ("static_response", "file_server"):
        yield Way(hosts, fits, "")


def _path(dial: str) -> str:
    return dial.removeprefix(_UNIX).partition("|")[0] if dial.startswith(_UNIX) else dial
