"""An agent without hooks: what it sends to its terminal tells what it needs."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import time
from pathlib import Path

import pytest

from .conftest import Listener, maker

SPINNER = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    print("\\r\\x1b[38;5;1m*\\x1b[0m working" + "." * 400, end="", flush=True)
    time.sleep(1 / float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def running():
    """Return a running box with the fifth agent, for all tests of this file."""
    with maker() as make:
        box = make()
        box.install_fifth_agent()
        box.start()
        yield box


@pytest.fixture
def box(running):
    """Return that box with a new session `one` of the agent."""
    running.call("add", name="one", agent="aider")
    yield running
    running.call("rm", name="one")


def asks(text: str) -> str:
    return f"aider asks: {text}; attach and answer"


def cpu(box) -> float:
    """Return the seconds of processor time that the supervisor and its children have used."""
    fields = Path(f"/proc/{box.supervisor.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "sequence",
    [
        r"\033]9;may I go on?\007",
        r"\033]777;notify;may I;go on?\033\\",
        r"\033]99;i=1:d=0;may I\033\\\033]99;i=1:p=body;go on?\033\\",
        # Wrapped for the terminal around tmux.
        r"\033Ptmux;\033\033]9;may I go on?\007\033\\",
    ],
    ids=["9", "777", "99", "wrapped"],
)
def test_a_notification_says_what_it_needs(box, sequence):
    listener = Listener(box)
    box.say("one", sequence)
    waits = listener.until(lambda view: view["state"] == "waiting", 5)
    assert waits["reason"].replace("may I:", "may I") == asks("may I go on?")
    assert waits["idleSince"] is None
    box.say("one", r"\033]9;Aider has finished\007")
    idle = listener.until(lambda view: view["idleSince"] is not None)
    assert (idle["state"], idle["reason"]) == ("running", None)
    # That it has finished does not tell whether its vendor answered.
    assert idle["lastCall"] is None


def test_it_goes_on_after_its_question(box):
    listener = Listener(box)
    box.say("one", r"\033]9;may I go on?\007")
    waits = listener.until(lambda view: view["state"] == "waiting", 5)
    # tmux tells the time of output in whole seconds.
    time.sleep(4.1)
    box.say("one", "thank you")
    assert listener.until(lambda view: view["state"] == "running")["pid"] == waits["pid"]


def test_titles(box):
    listener = Listener(box)
    box.say("one", r"\033]2;Working\007")
    listener.until(lambda view: view["state"] == "running")
    box.say("one", r"\033]0;\342\234\213 Action required | $(id)\033\\")
    waits = listener.until(lambda view: view["state"] == "waiting", 6)
    assert waits["reason"] == "aider asks a question: attach and answer"
    # It stands for as long as the title does, whatever else is put out.
    box.say("one", "run for i in 1 2 3 4 5; do echo $i; sleep 1; done")
    time.sleep(5)
    assert box.view("one")["state"] == "waiting"
    box.say("one", r"\033]0;Working\007")
    listener.until(lambda view: view["state"] == "running")
    box.say("one", r"\033]0;Ready\007")
    listener.until(lambda view: view["idleSince"] is not None)


def test_the_bell(box):
    listener = Listener(box)
    box.say("one", r"\033]9;may I go on?\007")
    listener.until(lambda view: view["state"] == "waiting", 5)
    # What it is by its adapter's word: the end of a turn.
    box.say("one", r"done \007")
    listener.until(lambda view: view["idleSince"] is not None, 5)


def test_what_is_no_notification(box):
    box.say("one", r"\033]9;4;1;50\007\033]9;4;0\007\033]777;preexec\007\033]9;\007")
    box.say("one", r"\033]8;;http://x/\007\033]52;c;YQ==\007\033]99;p=?;\033\\\033]9;cut off\030")
    time.sleep(1)
    assert box.view("one")["state"] == "running"


def test_hostile_texts_are_words(box):
    listener = Listener(box)
    text = r"\342\200\256\342\200\213a\rb\nc\tEND'`id`$(id)<b>&amp;#{pane_pid}%%s \\xff\377"
    box.say("one", rf"\033]9;{text}" + "x" * 3000 + r"\007")
    reason = listener.until(lambda view: view["state"] == "waiting", 5)["reason"]
    shown = reason.removeprefix("aider asks: ").removesuffix("; attach and answer")
    assert shown.startswith(
        "a b c END'`id`$(id)<b>&amp;#{pane_pid}%s \\xff\N{REPLACEMENT CHARACTER}xx"
    )
    assert len(shown) == 160
    assert shown.isprintable()


def test_cut_into_pieces_and_behind_a_flood(box):
    listener = Listener(box)
    for piece in (r"text \033", r"]", "9", ";may I g", "o on?", r"\033", r"\\ text"):
        box.say("one", piece)
        time.sleep(0.12)
    waits = listener.until(lambda view: view["state"] == "waiting", 5)
    assert waits["reason"] == asks("may I go on?")
    flood = box.root / "flood"
    lines = [
        b"\x1b[1mline\x1b[0m of a log %d\x1b]9;lost in the middle?\x07\r\n" % i
        for i in range(20_000)
    ]
    flood.write_bytes(b"".join(lines) + b"\x1b]9;" * 20_000)
    before, started = cpu(box), time.monotonic()
    box.say("one", rf"run cat {flood}; printf '\033]9;at its end\007'")
    end = listener.until(lambda view: view["reason"] == asks("at its end"), 20)
    assert end["state"] == "waiting"
    took = time.monotonic() - started
    used = cpu(box) - before
    print(f"{flood.stat().st_size >> 10} KB in {took:.2f} s: {used:.2f} s of processor time")
    # Notifications by the thousand were followed up once a second.
    assert used < 1 + 0.2 * took


def test_notifications_are_followed_up_once_a_second(box):
    listener = Listener(box)
    flood = r"for n in $(seq 100); do printf '\033]9;flood %s\007' $n; sleep 0.02; done"
    started = time.monotonic()
    box.say("one", f"run {flood}")
    listener.until(lambda view: view["reason"] == asks("flood 100"), 10)
    took = time.monotonic() - started
    time.sleep(0.5)
    assert len(listener.reasons) <= took + 2, listener.reasons


def test_a_flood_of_bells(box):
    listener = Listener(box)
    before = cpu(box)
    box.say("one", r"run for n in $(seq 300); do printf '\007'; sleep 0.005; done")
    listener.until(lambda view: view["idleSince"] is not None)
    time.sleep(2)
    print(f"{cpu(box) - before:.2f} s of processor time")
    assert cpu(box) - before < 0.5
    box.say("one", r"\033]9;may I go on?\007")
    listener.until(lambda view: view["state"] == "waiting", 5)


def test_a_spinner_costs_next_to_nothing(box):
    program = box.root / "spinner.py"
    program.write_text(SPINNER)
    command = shlex.join(["python3", str(program), "4", "60"])
    box.say("one", f"run {command}")
    time.sleep(0.5)
    before = cpu(box)
    time.sleep(3)
    used = (cpu(box) - before) / 3
    print(f"60 frames a second: {100 * used:.2f} % of a core")
    assert used < 0.05


def test_a_new_supervisor_listens_again(box):
    box.kill_supervisor()
    box.start_supervisor()
    box.wait("one", "running")
    box.say("one", r"\033]9;may I go on?\007")
    assert box.wait("one", "waiting")["reason"] == asks("may I go on?")


def test_files_from_strangers_are_closed(box):
    """Whatever is sent to the launchers' socket, the supervisor keeps no file of it."""
    strange = box.root / "strange"
    strange.write_text("x")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, strange.open() as file:
        sock.connect(str(box.run_dir / "notify.sock"))
        for words in (
            {"event": "output", "token": "0" * 32},
            {"event": "output", "token": ["x"]},
            {"event": "signal", "pane": "%0", "word": "idle"},
            [],
            "x",
        ):
            socket.send_fds(sock, [json.dumps(words).encode()], [file.fileno()])
        socket.send_fds(sock, [b"\xff{"], [file.fileno()] * 3)
    box.say("one", r"\033]9;may I go on?\007")
    box.wait("one", "waiting")
    held = []
    for entry in Path(f"/proc/{box.supervisor.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            held.append(str(entry.readlink()))
    assert held
    assert str(strange) not in held
