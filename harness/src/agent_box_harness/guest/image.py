"""Guest images: what `build` returns and how machines come out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box_harness.machine import Machine

Kind = Literal["qemu", "container"]
Progress = Callable[[str], None]
"""Called with one short line before each long step."""


@dataclass(frozen=True)
class Image:
    """A bootable guest for one host configuration. All files are shared and read-only."""

    host: str
    key: str
    """Digest of everything that went in."""
    agents: bool
    """Whether the real agent CLIs are on it."""

    def boot(
        self,
        kind: Kind,
        workdir: Path,
        *,
        name: str = "box",
        memory_mib: int = 1024,
        cpus: int = 2,
        detach: bool = False,
    ) -> Machine:
        """Return a started machine with a fresh disk; it has yet to finish booting.

        `workdir` receives the disk, the serial log and the sockets of this
        machine. `detach` lets it outlive this process (see `guest.run`).
        """
        raise NotImplementedError

    def snapshot(
        self, *, memory_mib: int = 1024, cpus: int = 2, progress: Progress = print
    ) -> Snapshot:
        """Return the frozen, fully booted guest; boots it the first time only."""
        raise NotImplementedError

    def fresh(
        self, kind: Kind, workdir: Path, *, name: str = "box", detach: bool = False
    ) -> Machine:
        """Return a ready machine the fastest way: a clone (qemu) or a boot (container)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Snapshot:
    """A guest frozen after its boot: RAM and disk."""

    image: Image
    directory: Path
    boot_seconds: float
    """Power-on to all services, when the snapshot was made."""

    def clone(self, workdir: Path, *, name: str = "box", detach: bool = False) -> Machine:
        """Return a ready machine that continues from here with the right time and entropy."""
        raise NotImplementedError


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
    raise NotImplementedError


def run(workdir: Path) -> Machine:
    """Return the machine that was started with `detach=True` in `workdir`."""
    raise NotImplementedError
