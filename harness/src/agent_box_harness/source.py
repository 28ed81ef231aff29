"""What scenarios ask for machines, whoever makes them: the harness itself or a NixOS test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from agent_box_harness.machine import Machine


class Source(Protocol):
    """Where the machines of one test run come from."""

    @property
    def choice(self) -> str:
        """Which kinds of machine there are, one of `choice.CHOICES`."""

    @property
    def expected(self) -> Mapping[str, frozenset[str]]:
        """Host -> everything that the selected scenarios need of it."""

    def expect(self, host: str, needs: frozenset[str]) -> None:
        """Announce a scenario, before any runs."""

    def headline(self) -> str:
        """One line for the top of a run."""

    def reason_against(self, needs: frozenset[str]) -> str | None:
        """Why no machine of this run can serve a scenario, or None."""

    def fresh(self, host: str, needs: frozenset[str], workdir: Path, *, cold: bool) -> Machine:
        """Return a machine as new; booting unless `cold`, then ready."""

    def prepared(
        self,
        host: str,
        needs: frozenset[str],
        workdir: Path,
        prepare: Callable[[Machine], None],
    ) -> Callable[[Path], Machine]:
        """Return what makes machines that `prepare` has changed, each in a directory of its own."""


def prepared_each(
    source: Source, host: str, needs: frozenset[str], prepare: Callable[[Machine], None]
) -> Callable[[Path], Machine]:
    """Return what makes machines and prepares each, where they cannot be frozen in between."""

    def make(workdir: Path) -> Machine:
        machine = source.fresh(host, needs, workdir, cold=False)
        prepare(machine)
        return machine

    return make
