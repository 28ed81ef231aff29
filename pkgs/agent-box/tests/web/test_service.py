"""The service as systemd runs it: on a passed socket, gone when nobody looks, back at once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# Moves the inherited listening socket to where systemd puts it, then becomes the service.
START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="web")
from agent_box.web.service import main
main()
"""


class Service:
    def __init__(self, stand, root: Path) -> None:
        self.user = stand.user
        self.path = root / "web.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.config = stand.config
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, idle: float) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SRC), "AGENT_BOX_CONFIG": str(self.config)}
        environment["AGENT_BOX_WEB_IDLE"] = str(idle)
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(self.listener.fileno())],
            pass_fds=[self.listener.fileno()],
            env=environment,
        )

    def open(self, path: str) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(20)
        link.connect(str(self.path))
        head = (
            f"GET /{self.user}/{path} HTTP/1.1\r\nHost: x\r\nX-Agent-Box-User: {self.user}\r\n\r\n"
        )
        link.sendall(head.encode())
        return link


@pytest.fixture
def service(stand):
    made = Service(stand, stand.root)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    made.listener.close()


def test_it_goes_when_idle_and_stays_while_watched(service):
    before = time.monotonic()
    service.start(idle=1.0)
    with service.open("api/sessions") as link:
        answer = link.recv(65536)
        first = time.monotonic() - before
    assert b" 200 " in answer.splitlines()[0]
    print(f"first answer of a sleeping service after {first * 1000:.0f} ms")
    watching = service.open("events")
    assert b"text/event-stream" in watching.recv(65536)
    time.sleep(2.5)
    assert service.process.poll() is None
    used = _cpu(service.process.pid)
    time.sleep(1.5)
    assert _cpu(service.process.pid) - used <= 1  # clock ticks of 10 ms
    print(f"memory of a service with a stream: {_pss(service.process.pid)} KiB PSS")
    watching.close()
    assert service.process.wait(10) == 0
    # The socket is still there: what is asked meanwhile waits for the next one.
    link = service.open("api/agents")
    service.start(idle=60)
    assert b" 200 " in link.recv(65536).splitlines()[0]
    link.close()


def test_a_box_without_web_still_answers_its_user(service, stand):
    document = stand.document()
    document["web"] = None
    service.config.write_text(json.dumps(document))
    service.start(idle=60)
    with service.open("api/agents") as link:
        assert b" 200 " in link.recv(65536).splitlines()[0]


def test_it_tells_its_addresses_and_serves_nothing(service):
    environment = {**os.environ, "PYTHONPATH": str(SRC), "AGENT_BOX_CONFIG": str(service.config)}
    command = [sys.executable, "-c", "from agent_box.web.service import main; main()", "--routes"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = told.stdout.splitlines()
    assert len(lines) == len(set(lines)) > 40
    user = service.user
    for line in (f"GET /{user}/events", f"HEAD /{user}/api/partial-uploads/{{id}}"):
        assert line in lines
    assert f"HEAD /{user}/" not in lines


def _cpu(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _pss(pid: int) -> int:
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Pss:"))


def test_it_has_no_pages(service):
    """What a browser shows and runs is the edge's: see pages.py."""
    service.start(idle=60)
    for path in ("", "settings/", "downloads/", "assets/current/core.js", "nothing"):
        with service.open(path) as link:
            answer = b""
            while b"\r\n\r\n{" not in answer:  # head and body may come apart
                answer += link.recv(65536)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b" 404 " in head.splitlines()[0], path
            assert json.loads(body)["error"]["code"] == "not_found"
