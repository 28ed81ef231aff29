"""The parts of the guest builder that need no guest."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import tarfile

import pytest

from agent_box_harness.errors import BuildError
from agent_box_harness.guest import cache, packages
from agent_box_harness.guest.additions import add_guest_files, wake_command
from agent_box_harness.guest.base import debian_mirror
from agent_box_harness.guest.cpio import CpioWriter
from agent_box_harness.guest.host import Accounts, install_rendered, install_runtime
from agent_box_harness.guest.image import find_repo
from agent_box_harness.guest.initrd import unpack_kernel
from agent_box_harness.guest.layer import Layer
from agent_box_harness.guest.storemap import substitute, unmapped

HOSTS = sorted(
    path.name for path in (find_repo() / "nixos-tests" / "rendered").glob("*") if path.is_dir()
)


@pytest.fixture
def accounts():
    return Accounts(
        passwd=["root:x:0:0:root:/root:/bin/bash", "caddy:x:996:996::/var/lib/caddy:/bin/false"],
        group=["root:x:0:", "shadow:x:42:", "caddy:x:996:"],
        shadow=["root:*:1::::::"],
        gshadow=["root:*::"],
    )


# -- the store map -----------------------------------------------------------


def test_placeholders_become_debian_paths():
    text = "ExecStart=@tmux@/bin/tmux -D\nPATH=@claude-code@/bin:@coreutils@/bin"
    assert substitute(text, "x.service") == (
        "ExecStart=/usr/bin/tmux -D\nPATH=/opt/agents/claude/bin:/usr/bin"
    )


def test_an_unmapped_name_is_an_error_that_names_it_and_its_file():
    with pytest.raises(BuildError, match=r"x\.service uses @frobnicator@"):
        substitute("ExecStart=@frobnicator@/bin/x", "x.service")
    assert unmapped(["tmux", "frobnicator"]) == ["frobnicator"]


def test_system_call_groups_are_no_placeholders():
    text = "SystemCallFilter=~@clock @cpu-emulation @module"
    assert substitute(text, "x") == text


@pytest.mark.parametrize("host", HOSTS)
def test_the_table_covers_every_rendered_host(host):
    manifest = find_repo() / "nixos-tests" / "rendered" / host / "manifest.json"
    assert unmapped(json.loads(manifest.read_text())["store"]) == []


@pytest.mark.parametrize("host", HOSTS)
def test_every_rendered_host_installs(host, accounts):
    layer = Layer()
    install_rendered(layer, find_repo() / "nixos-tests" / "rendered" / host, accounts)
    box = json.loads(layer.text("/etc/agent-box/box.json"))
    for user, facts in box["users"].items():
        home = layer.nodes[facts["home"]]
        assert (home.kind, home.mode) == ("dir", 0o700)
        assert home.uid >= 1000
        assert (
            f"/etc/systemd/system/multi-user.target.wants/agent-box-{user}.service" in layer.nodes
        )
    assert layer.nodes["/etc/sudoers"].mode == 0o440


# -- accounts ----------------------------------------------------------------


def test_an_account_of_debian_is_kept_without_the_groups_of_debian(accounts):
    accounts.group.append("www-data:x:33:mail,caddy")
    caddy = {"name": "caddy", "uid": 239, "home": "/var/lib/caddy", "shell": "/bin/false",
             "group": "caddy", "extraGroups": [], "system": True}  # fmt: skip
    ids = accounts.add({"groups": [], "users": [caddy]})
    assert ids == {"caddy": (996, 996)}
    assert accounts.group[-1] == "www-data:x:33:mail"
    assert sum(line.startswith("caddy:") for line in accounts.passwd) == 1


def test_accounts_get_free_ids_and_groups(accounts):
    ids = accounts.add(
        {
            "groups": ["alice", "bob"],
            "users": [
                {"name": "alice", "uid": None, "home": "/home/alice", "shell": "/bin/bash",
                 "group": "alice", "extraGroups": ["wheel"], "system": False},
                {"name": "bob", "uid": 1500, "home": "/home/bob", "shell": "/bin/bash",
                 "group": "bob", "extraGroups": ["wheel", "caddy"], "system": False},
                {"name": "gate", "uid": None, "home": "/var/empty", "shell": "/bin/false",
                 "group": "gate", "extraGroups": [], "system": True},
            ],
        }
    )  # fmt: skip
    assert ids["alice"] == (1000, 1000)
    assert ids["bob"] == (1500, 1001)
    assert ids["gate"][0] < 1000
    assert "caddy:x:996:bob" in accounts.group
    assert any(
        line.startswith("wheel:x:") and line.endswith(":alice,bob") for line in accounts.group
    )
    assert all(line.split(":")[1] == "!" for line in accounts.shadow[1:])


# -- the layer ---------------------------------------------------------------


def test_a_layer_is_the_same_bytes_in_any_order():
    one, two = Layer(), Layer()
    one.file("/a/b", "x")
    one.directory("/home/u", 0o700, 1000, 1000)
    two.directory("/home/u", 0o700, 1000, 1000)
    two.file("/a/b", "x")
    assert one.tar() == two.tar()
    assert one.digest() == two.digest()
    two.file("/a/b", "y")
    assert one.digest() != two.digest()


def test_a_layer_keeps_owners_modes_and_links():
    layer = Layer()
    layer.file("/etc/sudoers", "x", 0o440)
    layer.directory("/home/u", 0o700, 1000, 1001)
    layer.mask("some.timer")
    with tarfile.open(fileobj=io.BytesIO(layer.tar())) as archive:
        assert archive.getmember("etc/sudoers").mode == 0o440
        home = archive.getmember("home/u")
        assert (home.isdir(), home.uid, home.gid) == (True, 1000, 1001)
        assert archive.getmember("etc/systemd/system/some.timer").linkname == "/dev/null"


def test_paths_must_be_absolute_and_straight():
    for path in ("etc/x", "/etc/../x"):
        with pytest.raises(ValueError, match="absolute"):
            Layer().file(path, "")


def test_the_runtime_gets_isolated_launchers(tmp_path):
    (tmp_path / "src" / "agent_box" / "__pycache__").mkdir(parents=True)
    (tmp_path / "src" / "agent_box" / "x.py").write_text("")
    (tmp_path / "src" / "agent_box" / "__pycache__" / "x.pyc").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname="x"\n[project.scripts]\nagent-box-x = "agent_box.x:main"\n'
    )
    layer = Layer()
    install_runtime(layer, tmp_path)
    assert layer.text("/usr/bin/agent-box-x").startswith("#!/usr/bin/python3 -I\n")
    assert "from agent_box.x import main" in layer.text("/usr/bin/agent-box-x")
    assert "/usr/lib/python3/dist-packages/agent_box/x.py" in layer.nodes
    assert not any("__pycache__" in path for path in layer.nodes)


def test_without_agents_nothing_is_mounted_but_the_links_are_there():
    layer = Layer()
    add_guest_files(layer, "box", "ssh-ed25519 AAAA test", agents=False)
    assert layer.text("/etc/fstab") == ""
    for agent, (_package, program) in packages.AGENTS.items():
        assert layer.nodes[f"/opt/agents/{agent}/bin/{program}"].kind == "link"
    assert len(layer.text("/etc/machine-id").strip()) == 32


def test_the_wake_command_is_one_shell_word_of_perl():
    command = wake_command(1.5, bytes(64))
    assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0


# -- initrd and kernel -------------------------------------------------------


def test_the_cpio_is_what_busybox_reads(tmp_path):
    out = CpioWriter()
    out.directory("/bin")
    out.file("/bin/x", b"content", 0o755)
    out.link("/bin/y", "x")
    archive = out.finish()
    assert len(archive) % 512 == 0
    magic, names = archive[:6], archive
    assert magic == b"070701"
    assert b"TRAILER!!!" in names
    # header 110 bytes, name padded to 4, data padded to 4
    assert archive.index(b"bin/x\0") % 4 == 110 % 4


def test_a_kernel_payload_is_found_by_the_boot_header():
    import lzma

    payload = lzma.compress(b"\x7fELF kernel", check=lzma.CHECK_CRC32)
    image = bytearray(0x400 * 2)
    image[0x1F1] = 1  # one setup sector, so the payload area starts at 1024
    struct.pack_into("<II", image, 0x248, 16, len(payload) + 4)
    image[1024 + 16 : 1024 + 16] = payload + struct.pack("<I", 11)
    assert unpack_kernel(bytes(image)) == b"\x7fELF kernel"
    image[1024 + 16] = 0
    assert unpack_kernel(bytes(image)) is None


# -- the cache ---------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_keys_follow_content(tmp_path):
    file = tmp_path / "f"
    file.write_text("1")
    before = cache.digest(["a"], file)
    assert cache.digest(["a"], file) == before
    file.write_text("2")
    assert cache.digest(["a"], file) != before


def test_an_entry_is_made_once_and_whole(own_cache):
    calls = []

    def make(directory):
        calls.append(directory)
        (directory / "x").write_text("x")

    first = cache.entry("kind", "key", make)
    assert cache.entry("kind", "key", make) == first
    assert len(calls) == 1
    assert (first / "x").read_text() == "x"


def test_a_failed_entry_leaves_nothing(own_cache):
    def fail(directory):
        (directory / "half").write_text("")
        raise BuildError("no")

    with pytest.raises(BuildError):
        cache.entry("kind", "key", fail)
    assert not [path for path in (cache.cache_root() / "kind").iterdir() if path.is_dir()]


def test_prune_keeps_the_new_the_named_and_other_hosts(own_cache):
    made = {
        name: cache.entry("kind", name, lambda directory: None)
        for name in ("test-old", "test-new", "test-now", "vm-old")
    }
    for name in ("test-old", "vm-old", "test-now"):
        os.utime(made[name], (1, 1))
    cache.prune("kind", "test", made["test-now"], 3600)
    left = {path.name for path in (cache.cache_root() / "kind").iterdir() if path.is_dir()}
    assert left == {"test-new", "test-now", "vm-old"}


def test_prune_minds_no_other_that_prunes(own_cache, monkeypatch):
    old = cache.entry("kind", "test-old", lambda directory: (directory / "log").write_text(""))
    now = cache.entry("kind", "test-now", lambda directory: None)
    os.utime(old, (1, 1))
    remove = cache.remove_tree

    def remove_while_another_does(path):
        cache.prune("kind", "test", now, 3600)
        remove(path)

    monkeypatch.setattr(cache, "remove_tree", remove_while_another_does)
    cache.prune("kind", "test", now, 3600)
    left = {path.name for path in (cache.cache_root() / "kind").iterdir() if path.is_dir()}
    assert left == {"test-now"}


def test_missing_programs_are_named_by_package():
    with pytest.raises(BuildError, match="apt-get install surely-no-such-program"):
        cache.need_programs("sh", "surely-no-such-program")


# -- the mirror --------------------------------------------------------------


def mirror(tmp_path, release, **files):
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        path = "sources.list" if name == "plain" else f"sources.list.d/{name}.sources"
        (apt / path).write_text(text)
    (tmp_path / "os-release").write_text(release)
    return debian_mirror(apt, tmp_path / "os-release")


DEBIAN = "ID=debian\nVERSION_CODENAME=bookworm\n"


def test_the_mirror_of_a_deb822_source(tmp_path):
    text = (
        "Types: deb\n# a comment: with a colon\nURIs: http://mirror.test/debian\n"
        "Suites: bookworm bookworm-updates\nComponents: main\n\n"
        "Types: deb\nURIs: http://security.test\nSuites: bookworm-security\nComponents: main\n"
    )
    assert mirror(tmp_path, DEBIAN, debian=text) == "http://mirror.test/debian"


def test_the_mirror_of_a_one_line_source(tmp_path):
    text = (
        "# deb http://commented.test bookworm main\n"
        "deb http://other.test stable main\n"
        "deb [signed-by=/x] http://mirror.test/debian bookworm main contrib\n"
    )
    assert mirror(tmp_path, DEBIAN, plain=text) == "http://mirror.test/debian"


def test_another_distribution_leaves_the_mirror_to_mmdebstrap(tmp_path):
    text = "deb http://mirror.test/ubuntu noble main\n"
    assert mirror(tmp_path, "ID=ubuntu\nVERSION_CODENAME=noble\n", plain=text) is None
