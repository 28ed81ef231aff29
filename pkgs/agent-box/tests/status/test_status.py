"""The status service tells each user what is theirs, and nobody else anything."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
from types import SimpleNamespace

import pytest

from agent_box.status import client, service, units

ME = pwd.getpwuid(os.getuid()).pw_name

SHOWN = """\
Id=caddy.service
LoadState=loaded
ActiveState=active
SubState=running
StateChangeTimestamp=@1796000000
NRestarts=2

Id=fail2ban.service
LoadState=not-found
ActiveState=inactive
SubState=dead
StateChangeTimestamp=
NRestarts=0
"""


def box(*users):
    return SimpleNamespace(users=dict.fromkeys(users), web=None)


@pytest.fixture
def path(tmp_path, monkeypatch):
    asked = []

    async def states(names):
        asked.append(names)
        return [{"name": name} for name in names]

    monkeypatch.setattr(units, "states", states)
    return tmp_path / "status.sock"


async def served(path, box, talk):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    task = asyncio.create_task(service.serve(box, listener))
    try:
        return await talk()
    finally:
        task.cancel()


def test_what_systemctl_prints():
    assert units.parse(SHOWN) == [
        {
            "name": "caddy.service",
            "state": "active",
            "detail": "running",
            "since": 1796000000,
            "restarts": 2,
        }
    ]


def test_a_user_is_told_of_the_own_units(path):
    told = asyncio.run(served(path, box(ME, "other"), lambda: client.ask(path)))
    names = [unit["name"] for unit in told["units"]]
    assert f"agent-box-supervisor-{ME}.service" in names
    assert not any("other" in name for name in names)


def test_who_is_no_user_is_told_nothing(path):
    assert asyncio.run(served(path, box("other"), lambda: client.ask(path))) is None


def test_who_does_not_read_keeps_nobody_waiting(path):
    async def talk():
        idle = [await asyncio.open_unix_connection(path) for _ in range(3 * service.AT_ONCE)]
        told = await client.ask(path)
        for _, writer in idle:
            writer.close()
        return told

    assert asyncio.run(served(path, box(ME), talk))["units"]


def test_without_the_service_there_is_no_answer(tmp_path):
    assert asyncio.run(client.ask(tmp_path / "absent")) is None
