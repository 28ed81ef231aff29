"""Whom the battery attacks, and how one sees that nothing happened to her.

bob attacks. alice is signed in, has a session whose name is nowhere else, and wants to be served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_box_harness.edge import Ask, Edge, with_cookie

if TYPE_CHECKING:
    from agent_box_harness.box import Box
    from agent_box_harness.edge import Headers

ATTACKER, VICTIM = "bob", "alice"
MARKER = "only-alice-has-this"
"""Name of a session of alice's: who reads it got to what is hers."""
SAYS = "I-am-"
"""What a shell that is asked says before its user's name."""
PATIENCE = 8.0
"""Seconds at native speed that alice waits for an answer."""


@dataclass
class Ground:
    """A box with both signed in."""

    edge: Edge
    attacker: str
    """The cookie of bob's browser."""
    victim: str
    """The cookie of alice's."""

    @property
    def box(self) -> Box:
        """The box itself."""
        return self.edge.box

    @property
    def as_attacker(self) -> Headers:
        """Headers of a page of bob's."""
        return self._headers(self.attacker)

    @property
    def as_victim(self) -> Headers:
        """Headers of a page of alice's."""
        return self._headers(self.victim)

    def _headers(self, cookie: str) -> Headers:
        more = (("Origin", self.edge.origin), ("Sec-Fetch-Site", "same-origin"))
        return (*with_cookie(cookie), *more)

    def who_is_in(self, user: str, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        """Return the steps in which a user asks a terminal at their own address who they are."""
        seconds = seconds * self.box.machine.time_factor
        headers = self.as_victim if user == VICTIM else self.as_attacker
        # What is typed is shown, too: the answer must not be in it.
        typed = f"\x15printf '%s-%s\\n' {SAYS.rstrip('-')} $(id -un)\r"
        return [
            {"do": "open", "as": user, "headers": headers, "target": f"/{user}/t/main/ws",
             "seconds": seconds},
            {"do": "type", "as": user, "text": typed},
            {"do": "read", "as": user, "until": SAYS, "seconds": seconds},
            {"do": "close", "as": user},
        ]  # fmt: skip

    def complaints(self) -> list[str]:
        """Say what alice misses: her pages, her sessions, her terminal as herself, the login."""
        seconds = self.box.machine.scaled(PATIENCE)
        asks = [
            Ask("/login"),
            Ask(f"/{VICTIM}/", headers=self.as_victim),
            Ask(f"/{VICTIM}/api/sessions", headers=self.as_victim),
            Ask(f"/{VICTIM}/webhook/github", "POST", body="{}"),
        ]
        steps = [{**ask.step(), "seconds": seconds} for ask in asks]
        steps += self.who_is_in(VICTIM)
        results = self.edge.steps(steps)
        found = []
        for ask, result in zip(asks, results, strict=False):
            status = result["status"]
            if status == 0 or status >= 500 or (ask.method == "GET" and status != 200):
                what = result.get("error") or result.get("body", "")[:120]
                found.append(f"alice's {ask.method} {ask.target}: {status} {what!r}")
        if results[2]["status"] == 200 and MARKER not in results[2].get("body", ""):
            found.append(f"alice is not shown her own sessions: {results[2]['body'][:200]}")
        if f"{SAYS}{VICTIM}" not in results[-2].get("text", ""):
            said = results[-2].get("text", results[-2])
            found.append(f"alice's terminal: {results[4]['status']}, shows {str(said)[-200:]!r}")
        return found


def prepare(edge: Edge) -> Ground:
    """Sign both in and give alice what bob must not see. Leaves what is there already."""
    box = edge.box
    if MARKER not in {view["name"] for view in box.sessions(VICTIM)}:
        box.ctl(VICTIM, f"add {MARKER} --agent shell").check("a session of alice's")
    for user in (ATTACKER, VICTIM):
        box.wait_session(user, "main", ("running", "waiting"))
    return Ground(edge, edge.sign_in(ATTACKER), edge.sign_in(VICTIM))
