"""The gate's decisions, where the moment matters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from starlette.datastructures import Headers

from agent_box.config import Web
from agent_box.gate import addresses, passwords
from agent_box.gate.authority import Client, Gate
from agent_box.gate.known import Known
from agent_box.gate.live import Live
from agent_box.gate.store import Store

from .conftest import FRESH, PASSWORDS, basic

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def gate(tmp_path: Path, hashes: dict[str, str]):
    import msgspec

    web = msgspec.convert(
        {
            "domain": "box.example",
            "origins": [],
            "rootUser": "alice",
            "users": {"alice": {}, "bob": {}},
            "gate": {"state": str(tmp_path)},
        },
        Web,
    )
    store = Store(tmp_path)
    gate = Gate(web, store, Live(tmp_path / "live"), Known(tmp_path / "known"))
    gate.set_hash("alice", hashes["alice"])
    yield gate
    gate.close()


async def test_the_entry_that_was_judged_is_remembered(gate: Gate):
    """A password is replaced between the answer of the check and its use."""
    headers = Headers(dict([basic("alice", PASSWORDS["alice"])]))
    client = Client(addresses.parse("192.0.2.1"), "x")
    fresh = passwords.make(FRESH)
    judge = gate._judge

    async def slow(*arguments, **more):
        judged = await judge(*arguments, **more)
        gate.set_hash("alice", fresh)
        await asyncio.sleep(0)
        return judged

    gate._judge = slow  # type: ignore[method-assign]
    assert await gate.authenticate(headers, client) is not None
    gate._judge = judge  # type: ignore[method-assign]
    assert await gate.authenticate(headers, client) is None
