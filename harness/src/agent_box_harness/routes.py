"""The addresses of the box, and what each answers to somebody who may have it.

Scenarios make their requests from this table: what a route answers to whom follows from its kind
and the credential. Which addresses there are at all, the services themselves tell (`served`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_box_harness.edge import Ask
from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from agent_box_harness.edge import Answer, Edge, Headers


@dataclass(frozen=True)
class Route:
    """An address, and what it answers to somebody who may have it."""

    path: str
    right: int
    public: bool = False
    """Answers to everybody alike."""
    owned: bool = False
    """Is about one user."""
    signed_in: int = 0
    """What it answers to anybody who is signed in, if that is something else."""

    def of(self, user: str) -> str:
        """Return the address for one user."""
        return self.path.replace("USER", user)


ROUTES = (
    Route("/", 302),
    Route("/USER", 307, owned=True),
    Route("/USER/", 200, owned=True),
    Route("/USER/?arg=main", 200, owned=True),
    Route("/USER/settings", 307, owned=True),
    Route("/USER/settings/", 200, owned=True),
    Route("/USER/downloads", 307, owned=True),
    Route("/USER/downloads/", 200, owned=True),
    Route("/USER/api/sessions", 200, owned=True),
    Route("/USER/api/restart-all", 405, owned=True),
    Route("/USER/api/order", 405, owned=True),
    Route("/USER/api/agents", 200, owned=True),
    Route("/USER/api/connections", 200, owned=True),
    Route("/USER/api/directories", 200, owned=True),
    Route("/USER/api/env", 200, owned=True),
    Route("/USER/api/webhooks", 200, owned=True),
    Route("/USER/api/webhooks/unsubscribe", 405, owned=True),
    Route("/USER/api/downloads", 200, owned=True),
    Route("/USER/api/uploads", 200, owned=True),
    Route("/USER/api/partial-uploads", 405, owned=True),
    Route("/USER/api/box", 200, owned=True),
    Route("/USER/api/update", 200, owned=True),
    Route("/USER/events", 200, owned=True),
    Route("/USER/t/main", 200, owned=True),
    Route("/USER/t/main/", 200, owned=True),
    Route("/USER/t/main/token", 200, owned=True),
    Route("/USER/t/ma.in/", 404, owned=True),
    Route("/USER/nothing", 404, owned=True),
    Route("/gate/account", 200),
    Route("/gate/logins", 200),
    Route("/gate/bans", 200),
    Route("/gate/password", 405),
    Route("/gate/unban", 405),
    Route("/USER/api/sites", 200, owned=True),
    Route("/nothing", 404),
    Route("/auth", 404),
    Route("/login", 200, public=True, signed_in=303),
    # the same for names that nobody has, until a sender is known
    Route("/USER/webhook", 404, public=True, owned=True),
    Route("/USER/webhook/github", 404, public=True, owned=True),
)


TRICKS = (
    "/UPPER/", "/UPPER/settings/", "/UPPER/t/main/",
    "//USER/", "/USER//", "//", "/./USER/", "/USER/./", "/x/../USER/", "/USER/../USER/",
    "/%55SER/", "/USER%2f", "/USER/%2e%2e/USER/", "/USER/%2e/", "/USER%00/", "/USER/%",
    "/%2fUSER/", "/USER;x/", "/USER/;x", "/USER/webhook/../", "/USER/webhook/%2e%2e/settings/",
    "/USER/webhook/..", "/USER/webhook/../settings/", "/USER/webhookx", "/USER/webhook//",
    "//USER/webhook", "/USER/%77ebhook", "/USER/webhook%2f", "/login/", "/login/x", "//login",
    "/login%2f..%2fUSER", "/login/../USER/", "/logout/../USER/", "/gate/assets/../account",
    "/gate/assets/%2e%2e/account", "/gate/assets/", "/gate/assets/x/y", "/gate//assets/x",
    "/LOGIN", "/Gate/assets/x", "\\USER\\", "/USER\\", "/USER/t/main/../../settings/",
    "/USER/t/%6dain/", "/USER/t//", "/USER/t/main//ws", "https://box.test/USER/", "*",
    "/USER/" + "a" * 9000, "/USER/?x=" + "a" * 9000, "/USER/#x", "/USER/\x00",
)  # fmt: skip
"""Addresses that somebody on the way might read in another way."""

REFUSED = (0, 400, 401, 404, 414, 431)


def paths(user: str) -> list[tuple[Route, str]]:
    """Return every route with its address for `user`."""
    return [(route, route.of(user)) for route in ROUTES]


TERMINAL = ("/USER/t/main", "/USER/t/main/", "/USER/t/main/ws", "/USER/t/main/token")
"""Addresses of the terminal service, which is no program of ours."""

OPEN = ("/login", "/logout", "/gate/assets/x")
"""What the gate answers to everybody."""


def served(edge: Edge, user: str) -> list[str]:
    """Return every address that the gate and the services of a user answer, by their own account.

    Without those that everybody may have. Parts that vary are filled in.
    """
    box = edge.box
    told = box.as_user(user, program(edge, f"agent-box-settings-{user}") + " --routes").check("ask")
    lines = told.out.splitlines()
    lines += box.succeed(program(edge, "agent-box-gate") + " --routes").splitlines()
    paths = {re.sub(r"\{[^}]*\}", "x", line.split(" ")[1]) for line in lines}
    paths |= {"/", *(path.replace("USER", user) for path in TERMINAL)}
    return sorted(paths.difference(OPEN))


def program(edge: Edge, unit: str) -> str:
    """Return the program of a service."""
    told = edge.box.machine.get_unit_property(f"{unit}.service", "ExecStart")
    found = re.search(r"path=(\S+)", told)
    if found is None:
        raise RequestFailedError(f"{unit} starts {told!r}")
    return found[1]


def wrong(expected: dict[Ask, int], answers: list[Answer]) -> list[str]:
    """Say which answers are not as expected."""
    return [
        f"{ask.method} {ask.target[:80]} {dict(ask.headers)}: {answer.status}, not {status}"
        for (ask, status), answer in zip(expected.items(), answers, strict=True)
        if answer.status != status
    ]


def tricks(cookie: Headers) -> tuple[list[Ask], list[Ask]]:
    """Return requests with odd spellings: by nobody for alice's things, by alice for bob's."""
    nobody = [Ask(_spelled(trick, "alice")) for trick in TRICKS]
    return nobody, [Ask(_spelled(trick, "bob"), headers=cookie) for trick in TRICKS]


def opened(asks: list[Ask], answers: list[Answer]) -> list[str]:
    """Say which odd spellings got through."""
    return [
        f"{ask.target[:80]!r}: {answer.status}"
        for ask, answer in zip(asks, answers, strict=True)
        if answer.status not in REFUSED
        and not (ask.headers and answer.status == 403)
        # What names nobody may be the visitor's own.
        and not (ask.headers and answer.status == 405 and "bob" not in ask.target)
    ]


def _spelled(trick: str, user: str) -> str:
    return trick.replace("USER", user).replace("UPPER", user.upper())
