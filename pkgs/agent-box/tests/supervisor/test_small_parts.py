"""Limits, tmux's words, and the service manager's protocol."""

from __future__ import annotations

import socket

import pytest

from agent_box import panes, sdnotify, tmux
from agent_box.errors import InternalError
from agent_box.supervisor.cgroups import parse_memory


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("", None),
        ("infinity", None),
        ("0", 0),
        ("1024", 1024),
        ("1K", 1024),
        ("2m", 2 * 2**20),
        ("1.5G", 3 * 2**29),
        ("1T", 2**40),
        ("50%", 500),
        ("12.5%", 125),
    ],
)
def test_memory(text, value):
    assert parse_memory(text, 1000) == value


@pytest.mark.parametrize("text", ["x", "%", "G", "1X", "1.5", "--1", "K1"])
def test_memory_nonsense(text):
    with pytest.raises(InternalError):
        parse_memory(text, 1000)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("no server running on /run/x/tmux-0/agent-box", tmux.TmuxDownError),
        ("error connecting to /run/x (No such file or directory)", tmux.TmuxDownError),
        ("lost server", tmux.TmuxDownError),
        ("server exited unexpectedly", tmux.TmuxDownError),
        ("can't find session: x", tmux.TmuxError),
        ("", tmux.TmuxError),
    ],
)
def test_errors_of_tmux(message, kind):
    error = tmux._error(message)
    assert type(error) is kind
    assert str(error)


@pytest.mark.parametrize(
    ("text", "number"), [("", None), ("9", 9), ("KILL", 9), ("SIGTERM", 15), ("ODD", None)]
)
def test_signals_by_number_or_name(text, number):
    assert panes._signal_number(text) == number


def line(
    *, pane="%0", dead="0", code="", signo="", ours="", main="", bell="", title="title", key="$0",
    name="a",
):  # fmt: skip
    fields = [pane, "7", dead, code, signo, "0", "5", ours, main, "L", bell, title, key, name]
    return "|".join(fields)


def test_one_pane_a_session_and_the_agents_own_first():
    text = "\n".join(
        [
            line(pane="%1", ours="ID", main="%2"),
            line(pane="%2", ours="ID", main="%2", dead="1", code="3", bell="77"),
            line(pane="%3", key="$1", name="b|c", bell="0x7"),
            line(pane="%4", key="$1", name="b|c"),
            line(pane="%5", key="$2", name="d", ours="ID2", main="%9"),
            line(pane="%6", key="$3", name="e", title="one\u2028two\x0bthree"),
        ]
    )
    found = panes.parse_panes(text, asked=5.0)
    assert list(found) == ["a", "b|c", "d", "e"]
    assert (found["a"].pane, found["a"].code, found["a"].lost) == ("%2", 3, False)
    assert (found["a"].bell, found["a"].title, found["b|c"].bell) == (77, "title", 0)
    assert (found["b|c"].pane, found["b|c"].session_id) == ("%3", None)
    assert found["d"].lost
    assert found["d"].ended
    assert found["d"].pid == 0


@pytest.mark.parametrize("garbled", ["", "nonsense", "%7||0", line(key=""), line(pane="")])
def test_a_pane_that_tmux_leaves_out_is_no_absence(garbled):
    text = f"{line()}\n{garbled}\n"
    with pytest.raises(panes.GarbledError, match="in place of a pane"):
        panes.parse_panes(text, asked=5.0)


def test_notify_says_nothing_to_nobody(monkeypatch, tmp_path):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert sdnotify.notify("READY=1") is False
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    assert sdnotify.notify("READY=1") is False


@pytest.mark.parametrize("abstract", [False, True])
def test_notify_reaches_the_manager(monkeypatch, tmp_path, abstract):
    name = f"@agent-box-test-{id(monkeypatch)}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0") if abstract else name)
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert sdnotify.notify("READY=1\nSTATUS=x")
        assert manager.recv(100) == b"READY=1\nSTATUS=x"


def test_the_watchdog_is_ours_or_nobodys(monkeypatch):
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    for text, seconds in (("", None), ("30000000", 15.0), ("x", None), ("-5", None)):
        monkeypatch.setenv("WATCHDOG_USEC", text)
        assert sdnotify.watchdog_interval() == seconds
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert sdnotify.watchdog_interval() is None
