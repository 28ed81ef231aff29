"""The backdoor protocol against a real bash on a socket pair standing in for the console."""

from __future__ import annotations

import socket
import subprocess
import threading

import pytest

from agent_box_harness.errors import MachineError
from agent_box_harness.pool import ShellPool
from agent_box_harness.shell import BANNER, ShellChannel, parse_answer, request


class Guest:
    """A bash with the harness's end of its console."""

    def __init__(self, banner: bytes = BANNER + b"\n") -> None:
        self.sock, inner = socket.socketpair()
        inner.sendall(banner)
        self.process = subprocess.Popen(
            ["bash", "--norc"], stdin=inner, stdout=inner, stderr=subprocess.DEVNULL
        )
        inner.close()

    def channel(self, *, booting: bool = True) -> ShellChannel:
        return ShellChannel(self.sock, booting=booting)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.sock.close()


@pytest.fixture
def guest():
    started = Guest()
    yield started
    started.end()


def run(channel, command, stdin=None, timeout=10):
    return channel.run(command, timeout, stdin, grace=5)


def test_commands_give_status_and_output(guest):
    channel = guest.channel()
    assert channel.prepare(10)
    assert run(channel, "echo hello; exit 3") == (3, b"hello\n")
    assert run(channel, "false | true") == (1, b"")
    assert run(channel, "printf 'a\\0b'") == (0, b"a\0b")
    assert run(channel, "echo 'it''s \"quoted\" $HOME'") == (0, b'its "quoted" $HOME\n')
    status, _ = run(channel, "echo $not_set_anywhere")
    assert status != 0


def test_standard_input_passes_through_whole(guest):
    channel = guest.channel()
    channel.prepare(10)
    data = bytes(range(256)) * 500
    assert run(channel, "cat", data) == (0, data)
    # What the command leaves unread must not be taken for the next request.
    assert run(channel, "head -c 3", b"echo no\n" * 20000) == (0, b"ech")
    assert run(channel, "cat") == (0, b"")
    assert run(channel, "echo still here") == (0, b"still here\n")


def test_a_command_that_runs_out_of_time_has_status_124(guest):
    channel = guest.channel()
    channel.prepare(10)
    assert run(channel, "echo before; sleep 20", timeout=0.2) == (124, b"before\n")


def test_a_channel_finds_its_place_in_a_running_shell(guest):
    first = guest.channel()
    first.prepare(10)
    first.send(b"echo noise; echo more noise\n")
    second = guest.channel(booting=False)
    assert second.prepare(10)
    assert run(second, "echo x") == (0, b"x\n")


def test_no_banner_is_not_ready():
    guest = Guest(banner=b"Booting...\n")
    channel = guest.channel()
    assert not channel.prepare(0.05)
    guest.end()


def test_answers_out_of_turn_are_an_error():
    assert parse_answer(b"aGk=\n0\n") == (0, b"hi")
    assert parse_answer(b"\n7\n") == (7, b"")
    with pytest.raises(MachineError):
        parse_answer(b"bash: line 1: syntax error\nsomething\n")


def test_a_command_too_long_for_one_argument_is_refused():
    with pytest.raises(ValueError, match="stdin"):
        request("x" * 200_000, None, None)


def test_a_lost_shell_is_replaced_by_the_next():
    guests = [Guest(), Guest()]
    pool = ShellPool([guest.channel() for guest in guests])
    pool.connect(10, alive=lambda: True)
    guests[0].process.kill()
    guests[0].process.wait()
    with pytest.raises(MachineError):
        pool.run("echo lost", 5, None, 1)
    assert pool.run("echo found", 5, None, 1) == (0, b"found\n")
    for guest in guests:
        guest.end()
    with pytest.raises(MachineError):
        pool.run("echo lost too", 5, None, 1)
    with pytest.raises(MachineError, match="every root shell"):
        pool.run("echo none", 5, None, 1)


def test_two_threads_use_two_shells():
    guests = [Guest(), Guest()]
    pool = ShellPool([guest.channel() for guest in guests])
    pool.connect(10, alive=lambda: True)
    pids: list[bytes] = []

    def ask() -> None:
        # bash -c is a child of the channel's shell.
        pids.append(pool.run("sleep 0.3; awk '/PPid/{print $2}' /proc/$PPID/status", 5, None, 5)[1])

    threads = [threading.Thread(target=ask) for _ in guests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(pids)) == 2
    for guest in guests:
        guest.end()


def test_a_machine_that_ends_while_booting_is_told():
    guest = Guest(banner=b"")
    pool = ShellPool([guest.channel()])
    with pytest.raises(MachineError, match="ended while it was booting"):
        pool.connect(0.2, alive=lambda: False)
    guest.end()
