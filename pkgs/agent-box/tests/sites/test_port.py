"""The forwarder between the edge and a port: what it dials, and whose program that is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from agent_box.sites import port


@contextlib.asynccontextmanager
async def forwarding(tmp_path, number, owner):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "edge.sock"))
        listening.listen()
        task = asyncio.create_task(port.Forwarder(listening, number, owner).run())
        try:
            yield tmp_path / "edge.sock"
        finally:
            task.cancel()


async def upper(reader, writer):
    """Answer with what was said in capitals, once all of it was said."""
    writer.write((await reader.read()).upper())
    await writer.drain()
    writer.close()


async def said(path, text=b"hello" * 100_000):
    reader, writer = await asyncio.open_unix_connection(path)
    # It may hang up without having listened.
    with contextlib.suppress(ConnectionError):
        writer.write(text)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    return b""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("owner", [None, os.getuid()])
async def test_both_families_and_both_ends(tmp_path, address, owner):
    server = await asyncio.start_server(upper, address, 0)
    number = server.sockets[0].getsockname()[1]
    async with server, forwarding(tmp_path, number, owner) as path:
        assert await said(path) == b"HELLO" * 100_000


async def test_somebody_elses_program(tmp_path, capfd):
    server = await asyncio.start_server(upper, "127.0.0.1", 0)
    number = server.sockets[0].getsockname()[1]
    async with server, forwarding(tmp_path, number, os.getuid() + 1) as path:
        assert await said(path, b"x") == b""
        assert "another user's" in capfd.readouterr().err


async def test_nothing_there_and_then_something(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    async with forwarding(tmp_path, number, os.getuid()) as path:
        assert await said(path, b"") == b""
        server = await asyncio.start_server(upper, "127.0.0.1", number)
        async with server:
            assert await said(path, b"x") == b"X"


async def test_a_program_that_takes_the_port_meanwhile(tmp_path, monkeypatch):
    """The look before says one thing, the one after it another."""
    server = await asyncio.start_server(upper, "127.0.0.1", 0)
    number = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(port.listeners, "is_with", lambda *_: False)
    async with server, forwarding(tmp_path, number, os.getuid()) as path:
        assert await said(path, b"x") == b""


async def test_it_ends_when_nobody_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(port, "IDLE", 0.05)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "edge.sock"))
        listening.listen()
        await asyncio.wait_for(port.Forwarder(listening, 1, None).run(), 5)


def test_another_network_than_it_was_told(tmp_path):
    (tmp_path / "net").touch()
    with pytest.raises(SystemExit, match="not the network"):
        port.main(["3000", "--network", str(tmp_path / "net")])


def test_whose_program_it_has_to_be(monkeypatch):
    """In a network that users share, the user's own."""
    made = []

    class Recorder:
        def __init__(self, _, number, owner):
            made.append((number, owner))

        async def run(self):
            pass

    monkeypatch.setattr(port, "Forwarder", Recorder)
    monkeypatch.setattr(port, "activated", lambda: {"socket": None})
    port.main(["3000"])
    port.main(["3000", "--network", "/proc/self/ns/net"])
    assert made == [(3000, os.getuid()), (3000, None)]
