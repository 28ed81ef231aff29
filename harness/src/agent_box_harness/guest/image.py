"""Guest images: what `build` returns and how machines come out of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent_box_harness.container import ContainerMachine, ContainerRoot
from agent_box_harness.errors import BuildError, MachineError
from agent_box_harness.guest import additions, cache
from agent_box_harness.guest.base import build_agents, build_base
from agent_box_harness.guest.compile import compile_runtime
from agent_box_harness.guest.driver import write_start_script
from agent_box_harness.guest.host import (
    Accounts,
    install_pages,
    install_rendered,
    install_runtime,
)
from agent_box_harness.guest.initrd import build_initrd
from agent_box_harness.guest.layer import Layer
from agent_box_harness.qemu import QemuMachine, accelerator
from agent_box_harness.qemu_command import Frozen, QemuFiles, QemuOptions, kernel_arguments

if TYPE_CHECKING:
    from agent_box_harness.machine import Machine

__all__ = ["Image", "Kind", "Snapshot", "accelerator", "build", "find_repo", "run"]

Kind = Literal["qemu", "container"]
Progress = Callable[[str], None]
"""Called with one short line before each long step."""

MEMORY_MIB = 2048
CPUS = 2
KEEP_IMAGE = 2 * 86400
"""Seconds that a superseded image stays in the cache: a container runs on its files."""
KEEP_SNAPSHOT = 3 * 3600
"""Seconds for a superseded snapshot, some 400 MB; a machine keeps what it has open."""


@dataclass(frozen=True)
class Image:
    """A bootable guest for one host configuration. All files are shared and read-only."""

    host: str
    key: str
    """Digest of everything that went in."""
    directory: Path
    base: Path
    agents_entry: Path | None
    """Cache entry with the real agent CLIs, if they are on it."""

    @property
    def agents(self) -> bool:
        """Whether the real agent CLIs are on it."""
        return self.agents_entry is not None

    def boot(
        self,
        kind: Kind,
        workdir: Path,
        *,
        name: str = "box",
        memory_mib: int = MEMORY_MIB,
        cpus: int = CPUS,
        detach: bool = False,
    ) -> Machine:
        """Return a started machine with a fresh disk; it has yet to finish booting.

        `workdir` receives the disk, the serial log and the state of this
        machine. `detach` lets it outlive this process (see `guest.run`).
        """
        machine: Machine
        if kind == "container":
            machine = ContainerMachine(self._container_root(), workdir, name=name, detach=detach)
        else:
            options = self._qemu_options(memory_mib, cpus)
            machine = self._with_key(QemuMachine(options, workdir, name=name, detach=detach))
        self._remember(workdir, kind, memory_mib, cpus, detach=detach)
        machine.start()
        return machine

    def snapshot(
        self, *, memory_mib: int = MEMORY_MIB, cpus: int | None = None, progress: Progress = print
    ) -> Snapshot:
        """Return the frozen, fully booted guest; boots it the first time only.

        `cpus` is by default what scenarios are best served with: one processor where it is
        emulated. A second one, for which each atomic instruction has to be one on the host, makes
        it half as dear again to start a program, and Python a tenth.
        """
        if cpus is None:
            cpus = 1 if accelerator().name == "tcg" else CPUS
        options = self._qemu_options(memory_mib, cpus)
        accel = options.accel
        told = kernel_arguments(accel)
        key = cache.digest(
            *(self.key, accel.name, accel.cpu, told, memory_mib, cpus, _qemu_version())
        )

        def make(directory: Path) -> None:
            progress(f"booting the guest once, to clone it later ({options.accel.name})")
            _freeze(self, options, directory)

        directory = cache.entry("snapshots", f"{self.host}-{key}", make)
        cache.prune("snapshots", self.host, directory, KEEP_SNAPSHOT)
        facts = json.loads((directory / "facts.json").read_text())
        return Snapshot(self, directory, memory_mib, cpus, facts["boot_seconds"], facts["state"])

    def fresh(
        self,
        kind: Kind,
        workdir: Path,
        *,
        name: str = "box",
        detach: bool = False,
        progress: Progress = print,
    ) -> Machine:
        """Return a ready machine the fastest way: a clone (qemu) or a boot (container)."""
        if kind == "container":
            machine = self.boot("container", workdir, name=name, detach=detach)
            machine.wait_ready()
            return machine
        return self.snapshot(progress=progress).clone(workdir, name=name, detach=detach)

    def driver_script(
        self, directory: Path, *, name: str = "box", memory_mib: int = MEMORY_MIB, cpus: int = CPUS
    ) -> Path:
        """Write the start script that the NixOS test driver takes for this guest."""
        return write_start_script(self._qemu_options(memory_mib, cpus), directory, name)

    def _container_root(self) -> ContainerRoot:
        lower = [self.directory / "tree", self.base / "root"]
        for directory in lower:
            if not directory.is_dir():
                raise MachineError(
                    f"the container needs root, and an image built by root ({lower})"
                )
        agents = None if self.agents_entry is None else self.agents_entry / "root"
        return ContainerRoot(tuple(lower), agents)

    def _qemu_options(self, memory_mib: int, cpus: int) -> QemuOptions:
        agents_disk = None if self.agents_entry is None else self.agents_entry / "disk.ext4"
        files = QemuFiles(
            self.base / "boot" / "kernel",
            self.directory / "initrd",
            self.base / "disk.ext4",
            agents_disk,
        )
        return QemuOptions(files, accelerator(), memory_mib, cpus)

    def _with_key(self, machine: QemuMachine) -> QemuMachine:
        machine.ssh_key = _ssh_key()
        return machine

    def _remember(
        self, workdir: Path, kind: Kind, memory_mib: int, cpus: int, *, detach: bool
    ) -> None:
        """Note what `run` needs to find the machine again."""
        if not detach:
            return
        workdir.mkdir(parents=True, exist_ok=True)
        facts = {
            "kind": kind,
            "host": self.host,
            "key": self.key,
            "directory": str(self.directory),
            "base": str(self.base),
            "agents": None if self.agents_entry is None else str(self.agents_entry),
            "memory_mib": memory_mib,
            "cpus": cpus,
        }
        (workdir / "image.json").write_text(json.dumps(facts))


@dataclass(frozen=True)
class Snapshot:
    """A guest frozen after its boot: RAM and disk."""

    image: Image
    directory: Path
    memory_mib: int
    cpus: int
    boot_seconds: float
    """Power-on to all services, when the snapshot was made."""
    state: str
    """systemd's verdict at that moment: `running` or `degraded`."""

    def prepared(self, directory: Path, prepare: Callable[[Machine], None]) -> Snapshot:
        """Return this guest as it is after `prepare`, frozen again in `directory`."""
        ram = directory / "ram"
        directory.mkdir(parents=True)
        subprocess.run(["cp", "--sparse=always", str(self.directory / "ram"), str(ram)], check=True)
        frozen = Frozen(ram, self.directory / "state")
        options = replace(self._options(), frozen=frozen, keep_ram=ram)
        machine = QemuMachine(options, directory / "work", name="prepared")
        with machine:
            machine.connect()
            prepare(machine)
            machine.freeze(directory / "state")
        machine.overlay.rename(directory / "disk.qcow2")
        return replace(self, directory=directory)

    def _options(self) -> QemuOptions:
        whole = self.image._qemu_options(self.memory_mib, self.cpus)
        files = replace(whole.files, disk=self.directory / "disk.qcow2")
        frozen = Frozen(self.directory / "ram", self.directory / "state")
        return replace(whole, files=files, frozen=frozen)

    def clone(self, workdir: Path, *, name: str = "box", detach: bool = False) -> Machine:
        """Return a ready machine that continues from here with the right time and entropy."""
        options = self._options()
        machine = self.image._with_key(QemuMachine(options, workdir, name=name, detach=detach))
        self.image._remember(workdir, "qemu", self.memory_mib, self.cpus, detach=detach)
        machine.start()
        try:
            machine.connect()
        except BaseException:
            machine.close()
            raise
        return machine


def build(
    host: str,
    *,
    repo: Path | None = None,
    agents: bool = True,
    kinds: tuple[Kind, ...] = ("qemu", "container"),
    progress: Progress = print,
) -> Image:
    """Return the guest image for `nixos-tests/rendered/<host>`, building what is missing.

    `repo` is the checkout (default: found from this file or the working directory).
    Raises BuildError with a remedy.
    """
    needed = {
        "qemu": ("qemu-system-x86_64", "qemu-img", "ssh-keygen"),
        "container": ("systemd-nspawn", "nsenter", "unshare"),
    }
    if os.geteuid() != 0 and kinds != ("container",):
        kinds = ("qemu",)
    cache.need_programs(*(program for kind in kinds for program in needed[kind]))
    checkout = repo or find_repo()
    base = build_base(progress)
    agents_entry = build_agents(progress) if agents else None
    layer = Layer()
    install_runtime(layer, checkout / "pkgs" / "agent-box")
    accounts = Accounts.read(base / "boot")
    rendered = checkout / "nixos-tests" / "rendered" / host
    install_rendered(layer, rendered, accounts)
    install_pages(layer, checkout / "pkgs" / "agent-box", rendered, base / "boot/terminal.html")
    public_key = _ssh_key().with_suffix(".pub").read_text()
    additions.add_guest_files(layer, host, public_key, agents=agents)
    key = cache.digest(layer.digest(), base.name, agents_entry.name if agents_entry else None)

    def make(directory: Path) -> None:
        progress(f"installing the runtime and the config of host `{host}`")
        compile_runtime(layer, base, directory)
        archive = layer.tar()
        (directory / "initrd").write_bytes(build_initrd(base / "boot", archive, key))
        if os.geteuid() == 0:
            tree = directory / "tree"
            tree.mkdir()
            subprocess.run(
                ["tar", "-x", "-p", "--numeric-owner", "-C", str(tree)], input=archive, check=True
            )

    directory = cache.entry("hosts", f"{host}-{key}", make)
    cache.prune("hosts", host, directory, KEEP_IMAGE)
    return Image(host, key, directory, base, agents_entry)


def run(workdir: Path) -> Machine:
    """Return the machine that was started with `detach=True` in `workdir`.

    It may have ended since: see `Machine.is_up`.
    """
    try:
        facts = json.loads((workdir / "image.json").read_text())
        state = json.loads((workdir / "machine.json").read_text())
    except FileNotFoundError as error:
        raise MachineError(f"no machine was left running in {workdir}") from error
    agents = None if facts["agents"] is None else Path(facts["agents"])
    image = Image(
        facts["host"], facts["key"], Path(facts["directory"]), Path(facts["base"]), agents
    )
    if facts["kind"] == "container":
        return ContainerMachine.reattach(image._container_root(), workdir, state)
    options = image._qemu_options(facts["memory_mib"], facts["cpus"])
    return image._with_key(QemuMachine.reattach(options, workdir, state))


def find_repo() -> Path:
    """Return the checkout that this file or the working directory lies in."""
    for start in (Path(__file__).resolve(), Path.cwd().resolve() / "x"):
        for directory in start.parents:
            if (directory / "pkgs" / "agent-box" / "pyproject.toml").is_file():
                return directory
    raise BuildError("not inside a checkout of agent-box; pass repo=")


def _freeze(image: Image, options: QemuOptions, directory: Path) -> None:
    """Boot a guest and leave `ram`, `state`, `disk.qcow2` and `facts.json` in `directory`."""
    work = directory / "work"
    whole = QemuOptions(
        options.files, options.accel, options.memory_mib, options.cpus,
        keep_ram=directory / "ram",
    )  # fmt: skip
    machine = image._with_key(QemuMachine(whole, work, name="snapshot"))
    with machine:
        start = time.monotonic()
        machine.start()
        state = machine.wait_ready()
        seconds = time.monotonic() - start
        machine.freeze(directory / "state")
    machine.overlay.rename(directory / "disk.qcow2")
    shutil.copyfile(machine.serial_log, directory / "serial.log")
    shutil.rmtree(work)
    facts = {"boot_seconds": round(seconds, 2), "state": state, "host": image.host}
    (directory / "facts.json").write_text(json.dumps(facts))


def _ssh_key() -> Path:
    """Return the key with which people get into guests; made once per cache."""
    key = cache.cache_root() / "ssh" / "id_ed25519"
    with cache.locked(cache.cache_root() / "ssh" / "lock"):
        if not key.exists():
            cache.need_programs("ssh-keygen")
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "agent-box harness",
                 "-f", str(key)],
                check=True,
            )  # fmt: skip
    return key


def _qemu_version() -> str:
    return subprocess.run(
        ["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True
    ).stdout
