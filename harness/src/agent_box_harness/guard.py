"""Ends the processes that we started when we end, however that happens.

What runs in a control group of ours ends with it, and the group is removed: the processes of a
container are not children of what started it.

PR_SET_PDEATHSIG would fire when the *thread* that started a machine ends, so a
small shell holds the read end of a pipe instead: it learns the pids, and at end
of file, which no exit of ours can avoid, it kills those still listed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from agent_box_harness.errors import MachineError

_LAST_WORDS = 5.0
"""Seconds in which what is asked to end may do so."""

_SCRIPT = """
trap '' INT TERM HUP
things=' '
while read -r op thing; do
  case $op in
    add) things="$things$thing " ;;
    del) things="${things%% $thing *} ${things#* $thing }" ;;
  esac
done
for thing in $things; do
  case $thing in /*) continue ;; esac
  kill -KILL "$thing"
done 2>/dev/null
for thing in $things; do
  case $thing in /*) ;; *) continue ;; esac
  tries=0
  while [ -d "$thing" ] && [ $tries -lt 50 ]; do
    # cgroup.kill needs Linux 5.14.
    echo 1 >"$thing/cgroup.kill" ||
      find "$thing" -name cgroup.procs -exec cat {} + | xargs -r kill -KILL
    find "$thing" -depth -type d -exec rmdir {} +
    tries=$((tries + 1))
    sleep 0.1
  done
done 2>/dev/null
"""

_lock = threading.Lock()
_guardian: subprocess.Popen[bytes] | None = None
_guarded: set[int] = set()


def protect(process: subprocess.Popen[bytes]) -> None:
    """Make sure that `process` does not outlive us."""
    with _lock:
        _guarded.add(process.pid)
        _tell(f"add {process.pid}")


def release(process: subprocess.Popen[bytes]) -> None:
    """Forget a process that has ended."""
    with _lock:
        if process.pid in _guarded:
            _guarded.discard(process.pid)
            _tell(f"del {process.pid}")


def protect_group(group: Path) -> None:
    """Make sure that nothing in a control group outlives us, nor the group itself."""
    _tell(f"add {group}")


def release_group(group: Path) -> None:
    """Forget a control group that was removed."""
    _tell(f"del {group}")


def end(process: subprocess.Popen[bytes], patience: float = 0.0) -> None:
    """Kill a process (after SIGTERM and `patience` seconds, if any) and reap it."""
    if process.poll() is None and patience > 0:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    if process.poll() is None:
        process.kill()
    process.wait()
    release(process)


def kill(pid: int, seconds: float = 5.0) -> None:
    """Kill a process that is not our child, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Return whether a process runs; one that waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # It may end while one looks.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    return False


def _tell(line: str) -> None:
    global _guardian
    if _guardian is None or _guardian.poll() is not None:
        _guardian = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(_at_exit)
    if _guardian.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            _guardian.stdin.write(line.encode() + b"\n")
            _guardian.stdin.flush()


def _at_exit() -> None:
    for pid in sorted(_guarded):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def cut_short(process: subprocess.Popen[bytes], what: str) -> bytes:
    """End a process group as timeout(1) does; return all that it put out.

    Whoever has left the group, as a daemon does, stays. Errors call it `what`.
    """
    for end in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _LAST_WORDS
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, end)
            while time.monotonic() < deadline:
                process.poll()  # a dead one that nobody asked about is still of the group
                os.killpg(process.pid, 0)
                time.sleep(0.02)
    try:
        return process.communicate(timeout=_LAST_WORDS)[0] or b""
    except subprocess.TimeoutExpired:
        raise MachineError(f"`{what[:200]}` does not end") from None
