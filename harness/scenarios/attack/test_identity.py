"""Nobody is taken for somebody else, whatever they say about themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.battery import edge_config, identity, impostor, rude, sockets
from agent_box_harness.battery.ground import ATTACKER, VICTIM
from agent_box_harness.edge import Ask

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground
    from agent_box_harness.box import Box
    from agent_box_harness.edge import Headers

pytestmark = [pytest.mark.limit(120), pytest.mark.renewed("module")]


def test_lies_to_the_edge(ground: Ground) -> None:
    """No header in any spelling gets bob, or a stranger, an answer at alice's addresses that they
    would not have had without it.
    """
    targets = [*_ways_of(ground, VICTIM).values(), f"/{VICTIM}/api/sessions"]
    lies = list(identity.lies(ground))
    wrong = []
    for who, headers in rude.ends(ground):
        plain = rude.send(ground, [_asked(ground, who, target, headers) for target in targets])
        asked = [
            (target, before, what, lie)
            for target, before in zip(targets, plain, strict=True)
            for what, lie in lies
        ]
        requests = [_asked(ground, who, target, (*headers, *lie)) for target, _, _, lie in asked]
        for (target, before, what, _), after in zip(
            asked, rude.send(ground, requests), strict=True
        ):
            # Without a cookie, or with two answers to who it is, less may be answered, never more.
            if after not in (before, 0, 400, 401, 403, 404, 405, 431, 501, 503):
                wrong.append(f"{who} at {target} with {what}: {after}, not {before}")
    assert not wrong, "\n".join(wrong)


def test_lies_to_services(ground: Ground) -> None:
    """What a service hears of who asks is what the gate says, once, whatever the request says."""
    view = sockets.look(ground.box)
    served = {socket.path: socket for socket in view.serving([ATTACKER])}
    wrong = []
    for path, target in _ways_of(ground, ATTACKER).items():
        if path not in served:
            continue
        lies = list(identity.lies(ground))
        asks = [Ask(target, headers=(*ground.as_attacker, *lie)) for _, lie in lies]
        with impostor.in_place_of(ground.box, served[path], ATTACKER):
            answers = ground.edge.ask(asks)
        for (what, _), answer in zip(lies, answers, strict=True):
            told = identity.claimed(answer.body) if answer.status == 200 else {}
            others = [value for values in told.values() for value in values if VICTIM in value]
            if (
                others
                or any(len(values) > 1 for values in told.values())
                or told.get("user", [ATTACKER]) != [ATTACKER]
            ):
                wrong.append(f"{target} with {what}: {path} is told {told}")
    assert not wrong, "\n".join(wrong)


def test_login_at_the_other_address(ground: Ground) -> None:
    """bob's login opens none of alice's terminals, streams and files, and hers none of his."""
    steps = [
        {"do": "open", "as": "x", "target": f"/{VICTIM}/t/main/ws", "headers": ground.as_attacker},
        {"do": "open", "as": "y", "target": f"/{ATTACKER}/t/main/ws", "headers": ground.as_victim},
        {"do": "open", "as": "z", "target": f"/{VICTIM}/t/main/ws", "headers": ()},
    ]
    assert [result["status"] for result in ground.edge.steps(steps)] == [403, 403, 401]


def test_names_of_processes(box: Box) -> None:
    """What a process calls itself decides about nobody's: a name is free to choose."""
    told = box.run("systemctl show -p ExecStart,Environment earlyoom.service systemd-oomd.service")
    by_name = [word for word in ("--avoid", "--prefer", "--ignore") if word in told.out]
    assert not by_name, f"earlyoom chooses whom to end by names of processes: {by_name}"


def _asked(ground: Ground, who: str, target: str, headers: Headers) -> rude.Rude:
    head = f"GET {target} HTTP/1.1\r\nHost: {ground.edge.domain}\r\n"
    raw = head + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    return rude.Rude(target, who, raw.encode(), wait=10.0)


def _ways_of(ground: Ground, user: str) -> dict[str, str]:
    """Return one address of a user's for each socket that the edge dials for them."""
    found: dict[str, str] = {}
    for way in edge_config.ways(ground.box):
        mine = [target for target in way.targets if target.startswith(f"/{user}")]
        if way.socket and mine:
            found.setdefault(way.socket, mine[0])
    return found
