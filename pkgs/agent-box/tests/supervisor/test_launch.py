"""The launcher, run as the program that a pane executes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, "-m", "agent_box.supervisor.launch"]
SHOW = """
import json, os, sys
kept = {name: os.environ.get(name) for name in ("A", "B", "PWD", "AGENT_BOX_SESSION", "TERM")}
argv = [os.fsencode(item).hex() for item in sys.argv[1:]]
print(json.dumps([argv, kept, os.getcwd(), os.getpid()]))
"""


@pytest.fixture
def notify(tmp_path_factory):
    # Short: a UNIX socket's path has at most 107 bytes.
    path = f"/tmp/abn{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(5)
        yield sock
    Path(path).unlink()


@pytest.fixture
def spec(tmp_path, notify):
    return {
        "name": "one",
        "id": "ID",
        "launch": "L1",
        "argv": [sys.executable, "-S", "-c", SHOW],
        "cwd": str(tmp_path),
        "env": {"A": "from spec", "B": "from spec"},
        "identity": {"AGENT_BOX_SESSION": "one"},
        "envFiles": [str(tmp_path / "env"), str(tmp_path / "own")],
        "cgroup": None,
        "notify": notify.getsockname(),
        "failedFile": str(tmp_path / "failed"),
    }


def launch(tmp_path, spec, **options):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "tmux-256color"}
    return subprocess.run(
        [*RUN, str(path)], capture_output=True, timeout=30, env=env, check=False, **options
    )


def test_argv_environment_and_signals(tmp_path, spec, notify):
    odd = ["", " a\nb\t", "'\"$(x)`\\", "ä\U0001f600", "\udcff\udc80", "x" * 100_000, "--", "-c"]
    spec["argv"] += odd
    (tmp_path / "env").write_text("B='from the file'\nAGENT_BOX_SESSION=forged\n")
    result = launch(tmp_path, spec)
    argv, kept, cwd, pid = json.loads(result.stdout)
    assert argv == [os.fsencode(item).hex() for item in odd]
    assert kept == {
        "A": "from spec",
        "B": "from the file",
        "PWD": str(tmp_path),
        "AGENT_BOX_SESSION": "one",
        "TERM": "tmux-256color",
    }
    assert cwd == str(tmp_path)
    (tmp_path / "own").write_text("B=of this session\n")
    assert json.loads(launch(tmp_path, spec).stdout)[1]["B"] == "of this session"
    # What a supervisor of before an upgrade writes in the moment of the switch.
    spec["envFile"] = spec.pop("envFiles")[0]
    assert json.loads(launch(tmp_path, spec).stdout)[1]["B"] == "from the file"
    told = json.loads(notify.recv(65536))
    assert told == {"event": "exec", "cgroup": False, "id": "ID", "launch": "L1", "pid": pid}
    assert not (tmp_path / "failed").exists()


def test_no_signal_stays_ignored(tmp_path, spec):
    spec["argv"] = [shutil.which("grep"), "SigIgn", "/proc/self/status"]
    ignored = int(launch(tmp_path, spec).stdout.split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"argv": ["/nonexistent/program"]}, "not installed"),
        ({"argv": ["/etc/passwd"]}, "not executable"),
        ({"cwd": "/nonexistent/place"}, "/nonexistent/place"),
        ({"cwd": "/etc/passwd"}, "/etc/passwd"),
        ({"cwd": "/a\0b"}, "cannot be entered"),
        ({"argv": [sys.executable, "\ud800"]}, "none can hold"),
        ({"argv": [sys.executable, "a\0b"]}, "none can hold"),
        ({"argv": [sys.executable, "x" * 3_000_000]}, "larger than the kernel allows"),
    ],
)
def test_what_can_never_start_says_so(tmp_path, spec, notify, change, word):
    spec |= change
    result = launch(tmp_path, spec)
    assert result.returncode == 78
    assert word in result.stderr.decode("utf-8", "replace")
    assert b"agent-box-session restart one" in result.stderr
    note = json.loads((tmp_path / "failed").read_text())
    assert word in note["reason"]
    assert note["launch"] == "L1"
    events = []
    while not events or events[-1]["event"] != "failed":
        events.append(json.loads(notify.recv(65536)))
    assert events[-1]["reason"] == note["reason"]


def test_a_bad_env_file_or_a_missing_group_stops_nothing(tmp_path, spec):
    (tmp_path / "env").mkdir()
    spec["cgroup"] = "session-nowhere"
    result = launch(tmp_path, spec)
    assert result.returncode == 0
    assert b"was not loaded" in result.stderr
    assert b"without the session's limits" in result.stderr


def test_nobody_listens(tmp_path, spec):
    spec["notify"] = str(tmp_path / "none")
    assert launch(tmp_path, spec).returncode == 0


@pytest.mark.parametrize("data", [None, b"", b"{", b"\xff"])
def test_an_unreadable_spec(tmp_path, data):
    path = tmp_path / "spec.json"
    if data is not None:
        path.write_bytes(data)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([*RUN, str(path)], capture_output=True, env=env, check=False)
    assert result.returncode == 1
    assert b"launch spec" in result.stderr
    assert b"Traceback" not in result.stderr
