"""How much of a disk a user may keep: sizes, and what a file system without quotas is told."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent_box import quota

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"), [("10G", 10 * GIB), ("50%", 50 * GIB), ("4096", 4096), ("1T", 1024 * GIB)]
)
def test_sizes(text: str, size: int) -> None:
    assert quota.parse_size(text, 100 * GIB) == size


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs"])
def test_a_file_system_without_quotas_is_told_what_to_do(kind: str) -> None:
    text = quota.explain(OSError(errno.ESRCH, "No such process"), kind)
    assert kind in text
    assert "No such process" not in text


def test_what_cannot_be_limited_is_said_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the real system call; no place for temporary files has quotas."""
    caplog.set_level(logging.INFO)
    user = {"shell": "/bin/sh", "runtimeDirectory": "/run/x", "slice": "x.slice"}
    document = {
        "version": 1,
        "defaultAgent": "shell",
        "programs": {"tmux": "tmux", "launch": "launch"},
        "agents": {},
        "users": {
            "alice": {**user, "home": str(tmp_path / "missing"), "diskMax": "1G"},
            "bob": {**user, "home": str(tmp_path), "diskMax": "10%"},
            "carol": {**user, "home": str(tmp_path)},
        },
    }
    path = tmp_path / "box.json"
    path.write_bytes(msgspec.json.encode(document))
    monkeypatch.setenv("AGENT_BOX_CONFIG", str(path))
    assert quota.main() == 1
    told = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in told] == [
        "no limit of disk for alice",
        "no limit of disk for bob",
    ]
