"""Which machine a box runs in: by what the host can do and by what is asked of it.

A virtual machine with hardware acceleration is best: quick and complete. Without it, root gets
the container (native speed, but no kernel of its own), and whatever the container cannot do
runs in an emulated machine.
"""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_box_harness import guest
from agent_box_harness.errors import HarnessError
from agent_box_harness.needs import ALL_CAPABILITIES, OF_THE_IMAGE
from agent_box_harness.qemu import accelerator
from agent_box_harness.source import prepared_each

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_box_harness.guest.image import Image, Kind
    from agent_box_harness.machine import Machine

CHOICES = ("auto", "qemu", "container")
AGENTS = "agents"
"""The need for the real CLIs, which are a part of the image that not everybody wants."""


@functools.cache
def accelerated() -> bool:
    """Tell whether hardware acceleration really works here (probed once; takes seconds)."""
    return accelerator().name == "kvm"


def container_works() -> bool:
    """Tell whether the container machine can run: it needs root."""
    return os.geteuid() == 0 and shutil.which("systemd-nspawn") is not None


def capabilities(kind: Kind) -> frozenset[str]:
    """What machines of a kind can do on this host."""
    if kind == "qemu":
        return ALL_CAPABILITIES | OF_THE_IMAGE
    from agent_box_harness import container

    return container.capabilities() | OF_THE_IMAGE


def candidates(choice: str) -> list[Kind]:
    """Kinds of machine that a choice allows here, the quickest first."""
    if choice == "qemu":
        return ["qemu"]
    if choice == "container":
        return ["container"]
    if accelerated() or not container_works():
        return ["qemu"]
    return ["container", "qemu"]


def pick(choice: str, needs: frozenset[str] = frozenset()) -> Kind:
    """Return the quickest kind that can do what is needed. Raises HarnessError with the reason."""
    reasons = []
    for kind in candidates(choice):
        missing = needs - capabilities(kind)
        if not missing:
            return kind
        reasons.append(f"the {kind} guest lacks {', '.join(sorted(missing))}")
    raise HarnessError("; ".join(reasons))


@dataclass
class Guests:
    """Fresh guests for one test run (one process of it), images built when first needed."""

    repo: Path
    choice: str
    say: Callable[[str], None]
    expected: dict[str, frozenset[str]] = field(default_factory=dict)
    """Host -> everything that the selected scenarios need of it."""
    _images: dict[str, Image] = field(default_factory=dict)

    def expect(self, host: str, needs: frozenset[str]) -> None:
        """Announce a scenario, before any runs."""
        self.expected[host] = self.expected.get(host, frozenset()) | needs

    def prepare(self, host: str) -> None:
        """Make ahead what scenarios on a host need, the real CLIs and the snapshot included."""
        self.expect(host, frozenset({AGENTS}))
        image = self.image(host)
        if "qemu" in candidates(self.choice):
            image.snapshot(progress=self.say)

    def headline(self) -> str:
        """One line for the top of a run: guest and accelerator."""
        kinds = candidates(self.choice)
        speed = {
            "qemu": f"qemu ({'KVM' if accelerated() else 'emulation (TCG), no working KVM'})",
            "container": "container (native speed)",
        }
        first, *rest = (speed[kind] for kind in kinds)
        return first + "".join(f", what it cannot do in {other}" for other in rest)

    def reason_against(self, needs: frozenset[str]) -> str | None:
        """Why no guest of this run can serve a scenario, or None."""
        try:
            pick(self.choice, needs)
        except HarnessError as error:
            return str(error)
        return None

    def fresh(self, host: str, needs: frozenset[str], workdir: Path, *, cold: bool) -> Machine:
        """Return a machine of its own for a scenario; booting unless `cold`, then ready."""
        kind = pick(self.choice, needs)
        image = self.image(host)
        workdir.mkdir(parents=True, exist_ok=True)
        if cold:
            return image.boot(kind, workdir)
        return image.fresh(kind, workdir, progress=self.say)

    def prepared(
        self,
        host: str,
        needs: frozenset[str],
        workdir: Path,
        prepare: Callable[[Machine], None],
    ) -> Callable[[Path], Machine]:
        """Return what makes machines that `prepare` has changed, each in a directory of its own."""
        if pick(self.choice, needs) != "qemu":
            return prepared_each(self, host, needs, prepare)
        snapshot = self.image(host).snapshot(progress=self.say)
        return snapshot.prepared(workdir / "prepared", prepare).clone

    def image(self, host: str) -> Image:
        """Return the image of a host: one for the whole run, with CLIs if a scenario needs them."""
        if host not in self._images:
            needs = self.expected.get(host, frozenset())
            kinds = tuple(candidates(self.choice))
            self._images[host] = guest.build(
                host, repo=self.repo, agents=AGENTS in needs, kinds=kinds, progress=self.say
            )
        return self._images[host]
