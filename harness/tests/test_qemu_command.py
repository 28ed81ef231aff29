"""The command line of QEMU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent_box_harness.accel import tcg
from agent_box_harness.qemu_command import Frozen, QemuFiles, QemuOptions, qemu_argv

OPTIONS = QemuOptions(QemuFiles(Path("/k"), Path("/i"), Path("/d")), tcg("a test"))


def argv(options=OPTIONS, **changes):
    facts = {
        "name": "box",
        "overlay": Path("/w/disk.qcow2"),
        "sockets": Path("/s"),
        "serial": Path("/w/serial.log"),
        "forwards": {},
        "incoming": False,
        **changes,
    }
    return qemu_argv(options, **facts)


def memory(words):
    return words[words.index("-object") + 1]


def test_the_cpu_runs_the_agent_clis():
    words = argv()
    assert words[words.index("-cpu") + 1] == "Nehalem"


def test_a_plain_boot_has_memory_of_its_own():
    assert memory(argv()).startswith("memory-backend-ram")
    assert "-incoming" not in argv()


def test_a_clone_never_writes_to_the_frozen_memory():
    frozen = replace(OPTIONS, frozen=Frozen(Path("/f/ram"), Path("/f/state")))
    words = argv(frozen, incoming=True)
    assert memory(words).endswith("mem-path=/f/ram,share=off")
    assert words[-2:] == ["-incoming", "defer"]
    # After a power cut the same machine boots: from its disk, not from the file.
    assert memory(argv(frozen)).startswith("memory-backend-ram")


def test_freezing_needs_the_memory_in_a_shared_file():
    assert memory(argv(replace(OPTIONS, keep_ram=Path("/ram")))).endswith("/ram,share=on")


def test_what_is_frozen_again_writes_to_a_copy():
    frozen = Frozen(Path("/copy"), Path("/f/state"))
    words = argv(replace(OPTIONS, frozen=frozen, keep_ram=Path("/copy")), incoming=True)
    assert memory(words).endswith("mem-path=/copy,share=on")


def test_forwards_stay_on_the_loopback():
    words = argv(forwards={22: 4022, 80: 4080})
    network = words[words.index("-netdev") + 1]
    assert network == ("user,id=net0,hostfwd=tcp:127.0.0.1:4022-:22,hostfwd=tcp:127.0.0.1:4080-:80")


def test_the_agents_disk_is_read_only():
    files = replace(OPTIONS.files, agents_disk=Path("/a.ext4"))
    assert "file=/a.ext4,if=none,id=agents,format=raw,readonly=on" in argv(
        replace(OPTIONS, files=files)
    )
