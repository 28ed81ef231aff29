"""A disk that loses what was not flushed when the power goes.

QEMU's own disks keep every write that left the guest, as if each had a battery. Real ones have
a volatile cache: until the guest flushes it, a write may be lost, and another one, issued
later, may survive. `LossyDisk` is such a disk. It lives in this process and outlives the
machine; the guest reaches it through the kernel's network block device.

The connection carries the transmission phase of the protocol only. Its handshake would tell
the client size and features, which `attach_command` knows.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import struct
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from agent_box_harness.guest.cache import find_program
from agent_box_harness.guest.initrd import GATEWAY

if TYPE_CHECKING:
    import random

BLOCK = 4096
"""Bytes that are written whole or not at all, as on a drive with sectors of that size."""

_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
_READ, _WRITE, _DISCONNECT, _FLUSH = range(4)
_INVALID = 22  # EINVAL
_SEND_FLUSH = 1 | 4  # the flags are valid; the disk takes flushes

CHANNEL = "/run/lossy-disk"
"""Where the disk is waited for in the guest."""

# The ioctls are those of linux/nbd.h: socket, block size, blocks, flags, and the one that serves
# the device for as long as the connection lasts.
_ATTACH = """\
import fcntl, os, socket, sys
host, *numbers = sys.stdin.readline().split()
port, size, block, flags = map(int, numbers)
sock = socket.create_connection((host, port))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
device = os.open("/dev/nbd0", os.O_RDWR)
for request, value in ((0, sock.fileno()), (1, block), (7, size // block), (10, flags)):
    fcntl.ioctl(device, 0xAB00 + request, value)
fcntl.ioctl(device, 0xAB03)
"""

AWAIT_COMMAND = (
    f"modprobe nbd nbds_max=1 max_part=0; mkfifo {CHANNEL}; "
    f"setsid -f python3 -I -c {shlex.quote(_ATTACH)} <>{CHANNEL} >/dev/null 2>&1"
)
"""For root in the guest: wait for a disk. Python takes seconds to start under emulation."""


@dataclass(frozen=True)
class Loss:
    """What a cut did."""

    unflushed: int
    """Blocks that were written since the last flush."""
    lost: int
    """How many of those are gone."""


class LossyDisk:
    """A disk that holds `content` at first. Use it as a context manager."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self._current = bytearray(content)
        self._stable = bytearray(content)
        self._pending: list[int] = []
        """Numbers of the blocks in which the two differ, in the order of the writes."""
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="lossy-disk", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Be gone; a guest that still uses the disk gets I/O errors."""
        # Closing alone would not wake the thread that waits in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._hang_up()

    @classmethod
    def formatted(cls, size: int) -> LossyDisk:
        """Return a disk of `size` bytes with an empty ext4 on it."""
        mke2fs = find_program("mke2fs") or "mke2fs"
        with tempfile.NamedTemporaryFile(prefix="agent-box-disk-") as file:
            file.truncate(size)
            subprocess.run(
                [mke2fs, "-q", "-F", "-t", "ext4", "-b", str(BLOCK), file.name], check=True
            )
            return cls(Path(file.name).read_bytes())

    def attach_command(self) -> str:
        """Return a command line, for root in the guest, that makes the disk `/dev/nbd0` there.

        The guest has to wait for it: see `AWAIT_COMMAND`.
        """
        words = f"{GATEWAY} {self.port} {self.size} {BLOCK} {_SEND_FLUSH}"
        there = "until [ -e /sys/block/nbd0/pid ]; do sleep 0.05; done"
        return f"echo {words} >{CHANNEL}; {there}"

    def cut(self, rng: random.Random, share: float | None = None) -> Loss:
        """Lose the power: of each block that was not flushed the old or the new content stays.

        Call it when the guest is gone. How much is lost is drawn first, so that cuts which
        lose all or nothing are not rare; `share` says it instead, from 0 to 1.
        """
        self._hang_up()
        with self._lock:
            if share is None:
                share = rng.choice((0.0, 0.5, 1.0, rng.random()))
            # The last write of a block is the one that counts here.
            unflushed = list(dict.fromkeys(self._pending))
            lost = [number for number in unflushed if rng.random() < share]
            for number in lost:
                place = slice(number * BLOCK, (number + 1) * BLOCK)
                self._current[place] = self._stable[place]
            self._settle()
            return Loss(len(unflushed), len(lost))

    def _settle(self) -> None:
        for number in dict.fromkeys(self._pending):
            place = slice(number * BLOCK, (number + 1) * BLOCK)
            self._stable[place] = self._current[place]
        self._pending.clear()

    def _hang_up(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._hang_up()
            self._peer = peer
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        # A connection that breaks is a machine that ended.
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _receive(peer, _REQUEST.size)
                magic, _, kind, handle, offset, length = _REQUEST.unpack(head)
                if magic != _REQUEST_MAGIC or kind == _DISCONNECT:
                    return
                data = _receive(peer, length) if kind == _WRITE else b""
                error, answer = self._carry_out(kind, offset, length, data)
                peer.sendall(_REPLY.pack(_REPLY_MAGIC, error, handle) + answer)

    def _carry_out(self, kind: int, offset: int, length: int, data: bytes) -> tuple[int, bytes]:
        with self._lock:
            if kind == _FLUSH:
                self._settle()
                return 0, b""
            aligned = offset % BLOCK == 0 and length % BLOCK == 0
            if kind not in (_READ, _WRITE) or not aligned or offset + length > self.size:
                return _INVALID, b""
            place = slice(offset, offset + length)
            if kind == _READ:
                return 0, bytes(self._current[place])
            self._current[place] = data
            self._pending.extend(range(offset // BLOCK, (offset + length) // BLOCK))
            return 0, b""


def _receive(peer: socket.socket, length: int) -> bytes:
    buffer = bytearray()
    while len(buffer) < length:
        chunk = peer.recv(min(length - len(buffer), 1 << 20))
        if not chunk:
            raise EOFError
        buffer += chunk
    return bytes(buffer)
