"""Over HTTP/2 and HTTP/3 the box is as closed as over HTTP/1.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness import matrix
from agent_box_harness.edge import Ask, with_cookie
from agent_box_harness.routes import opened, tricks, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_box_harness.edge import Edge

pytestmark = [pytest.mark.limit(240), pytest.mark.renewed("module")]

VERSIONS = ("2", "3")


def test_every_version(edge: Edge, measured: Callable[[str, float], None]) -> None:
    """Where HTTP/3 is offered, every route answers to everybody over it and over HTTP/2 as over
    HTTP/1.1, on a connection that others have used before; without a login no method and no odd
    spelling of an address opens anything. Answers tell of HTTP/3, and a service cannot.
    """
    expected = matrix.by_credential(edge, matrix.credentials(edge))
    # An open stream of events has no end to wait for.
    asks = {
        ask: status
        for ask, status in expected.items()
        if not (ask.target.endswith("/events") and status == 200)
    }
    methods = matrix.by_method("bob")
    with edge.as_with("http3"):
        cookie = with_cookie(edge.sign_in("alice"))
        odd = [
            [ask for ask in group if ask.target.isprintable()]  # as far as curl can say it
            for group in tricks(cookie)
        ]
        for version in VERSIONS:
            answers = edge.fetch(version, asks, timeout=120)
            assert wrong(asks, answers) == [], version
            assert matrix.bad_headers(list(asks), answers, http3=version == "2") == [], version
            assert wrong(methods, edge.fetch(version, methods, timeout=120)) == [], version
            for group in odd:
                assert opened(group, edge.fetch(version, group, timeout=120)) == [], version
        (events,) = edge.fetch(
            "3", [Ask("/alice/events", headers=cookie)], seconds=edge.box.machine.scaled(3)
        )
        assert events.status == 200
        measured("requests over each version", len(asks) + len(methods) + sum(map(len, odd)))
        assert edge.box.succeed("ss -Hlun 'sport = :443'") != ""
    # Back to the options of this box, nothing of it is left.
    edge.box.wait_for("its end", lambda: not edge.box.succeed("ss -Hlun 'sport = :443'"))
    assert edge.ask([Ask("/login")])[0].all("alt-svc") == []
