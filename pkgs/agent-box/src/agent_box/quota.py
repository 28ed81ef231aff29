"""agent-box-quota: tells the file system of each home how much its user may keep there.

By user and not by directory: the owner of a file says which project it belongs to, and says
nothing about whose it is.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import struct
import sys
from pathlib import Path

from agent_box import config
from agent_box.errors import AgentBoxError

log = logging.getLogger(__name__)

_QUOTACTL_FD = 443
_SET_QUOTA, _GET_QUOTA, _OF_USERS = 0x800008, 0x800007, 0
_BLOCK_LIMITS = 1
_RECORD = "=8QI4x"
"""struct if_dqblk: limits in KiB and files, use, times, and which of it is meant."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_REMEDIES = {
    "ext2": "add the mount option usrquota; after that, once, as root: quotacheck -u, quotaon",
    "ext4": "unmounted, run tune2fs -O quota, and add the mount option usrquota",
    "xfs": "add the mount option uquota; for the root file system, rootflags=uquota",
    "btrfs": "it has none by user: make the home a subvolume and use btrfs qgroup limit",
    "zfs": "use zfs set userquota@USER=SIZE",
}


def main() -> int:
    """Apply the limits of all users; what fails for one is done for the others."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        box = config.load()
    except AgentBoxError as error:
        log.error("%s", error)
        return error.exit_code
    failed = 0
    for name, user in sorted(box.users.items()):
        if user.disk_max is None:
            continue
        home = Path(user.home)
        try:
            size = parse_size(user.disk_max, _size_of(home))
            limit(home, home.stat().st_uid, size)
            log.info("%s may keep %d MiB on the file system of %s", name, size >> 20, home)
        except OSError as error:
            failed = 1
            log.error("no limit of disk for %s: %s", name, explain(error, _kind_of(home)))
    return failed


def parse_size(text: str, whole: int) -> int:
    """Return the bytes of a size, or of a share of `whole`."""
    if text.endswith("%"):
        return whole * int(text[:-1]) // 100
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if found is None:
        raise ValueError(f"{text!r} is no size")
    return int(found[1]) * _UNITS[found[2]]


def limit(home: Path, uid: int, size: int) -> None:
    """Let user `uid` keep `size` bytes on the file system of `home`."""
    kib = size >> 10
    record = ctypes.create_string_buffer(
        struct.pack(_RECORD, kib, kib, 0, 0, 0, 0, 0, 0, _BLOCK_LIMITS)
    )
    _call(home, _SET_QUOTA, uid, record)
    now = ctypes.create_string_buffer(struct.calcsize(_RECORD))
    _call(home, _GET_QUOTA, uid, now)
    if struct.unpack(_RECORD, now.raw[: struct.calcsize(_RECORD)])[0] != kib:
        raise OSError(errno.ENOSYS, "the file system took a limit and did not keep it")


def explain(error: OSError, kind: str) -> str:
    """Say what is missing on a file system of this kind, and how to get it."""
    if error.errno not in (errno.ESRCH, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY):
        return str(error)
    remedy = _REMEDIES.get(kind, "move the home to ext4 or xfs with quotas")
    return f"its {kind} file system counts by no user. To have it count, {remedy}"


def _call(home: Path, command: int, uid: int, record: ctypes.Array[ctypes.c_char]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if libc.syscall(_QUOTACTL_FD, handle, command << 8 | _OF_USERS, uid, record) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(handle)


def _size_of(home: Path) -> int:
    found = os.statvfs(home)
    return found.f_blocks * found.f_frsize


def _kind_of(home: Path) -> str:
    """Return the kind of the file system that `home` is on: of the mount nearest to it."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if home.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind
