"""Every socket of the box: who reaches it, who could be it, who can hang it or lie to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.battery import inside, links, sockets, walls
from agent_box_harness.battery.ground import ATTACKER

if TYPE_CHECKING:
    from agent_box_harness.battery.ground import Ground

pytestmark = [pytest.mark.limit(120), pytest.mark.renewed("module")]


def test_every_socket_is_in_the_table(ground: Ground) -> None:
    """What listens below the box's own directories has a line that says who reads it, and why it
    is safe.
    """
    table = walls.read()
    view = sockets.look(ground.box)
    ours = [socket.path for socket in view.sockets if socket.of_the_box]
    assert [path for path in ours if table.row_of(path, ground.box.users) is None] == []


def test_nobody_else_gets_in(ground: Ground) -> None:
    """bob connects to his own sockets and to those that the table opens to him, from a login and
    from a session, and to no other.
    """
    table = walls.read()
    view = sockets.look(ground.box)
    paths = [socket.path for socket in view.sockets]
    wrong = []
    for stand in inside.USERS:
        told = inside.run(ground.box, "touch", {"connect": paths}, stand=stand)["connect"]
        for socket in view.sockets:
            if told[socket.path] != "connected":
                continue
            if socket.owner == ATTACKER:
                continue
            if not table.open_to(socket.path, stand, ground.box.users):
                who = f"served by {socket.served_by}, {socket.service or 'no unit'}"
                wrong.append(f"bob, from a {stand.value}, connects to {socket.path} ({who})")
    assert not wrong, "\n".join(wrong)


def test_nobody_takes_the_place_of_a_socket(ground: Ground) -> None:
    """Where somebody else dials a socket, no user may change any part of its path: by owners and
    modes, and by trying it.
    """
    table = walls.read()
    box = ground.box
    view = sockets.look(box)
    dialled = {
        socket: why for socket in view.sockets if (why := walls.why_dialled(view, table, socket))
    }
    assert len(view.dialled_by_edge) > len(box.users)
    wrong = []
    for socket, why in dialled.items():
        wrong += [
            f"{socket.path}, which {why} dials: {how}"
            for account in view.accounts.values()
            if (how := socket.replaceable_by(account))
        ]
    for stand in inside.USERS:
        job = {"replace": [socket.path for socket in dialled]}
        told = inside.run(box, "touch", job, stand=stand)["replace"]
        wrong += [
            f"{path}: from a {stand.value} of bob's {how}" for path, how in told.items() if how
        ]
    assert not wrong, "\n".join(wrong)


def test_a_link_to_the_other_user(ground: Ground) -> None:
    """Even if the outer wall were down, and bob's socket a link to alice's: nothing of hers is
    shown to him, and her terminal does not take his login.
    """
    wrong = links.crossed(ground)
    assert not wrong, "\n".join(wrong)
