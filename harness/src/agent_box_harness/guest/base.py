"""Builds the base root (a plain Debian) and the disk with the real agent CLIs.

Works as root and as an ordinary user with sub-uids; only root gets the unpacked
directory that the container needs.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness.errors import BuildError
from agent_box_harness.guest import packages
from agent_box_harness.guest.cache import (
    digest,
    entry,
    find_program,
    in_user_namespace,
    need_programs,
    run_logged,
)
from agent_box_harness.guest.initrd import unpack_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

DISK_SIZE = "12G"
"""Size that the guest sees; the file is sparse."""

# Runs inside mmdebstrap with the new root as $1. Inline, because in a user
# namespace the caller's own files may not be readable.
_PREPARE = f"""
set -e
root=$1 stage="$1{packages.STAGING}"
mkdir -p "$stage"
chroot "$root" sh -ec '
  cd {packages.STAGING}
  sed "s/ {packages.SUITE} / {packages.KERNEL_SUITE} /" /etc/apt/sources.list >kernel.list
  set -- -qq -o Dir::Etc::SourceList="$PWD/kernel.list" -o Dir::Etc::SourceParts=/dev/null
  apt-get "$@" update
  image=$(apt-cache "$@" depends {packages.KERNEL} | sed -n "s/.*Depends: //p" | head -1)
  apt-get "$@" download "$image"
  dpkg-deb -x "$image"_*.deb unpacked
  version=${{image#linux-image-}}
  mkdir -p /usr/lib/modules
  mv "unpacked/usr/lib/modules/$version" /usr/lib/modules/
  mv "unpacked/boot/vmlinuz-$version" vmlinuz
  rm -r unpacked "$image"_*.deb kernel.list
  depmod "$version"
  for module in {" ".join(packages.INITRD_MODULES)}; do
    modinfo -k "$version" -F filename "$module" | xargs -I@ cp @ .
  done
  cp /usr/bin/busybox .
  cp /etc/passwd /etc/group /etc/shadow /etc/gshadow .
  python3 -c "import sys; print(sys.version)" > python-version
  systemctl -q disable {" ".join(packages.DISABLED)}
  ssh-keygen -A >/dev/null
  ldconfig
  printf "%s\\n" "$version" >kernel-version
  ttyd --interface "$PWD/ttyd.sock" --debug 1 true & ttyd=$!
  curl --silent --show-error --fail --retry 50 --retry-delay 1 --retry-all-errors \
    --unix-socket ttyd.sock --output terminal.html http://localhost/
  kill $ttyd
  rm -f ttyd.sock
  chmod -R a+rX .
'
cd "$root"
rm -f etc/machine-id var/lib/dbus/machine-id etc/hostname etc/resolv.conf
"""


def build_base(progress: Callable[[str], None]) -> Path:
    """Return the cache entry with `disk.ext4`, `boot/` and, for root, `root/`."""
    key = digest(packages.SUITE, packages.BASE, packages.DISABLED, _PREPARE, DISK_SIZE, _as_root())

    def make(directory: Path) -> None:
        need_programs("mmdebstrap", "mke2fs", *([] if _as_root() else ["newuidmap"]))
        if not _keyring().exists():
            raise BuildError(
                "missing Debian's signing keys: apt-get install debian-archive-keyring"
            )
        progress(f"building the base root from Debian {packages.SUITE} (about a minute, once)")
        log = directory / "build.log"
        root = directory / ("root" if _as_root() else "root.tar")
        boot = directory / "boot"
        boot.mkdir()
        mirror = debian_mirror()
        run_logged(
            [
                "mmdebstrap",
                f"--mode={'root' if _as_root() else 'unshare'}",
                "--variant=minbase",
                f"--keyring={_keyring()}",
                # A frozen mirror's Release file is past its date; signatures still count.
                '--aptopt=Acquire::Check-Valid-Until "false"',
                '--aptopt=APT::Install-Recommends "false"',
                "--dpkgopt=force-unsafe-io",
                *(f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("man", "locale", "doc")),
                f"--include={','.join(packages.BASE)}",
                f"--customize-hook={_PREPARE}",
                f"--customize-hook=sync-out {packages.STAGING} {boot}",
                f'--customize-hook=rm -r "$1{packages.STAGING}"',
                packages.SUITE,
                str(root),
                *([mirror] if mirror else []),
            ],
            log,
            "mmdebstrap",
        )
        bzimage = (boot / "vmlinuz").read_bytes()
        (boot / "kernel").write_bytes(unpack_kernel(bzimage) or bzimage)
        progress("writing the base disk")
        make_ext4(root, directory / "disk.ext4", DISK_SIZE, log)
        if not _as_root():
            root.unlink()

    return entry("base", key, make)


def build_agents(progress: Callable[[str], None]) -> Path:
    """Return the cache entry with the CLIs in `root/` and on `disk.ext4`."""
    key = digest(packages.AGENTS, "v1")

    def make(directory: Path) -> None:
        need_programs("npm", "mke2fs")
        log = directory / "build.log"
        root = directory / "root"
        for agent, (package, program) in packages.AGENTS.items():
            progress(f"installing {package}")
            target = root / agent
            target.mkdir(parents=True)
            run_logged(
                ["npm", "install", "--prefix", str(target), "--no-audit", "--no-fund",
                 "--no-update-notifier", "--loglevel=error", package],
                log,
                f"npm install {package}",
            )  # fmt: skip
            if not (target / "node_modules" / ".bin" / program).exists():
                raise BuildError(f"{package} brought no program `{program}`; see {log}")
        progress("writing the agents disk")
        make_ext4(root, directory / "disk.ext4", _size_for(root), log, journal=False)

    return entry("agents", key, make)


def make_ext4(source: Path, disk: Path, size: str, log: Path, *, journal: bool = True) -> None:
    """Write an ext4 image from a directory, or from a tar that keeps its owners."""
    mke2fs = [
        find_program("mke2fs") or "mke2fs", "-q", "-t", "ext4", "-m", "0", "-L", "agent-box",
        *([] if journal else ["-O", "^has_journal"]),
        # Without this the guest zeroes inode tables in the background after boot.
        "-E", "lazy_itable_init=0,lazy_journal_init=0",
    ]  # fmt: skip
    if source.is_dir():
        run_logged([*mke2fs, "-d", str(source), str(disk), size], log, "mke2fs")
        return
    # Old mke2fs reads directories only, and owners survive unpacking only
    # where root is, be it in a user namespace. Devices cannot be made there;
    # the kernel fills /dev itself.
    script = (
        'set -e; dir=$(mktemp -d "$1.XXXXXX"); trap \'rm -rf "$dir"\' EXIT; '
        'tar -xf "$1" -C "$dir" --exclude="./dev/*"; '
        'disk=$2 size=$3; shift 3; "$@" -d "$dir" "$disk" "$size"'
    )
    run_logged(
        [*in_user_namespace(), "sh", "-c", script, "-", str(source), str(disk), size, *mke2fs],
        log,
        "mke2fs",
    )


def debian_mirror(
    apt: Path = Path("/etc/apt"), release: Path = Path("/etc/os-release")
) -> str | None:
    """Return the mirror that this Debian machine's apt uses; None leaves it to mmdebstrap."""
    fields = (
        dict(line.split("=", 1) for line in release.read_text().splitlines() if "=" in line)
        if release.exists()
        else {}
    )
    if fields.get("ID", "").strip('"') != "debian":
        return None
    codename = fields.get("VERSION_CODENAME", "").strip('"')
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file():
            continue
        text = file.read_text(errors="replace")
        found = _deb822_mirror(text, codename) if file.suffix == ".sources" else None
        found = found or _one_line_mirror(text, codename)
        if found:
            return found
    return None


def _deb822_mirror(text: str, codename: str) -> str | None:
    for stanza in re.split(r"\n\s*\n", text):
        fields = {
            key.lower(): value.split()
            for key, sep, value in (
                line.partition(":") for line in stanza.splitlines() if not line.startswith("#")
            )
            if sep
        }
        if codename in fields.get("suites", []) and "main" in fields.get("components", []):
            return fields["uris"][0]
    return None


def _one_line_mirror(text: str, codename: str) -> str | None:
    pattern = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)$", re.MULTILINE)
    for uri, suite, components in pattern.findall(text):
        if suite == codename and "main" in components.split():
            return str(uri)
    return None


def _keyring() -> Path:
    return Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def _as_root() -> bool:
    return os.geteuid() == 0


def _size_for(root: Path) -> str:
    used = int(subprocess.run(["du", "-sm", str(root)], capture_output=True, text=True, check=True)
               .stdout.split()[0])  # fmt: skip
    return f"{used + used // 10 + 64}M"
