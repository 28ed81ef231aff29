"""Waits beside a terminal's tmux client, and ends it when the login ends.

There is one such process for each open terminal. So it runs as a program of its own, which loads
next to nothing, in the place of the one that looked the session up.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

TYPE_CHECKING = False  # spares each terminal the import of typing
if TYPE_CHECKING:
    from typing import NoReturn

ENDED = "Your login has ended. Sign in again to go on: the session itself still runs."

_IN_ATTRIB, _IN_MOVE_SELF, _IN_DELETE_SELF = 0x4, 0x800, 0x400
_IN_CLOEXEC = 0o2000000
_PR_SET_PDEATHSIG = 1
_GRACE = 1000  # milliseconds for tmux to leave the terminal as it was


def become(pid: int, live: str | os.PathLike[str]) -> NoReturn:
    """Turn this process into the watcher of its child `pid` and of the file `live`."""
    argv = [sys.executable, "-IS", __file__, str(pid), os.fspath(live)]
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted


def die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def watch(pid: int, live: str) -> int:
    """Wait until the child or the login ends; return the status to end with."""
    child = os.pidfd_open(pid)
    libc = ctypes.CDLL(None, use_errno=True)
    changes = libc.inotify_init1(_IN_CLOEXEC)
    mask = _IN_ATTRIB | _IN_MOVE_SELF | _IN_DELETE_SELF
    poll = select.poll()
    poll.register(child, select.POLLIN)
    # No watch also means that the file has gone already, which the loop notices.
    if changes >= 0 and libc.inotify_add_watch(changes, os.fsencode(live), mask) >= 0:
        poll.register(changes, select.POLLIN)
    while os.path.exists(live):  # noqa: PTH110 - pathlib is slow to import
        for descriptor, _ in poll.poll():
            if descriptor == child:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.read(changes, 4096)
    _end(pid, child)
    sys.stdout.write(f"\r\n  {ENDED}\r\n\n")
    sys.stdout.flush()
    return 0


def _end(pid: int, child: int) -> None:
    poll = select.poll()
    poll.register(child, select.POLLIN)
    for number in (signal.SIGHUP, signal.SIGKILL):
        signal.pidfd_send_signal(child, number)
        if poll.poll(_GRACE):
            break
    os.waitpid(pid, 0)


if __name__ == "__main__":
    # A client that a signal ended counts as failed, so that the page connects anew.
    sys.exit(abs(watch(int(sys.argv[1]), sys.argv[2])))
