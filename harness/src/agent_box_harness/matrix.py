"""Every route, asked for by everybody: what comes of it, and the headers of each answer.

One table for all versions of HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_box_harness.edge import COOKIE, PASSWORDS, Ask, with_cookie
from agent_box_harness.errors import RequestFailedError
from agent_box_harness.expiry import expired
from agent_box_harness.routes import paths, served

if TYPE_CHECKING:
    from agent_box_harness.edge import Answer, Edge, Headers

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

POLICY = {
    "strict-transport-security": "max-age=31536000",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "SAMEORIGIN",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer, each exactly once."""

SILENT = ("server", "via", "x-agent-box-user", "x-agent-box-login")
"""Headers that no answer has."""


@dataclass(frozen=True)
class Credentials:
    """What people come with."""

    alice: str
    """Cookie of a login of hers."""
    bob: str
    refused: dict[str, Headers]
    """What is no login, by what it is."""


def credentials(edge: Edge) -> Credentials:
    """Sign in, out, and wait: takes some seconds, because two logins have to expire."""
    ended = expired(edge, "alice")
    alice, bob, gone = edge.sign_in("alice"), edge.sign_in("bob"), edge.sign_in("alice")
    leaving = Ask("/logout", "POST", (*with_cookie(gone), ("Origin", edge.origin),
                                      ("Sec-Fetch-Site", "same-origin")))  # fmt: skip
    (left,) = edge.ask([leaving])
    if left.status not in (200, 303):
        raise RequestFailedError(f"alice cannot sign out: {left}")
    value = alice.partition("=")[2]
    refused = {
        "nothing": (),
        "an empty cookie": with_cookie(f"{COOKIE}="),
        "a cookie that was changed": with_cookie(alice[:-1] + ("A" if alice[-1] != "A" else "B")),
        "two cookies": with_cookie(alice, bob),
        "a cookie of another name": with_cookie(f"agent_box={value}"),
        "a revoked cookie": with_cookie(gone),
        "a cookie unused for too long": with_cookie(ended["idle"]),
        "a cookie that is too old": with_cookie(ended["old"]),
        "a made-up header": (("X-Agent-Box-User", "alice"), ("X-Agent-Box-Login", "x" * 32)),
        "a token without scheme": (("Authorization", f"Bearer {value}"),),
    }
    return Credentials(alice, bob, refused)


def by_credential(edge: Edge, given: Credentials) -> dict[Ask, int]:
    """Return requests for every route of alice's, by everybody, and the status of each.

    Nobody, cookies that are empty, made up, doubled, revoked, too old or unused for too long,
    passwords right and wrong, alice and bob.
    """
    alice, bob = given.alice, given.bob
    expected: dict[Ask, int] = {}
    right_password = edge.basic("alice", PASSWORDS["alice"])
    others_password = edge.basic("bob", PASSWORDS["bob"])
    for number, (route, path) in enumerate(paths("alice")):
        right = route.signed_in or route.right
        other = 403 if route.owned and not route.public else right
        for headers in given.refused.values():
            expected[Ask(path, headers=headers)] = route.right if route.public else 401
        expected[Ask(path, headers=with_cookie(alice))] = right
        expected[Ask(path, headers=with_cookie("a=b", alice, "c=d"))] = right
        expected[Ask(path, headers=with_cookie(bob))] = other
        # The login page itself is the same for programs, which have no use for it.
        programs = route.right if route.public else right
        expected[Ask(path, headers=right_password)] = programs
        expected[Ask(path, headers=others_password)] = route.right if route.public else other
        # Each from somewhere else: who fails often is told to wait.
        wrong = edge.basic("alice", f"wrong {number}")
        expected[Ask(path, headers=wrong, source=f"127.0.3.{number + 1}")] = (
            route.right if route.public else 401
        )
    return expected


def by_method(user: str) -> dict[Ask, int]:
    """Return requests without a credential, by every method for every route that wants one."""
    return {
        Ask(path, method): 401
        for route, path in paths(user)
        for method in METHODS
        if not route.public
    }


def by_service(edge: Edge, given: Credentials) -> dict[str, dict[Ask, int]]:
    """Return requests for every address that the services say they answer, by every method.

    By who sends them: all that is no login, bob, and alice without the word of a page of the box,
    who may read and change nothing. One wrong password for each address besides, by any method.
    In an emulated guest, who comes with something that is no login tries one method an address.
    """
    addresses = served(edge, "alice")
    every = [Ask(path, method) for path in addresses for method in METHODS]
    # A step that has no factor in common with the number of methods goes through all of them.
    some = every if edge.box.machine.time_factor <= 1 else every[:: len(METHODS) + 1]
    found = {
        who: {replace(ask, headers=headers): 401 for ask in (some if headers else every)}
        for who, headers in given.refused.items()
    }
    found["bob"] = {
        replace(ask, headers=with_cookie(given.bob)): 403
        for ask in every
        if ask.target.startswith("/alice")
    }
    found["alice, from no page"] = {
        replace(ask, headers=with_cookie(given.alice)): 403
        for ask in every
        if ask.method not in ("GET", "HEAD", "OPTIONS")
    }
    found["a wrong password"] = {
        Ask(path, METHODS[number % len(METHODS)], edge.basic("alice", f"wrong {number}"),
            source=f"127.0.4.{number + 1}"): 401
        for number, path in enumerate(addresses)
    }  # fmt: skip
    return found


def bad_headers(asks: list[Ask], answers: list[Answer], *, http3: bool = False) -> list[str]:
    """Say which answers lack a header of the box, or have one that they must not have.

    With `http3` each tells that there is HTTP/3, which those over HTTP/3 itself do not.
    """
    found = []
    for ask, answer in zip(asks, answers, strict=True):
        wrong = [name for name, text in POLICY.items() if answer.all(name) != [text]]
        wrong += [name for name in SILENT if answer.all(name)]
        wrong += [name for name in ("permissions-policy", "cache-control") if not answer.all(name)]
        policy = "+".join(answer.all("content-security-policy"))
        if not ("default-src 'none'" in policy or "default-src 'self'" in policy):
            wrong.append("content-security-policy")
        if "'unsafe-eval'" in policy or "script-src 'unsafe-inline'" in policy:
            wrong.append("content-security-policy")
        if answer.all("alt-svc") != (['h3=":443"; ma=2592000'] if http3 else []):
            wrong.append("alt-svc")
        if answer.status == 401:
            wrong += ["set-cookie"] * bool(answer.all("set-cookie"))
            wrong += ["www-authenticate"] * (not answer.all("www-authenticate"))
        found += [f"{ask.method} {ask.target[:80]}: {name}: {answer.all(name)}" for name in wrong]
    return found
