"""A forward lives as long as what it leads into, not as who asked for it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from agent_box_harness import forwarder
from agent_box_harness.errors import MachineError

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root for a network of its own"
)

SYSTEMD = """\
import subprocess
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
ThreadingHTTPServer(("127.0.0.1", 80), SimpleHTTPRequestHandler).serve_forever()
"""
NSPAWN = f"""\
import subprocess, sys
while True:
    inside = subprocess.Popen(["unshare", "--net", sys.executable, "-c", {SYSTEMD!r}])
    print(inside.pid, flush=True)
    inside.wait()
"""
"""What starts its inside again when that has ended, as a container does that restarts itself."""
STARTER = """\
import sys
from agent_box_harness import forwarder
print(forwarder.lasting(int(sys.argv[1]), int(sys.argv[2]), 0, 80))
"""


@pytest.fixture
def container():
    process = subprocess.Popen([sys.executable, "-c", NSPAWN], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    inside = forwarder.child(process.pid)
    if inside:
        os.kill(inside, signal.SIGKILL)
    process.wait()


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return connection.recv(20).startswith(b"HTTP/1.0 200")
    except OSError:
        return False


def until(condition):
    end = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_it_outlives_its_starter_and_ends_with_the_box(container):
    """Through a restart of the box from within, too."""
    inside = int(container.stdout.readline())
    argv = [sys.executable, "-c", STARTER, str(container.pid), str(inside)]
    # All that it printed: a forward that kept the pipe open would keep this waiting.
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20)
    port = int(done.stdout)
    until(lambda: answers(port))
    os.kill(inside, signal.SIGKILL)
    inside = int(container.stdout.readline())
    until(lambda: answers(port))
    container.kill()
    until(lambda: refused(port))
    os.kill(inside, signal.SIGKILL)


def test_a_port_that_is_taken_is_told(container):
    inside = int(container.stdout.readline())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=f"port {port} cannot be forwarded"):
            forwarder.lasting(container.pid, inside, port, 80)
