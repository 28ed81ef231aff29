"""What a user's own process answers must do no harm on the origin that all users share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.battery import edge_config, impostor, sockets
from agent_box_harness.battery.ground import ATTACKER
from agent_box_harness.edge import Ask

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground

pytestmark = [pytest.mark.limit(120), pytest.mark.renewed("module")]


def test_hostile_answers(ground: Ground) -> None:
    """Whatever a process of bob's answers in the place of any service of his that the edge dials,
    the browser gets the policies of the box, none of his headers, not before the answer and not
    behind it either, and no page or script of his that is not sandboxed.
    """
    wrong = [
        f"{socket}, {kind}: {', '.join(sorted(set(what)))}"
        for (socket, kind), what in _harm(ground).items()
    ]
    assert not wrong, "\n".join(wrong)


def test_redirects(ground: Ground) -> None:
    """No address of the box leads somewhere else because a process of bob's says so."""
    wrong = []
    for socket, ways in _dialled(ground).items():
        with impostor.in_place_of(ground.box, socket, ATTACKER):
            targets = [target for way in ways for target in way.targets]
            headers = (*ground.as_attacker, ("X-Battery", "redirect"))
            answers = ground.edge.ask([Ask(target, headers=headers) for target in targets])
        wrong += [
            f"{target}: {answer.status} to {answer.all('location')}"
            for target, answer in zip(targets, answers, strict=True)
            if any(impostor.EVIL in place for place in answer.all("location"))
        ]
    assert not wrong, "\n".join(wrong)


def _harm(ground: Ground) -> dict[tuple[str, str], list[str]]:
    """Have each service of bob's give each hostile answer; return what reached his browser."""
    found: dict[tuple[str, str], list[str]] = {}
    replies = [reply for reply in impostor.REPLIES if reply.name != "redirect"]
    for socket, ways in _dialled(ground).items():
        asks = [
            Ask(target, headers=(*ground.as_attacker, ("X-Battery", reply.name)))
            for way in ways
            for target in way.targets
            for reply in replies
        ]
        with impostor.in_place_of(ground.box, socket, ATTACKER):
            answers = ground.edge.ask(asks)
        for ask, answer in zip(asks, answers, strict=True):
            for harm in impostor.harm(answer):
                where = f"{ask.target}, {dict(ask.headers)['X-Battery']}"
                what = f"{harm.what}" if harm.kind != "missing" else f"{harm.what} ({where})"
                found.setdefault((socket.path, harm.kind), []).append(what)
    return found


def _dialled(ground: Ground) -> dict[sockets.Socket, list[edge_config.Way]]:
    """Return the sockets at which processes of bob's answer the edge, with the ways there."""
    view = sockets.look(ground.box)
    by_socket = {socket.path: socket for socket in view.serving([ATTACKER])}
    found: dict[sockets.Socket, list[edge_config.Way]] = {}
    for way in edge_config.ways(ground.box):
        if way.socket in by_socket:
            found.setdefault(by_socket[way.socket], []).append(way)
    return found
