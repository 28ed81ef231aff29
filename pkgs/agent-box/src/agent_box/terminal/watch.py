"""Waits beside a terminal's tmux client, and ends it when the login ends. Or waits for Enter.

There is one such process for each open terminal. So it runs as a program of its own, which loads
next to nothing, in the place of the one that looked the session up.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # spares each terminal the import of typing
if TYPE_CHECKING:
    from typing import NoReturn

ENDED = "Your login has ended. Sign in again to go on: the session itself still runs."

_IN_ATTRIB, _IN_MOVE_SELF, _IN_DELETE_SELF = 0x4, 0x800, 0x400
_IN_CLOEXEC = 0o2000000
_PR_SET_PDEATHSIG = 1
_DELIVERY = 0.5  # seconds
_GRACE = 1000  # milliseconds for tmux to leave the terminal as it was


def become(pid: int, live: str | os.PathLike[str]) -> NoReturn:
    """Turn this process into the watcher of its child `pid` and of the file `live`."""
    argv = [sys.executable, "-IS", __file__, str(pid), os.fspath(live)]
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted


def hold(text: str, live: str | os.PathLike[str], again: list[str]) -> NoReturn:
    """Show a text, and turn this process into one that becomes `again` on Enter."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.write(text)
    sys.stdout.flush()
    argv = [sys.executable, "-IS", __file__, "hold", os.fspath(live), *again]
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted


def die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def watch(pid: int, live: str) -> int:
    """Wait until the child or the login ends; return the status to end with."""
    child = os.pidfd_open(pid)
    if _ready(child, live):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _end(pid, child)
    _say_that_it_ended()
    return 0


def wait_for_enter(live: str, again: list[str]) -> int:
    """Become `again` when somebody presses Enter; return the status to end with otherwise."""
    if not _ready(0, live):
        _say_that_it_ended()
    elif os.read(0, 4096):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv(again[0], again)  # noqa: S606 - no shell is wanted
    return 0


def _ready(awaited: int, live: str) -> bool:
    """Wait until a descriptor can be read; return False when the login has ended before."""
    libc = ctypes.CDLL(None, use_errno=True)
    changes = libc.inotify_init1(_IN_CLOEXEC)
    mask = _IN_ATTRIB | _IN_MOVE_SELF | _IN_DELETE_SELF
    poll = select.poll()
    poll.register(awaited, select.POLLIN)
    # No watch also means that the file has gone already, which the loop notices.
    if changes >= 0 and libc.inotify_add_watch(changes, os.fsencode(live), mask) >= 0:
        poll.register(changes, select.POLLIN)
    while os.path.exists(live):  # noqa: PTH110 - pathlib is slow to import
        for descriptor, _ in poll.poll():
            if descriptor == awaited:
                return True
            os.read(changes, 4096)
    return False


def _say_that_it_ended() -> None:
    sys.stdout.write(f"\r\n  {ENDED}\r\n\n")
    sys.stdout.flush()
    # ttyd drops what it has not sent yet when the program ends.
    time.sleep(_DELIVERY)


def _end(pid: int, child: int) -> None:
    poll = select.poll()
    poll.register(child, select.POLLIN)
    for number in (signal.SIGHUP, signal.SIGKILL):
        signal.pidfd_send_signal(child, number)
        if poll.poll(_GRACE):
            break
    os.waitpid(pid, 0)


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        sys.exit(wait_for_enter(sys.argv[2], sys.argv[3:]))
    sys.exit(abs(watch(int(sys.argv[1]), sys.argv[2])))
