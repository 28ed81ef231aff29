"""Forwards a TCP port of the host into another network namespace, with no privileges there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
from pathlib import Path

from agent_box_harness.errors import MachineError

_CLONE_NEWNET = 0x40000000


class PortForward:
    """Listens on 127.0.0.1 and connects every client to a port on the other side's loopback.

    One thread of this process lives in the other namespace; a socket belongs to
    the namespace in which it was made, so the copying can happen anywhere.
    """

    def __init__(self, pid: int, host: int, guest: int) -> None:
        self._guest = guest
        self._listener = socket.create_server(("127.0.0.1", host))
        self.port = int(self._listener.getsockname()[1])
        self._namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        self._failure: OSError | None = None
        entered = threading.Event()
        threading.Thread(target=self._serve, args=(entered,), daemon=True).start()
        entered.wait()
        if self._failure is not None:
            self._listener.close()
            raise MachineError(f"cannot enter the machine's network: {self._failure}")

    def close(self) -> None:
        """Stop taking connections."""
        # Closing alone would leave the thread in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, entered: threading.Event) -> None:
        try:
            enter_network(self._namespace)
        except OSError as error:
            self._failure = error
            return
        finally:
            os.close(self._namespace)
            entered.set()
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                inner = socket.create_connection(("127.0.0.1", self._guest), timeout=10)
            except OSError:
                client.close()
                continue
            inner.settimeout(None)
            for source, sink in ((client, inner), (inner, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def enter_network(namespace: int) -> None:
    """Move the calling thread into the network namespace open at that descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unified_root() -> Path | None:
    """Return where cgroup v2 is mounted, or None when it is not."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mounted = next((fields[1] for fields in mounts if fields[2] == "cgroup2"), None)
    return None if mounted is None else Path(mounted)


def unified_cgroup(pid: int) -> Path | None:
    """Return the directory of a process's cgroup v2, or None when that is not mounted."""
    mounted = unified_root()
    if mounted is None:
        return None
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        hierarchy, _, path = line.split(":", 2)
        if hierarchy == "0":
            return mounted / path.lstrip("/")
    return None


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
