"""Breaks the product on purpose, one line at a time, and expects the scenarios to notice.

A scenario that stays green while its promise is broken proves nothing. The tables in
`harness/scenarios/mutations` list one-line changes with the scenarios that each must turn red.
What a unit test proves against real processes, at the fraction of the time, is broken for that.
They are made in a copy of the repository, never in the working tree. A change of the NixOS module
is made in the rendered config of the copy, which is what the portable guest runs, so that no Nix
is needed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from agent_box_harness.errors import HarnessError
from agent_box_harness.guest.cache import cache_root

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SCENARIOS = Path("harness/scenarios")
TABLES = SCENARIOS / "mutations"
RENDERED = Path("nixos-tests/rendered")
SHARED_CACHE = ("base", "agents", "ssh", "accel")
"""What no mutation changes: mutants take it from the ordinary cache."""

_ASSERTED = re.compile(
    r"AssertionError|assert |Failed: not so after|[\w.]*(WaitTimeout|UnexpectedOutput)Error"
)
"""What the message of a failed promise begins with: an assertion, a wait in vain, wrong words."""

_UNIT = """\
[Unit]
Description=One line that a mutation adds to the guest
After=agent-box-supervisor-alice.service

[Service]
Type=oneshot
ExecStart=/bin/sh -eu /etc/agent-box-mutation
"""


@dataclass(frozen=True)
class Mutation:
    """One line that breaks a promise, and who must notice."""

    id: str
    scenarios: list[str]
    """Test ids below harness/scenarios, or of unit tests with their whole path; each must fail. One
    without brackets means any of its parameters."""
    proves: str = ""
    """The promise that it breaks, or"""
    harm: str = ""
    """what users would meet."""
    file: str = ""
    """File of the repository to edit."""
    old: str = ""
    """Text that occurs there exactly once; empty to make the file."""
    new: str = ""
    command: str = ""
    """Instead of an edit: a line of shell that root runs when the guest boots."""
    guest: str = "container"

    @property
    def where(self) -> str:
        """What is mutated, for the report."""
        if self.command:
            return "guest"
        return "rendered" if Path(self.file).is_relative_to(RENDERED) else "source"

    @property
    def text(self) -> str:
        """What it is about, in a line."""
        return self.proves or self.harm


@dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    mutation: Mutation
    survived: list[str]
    """Scenarios that did not notice."""
    trouble: str = ""
    """Why nothing can be said: the guest did not come up."""

    @property
    def killed(self) -> bool:
        """Whether every scenario noticed."""
        return not self.survived and not self.trouble


def load(repo: Path) -> list[Mutation]:
    """Read the tables. A wrong entry is a HarnessError that names it."""
    found = []
    for table in sorted((repo / TABLES).glob("*.toml")):
        entries: list[dict[str, Any]] = tomllib.loads(table.read_text())["mutation"]
        for entry in entries:
            try:
                found.append(Mutation(**entry))
            except TypeError as error:
                raise HarnessError(f"{table}: {entry.get('id', entry)}: {error}") from error
    return found


def test_path(scenario: str) -> Path:
    """Return where in the repository a test is, its id behind the file's name."""
    return SCENARIOS / scenario if scenario.startswith("test_") else Path(scenario)


def problems(repo: Path, mutations: list[Mutation]) -> list[str]:
    """Say which mutations cannot be made any more because the product has changed."""
    found = []
    for mutation in mutations:
        if mutation.command or not mutation.old:
            continue
        count = (repo / mutation.file).read_text().count(mutation.old)
        if count != 1:
            found.append(f"{mutation.id}: {mutation.file} has its old text {count} times")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `agent-box-harness mutate`."""
    parser.add_argument("-k", metavar="TEXT", default="", help="only mutations with this in the id")
    parser.add_argument("--list", action="store_true", help="only show the tables")
    parser.add_argument(
        "--guest", choices=("container", "qemu"), help="only what this guest can show, in it"
    )


def main(options: argparse.Namespace, repo: Path) -> int:
    """Make and judge the selected mutants; 1 if any survives."""
    mutations = [mutation for mutation in load(repo) if options.k in mutation.id]
    if options.guest == "container":
        mutations = [mutation for mutation in mutations if mutation.guest == "container"]
    if not mutations:
        raise HarnessError(f"no mutation has {options.k!r} in its id")
    if wrong := problems(repo, mutations):
        raise HarnessError("the tables are out of date:\n" + "\n".join(wrong))
    if options.list:
        for mutation in mutations:
            print(f"{mutation.id:28} {mutation.where:9} {mutation.text}")
        return 0
    print(
        f"{len(mutations)} mutants; `rendered` edits the rendered config, so that no Nix is needed"
    )
    results = []
    with tempfile.TemporaryDirectory(prefix="agent-box-mutants-") as folder:
        workshop = Workshop(repo, Path(folder))
        for mutation in mutations:
            result = workshop.judge(mutation, options.guest or mutation.guest)
            results.append(result)
            print(_line(result), flush=True)
    bad = [result for result in results if not result.killed]
    print(f"{len(results) - len(bad)} killed, {len(bad)} not")
    return 1 if bad else 0


class Workshop:
    """A copy of the repository in which mutants are made, one after the other."""

    def __init__(self, repo: Path, folder: Path) -> None:
        self.folder = folder
        self.copy = folder / "repo"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=repo, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            (self.copy / name).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # removed, and not yet for git
                shutil.copy2(repo / name, self.copy / name)
        cache = folder / "cache/agent-box"
        cache.mkdir(parents=True)
        for kind in SHARED_CACHE:
            (cache_root() / kind).mkdir(exist_ok=True)
            (cache / kind).symlink_to(cache_root() / kind)

    def judge(self, mutation: Mutation, guest: str) -> Result:
        """Make the mutant, run its scenarios, and take the change back."""
        undo = list(self._apply(mutation))
        report = self.folder / "junit.xml"
        report.unlink(missing_ok=True)
        sources = (self.copy / "harness/src", self.copy / "pkgs/agent-box/src")
        ids = [str(test_path(scenario)) for scenario in mutation.scenarios]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, sources)),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        try:
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ids,
                 "--guest", guest, f"--junitxml={report}",
                 f"--box-reports={self.folder / 'reports'}"],
                cwd=self.copy, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            for path, text in undo:
                if text is None:
                    path.unlink()
                else:
                    path.write_text(text)
            shutil.rmtree(self.folder / "cache/agent-box/hosts", ignore_errors=True)
            shutil.rmtree(self.folder / "cache/agent-box/snapshots", ignore_errors=True)
        if not report.exists():
            return Result(mutation, [], run.stdout[-2000:] + run.stderr[-2000:])
        return _verdict(mutation, report)

    def _apply(self, mutation: Mutation) -> Iterator[tuple[Path, str | None]]:
        """Change files of the copy; yield each with what it held before."""
        if mutation.command:
            host = RENDERED / "test"
            changes = {
                host / "etc/agent-box-mutation": mutation.command + "\n",
                host / "units/agent-box-mutation.service": _UNIT,
                host / "units/agent-box-mutation.service.wants": "multi-user.target\n",
            }
        elif mutation.old:
            text = (self.copy / mutation.file).read_text()
            changes = {Path(mutation.file): text.replace(mutation.old, mutation.new)}
        else:
            changes = {Path(mutation.file): mutation.new}
        for name, text in changes.items():
            path = self.copy / name
            path.parent.mkdir(parents=True, exist_ok=True)
            yield path, path.read_text() if path.exists() else None
            path.write_text(text)


def _verdict(mutation: Mutation, report: Path) -> Result:
    """Read a JUnit file: a scenario notices by failing, not by a guest that does not boot."""
    survived, broken = [], ""
    cases = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - we wrote it
        name = str(case.get("name"))
        cases[name] = case
        if case.find("error") is not None:
            broken = f"{name} could not run: {_text(case.find('error'))}"
    for scenario in mutation.scenarios:
        test = scenario.rpartition("::")[2]
        failures = [
            _text(failure)
            for name, case in cases.items()
            if (name == test or name.startswith(f"{test}["))
            and (failure := case.find("failure")) is not None
        ]
        if not failures:
            survived.append(scenario)
        elif not any(map(_ASSERTED.match, failures)):
            # what goes wrong on the way to the assertion proves nothing
            broken = broken or f"{scenario}: {failures[0]}"
    return Result(mutation, survived, broken)


def _text(element: ET.Element | None) -> str:
    return "" if element is None else f"{element.get('message')} {(element.text or '')[-1500:]}"


def _line(result: Result) -> str:
    mutation = result.mutation
    verdict = "killed" if result.killed else "TROUBLE" if result.trouble else "SURVIVED"
    text = f"{verdict:8} {mutation.id:28} {mutation.where:9} {mutation.text}"
    for scenario in result.survived:
        text += f"\n         did not notice: {scenario}"
    return text + (f"\n         {result.trouble}" if result.trouble else "")
