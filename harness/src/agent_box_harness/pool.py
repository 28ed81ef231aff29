"""The root shells of one machine, handed to one command at a time each."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from agent_box_harness.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_box_harness.shell import ShellChannel

_SYNC_SECONDS = 60.0


class ShellPool:
    """Several channels to the same guest.

    The first is the one whose banner ends the boot. A further one serves when
    the first is busy, or lost to a command that never came back.
    """

    def __init__(self, channels: Sequence[ShellChannel]) -> None:
        self._channels = list(channels)
        self._idle = list(channels)
        self._changed = threading.Condition()

    def connect(self, seconds: float, alive: Callable[[], bool]) -> None:
        """Wait until a shell takes requests. Raises MachineError when the machine ends."""
        deadline = time.monotonic() + seconds
        with self._changed:
            if any(channel.ready for channel in self._channels):
                return
        channel = self._take()
        try:
            while not channel.prepare(min(1.0, max(0.0, deadline - time.monotonic()))):
                if not alive():
                    raise MachineError("the machine ended while it was booting")
                if time.monotonic() > deadline:
                    raise MachineError(f"no root shell within {seconds:.0f} s of the start")
        finally:
            self._give(channel)

    def run(
        self, command: str, timeout: float | None, stdin: bytes | None, grace: float
    ) -> tuple[int, bytes]:
        """Run a command on a free shell; see `ShellChannel.run`."""
        channel = self._take_ready()
        try:
            result = channel.run(command, timeout, stdin, grace)
        except MachineError:
            # Where its answer would begin is no longer known.
            self._drop(channel)
            raise
        except BaseException:
            self._drop(channel)
            raise
        self._give(channel)
        return result

    def send(self, data: bytes) -> None:
        """Send to a free shell without expecting an answer."""
        channel = self._take_ready()
        try:
            channel.send(data)
        finally:
            self._give(channel)

    def close(self) -> None:
        """Close every channel."""
        with self._changed:
            for channel in self._channels:
                channel.close()
            self._channels, self._idle = [], []
            self._changed.notify_all()

    def _take(self) -> ShellChannel:
        with self._changed:
            while not self._idle:
                if not self._channels:
                    raise MachineError("every root shell of the machine is lost")
                self._changed.wait()
            return self._idle.pop(0)

    def _take_ready(self) -> ShellChannel:
        with self._changed:
            while True:
                if not self._channels:
                    raise MachineError("every root shell of the machine is lost")
                for channel in list(self._idle):
                    if channel.ready or self._prepared(channel):
                        self._idle.remove(channel)
                        return channel
                self._changed.wait(0.05)

    def _prepared(self, channel: ShellChannel) -> bool:
        try:
            # A shell that is starting must not hold up one that will soon be free.
            others_ready = any(other.ready for other in self._channels)
            return channel.prepare(0.0 if others_ready and channel.booting else _SYNC_SECONDS)
        except MachineError:
            self._channels.remove(channel)
            self._idle.remove(channel)
            channel.close()
            return False

    def _give(self, channel: ShellChannel) -> None:
        with self._changed:
            if channel in self._channels:
                self._idle.append(channel)
                self._idle.sort(key=self._channels.index)
            self._changed.notify()

    def _drop(self, channel: ShellChannel) -> None:
        with self._changed:
            if channel in self._channels:
                self._channels.remove(channel)
            channel.close()
            self._changed.notify_all()
