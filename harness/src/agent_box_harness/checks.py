"""`scripts/test`: every check of the repository, in the order in which they fail fastest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from agent_box_harness import bootstrap
from agent_box_harness.errors import HarnessError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

SCENARIOS = "harness/scenarios"
UNIT_TESTS = ("pkgs/agent-box/tests", "harness/tests")
PYTHON_SOURCES = ("pkgs", "harness")
TESTS_FAILED = 1
"""pytest's exit status when tests failed, as opposed to a run that came to nothing."""

CORES = os.cpu_count() or 1
PARALLEL = ("-n", str(min(2 * CORES, 8)), "--dist", "worksteal")
"""Unit tests wait more than they compute; with still more at once, those about time fail."""
GUESTS = ("-n", str(min(CORES + 1, 8)), "--dist", "worksteal")
"""A guest waits some of the time; many more of them would be slower than scenarios expect."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`test`, `test unit`, `test box [pytest arguments]`."""
    parser.add_argument(
        "--again",
        action="store_true",
        help="run what failed once more, alone, and call it unsteady if it passes then",
    )
    parser.add_argument("part", nargs="?", choices=("all", "unit", "box"), default="all")
    parser.add_argument("rest", nargs="...", help="passed on to pytest")


def main(options: argparse.Namespace, repo: Path) -> int:
    """Run the chosen part. All checks run, even after one has failed."""
    began = time.monotonic()
    failed: list[str] = []
    guests = prepare_guests() if options.part == "all" else None
    if options.part in ("all", "unit"):
        rest = options.rest if options.part == "unit" else []
        failed += unit(repo, rest, again=options.again)
    if guests is not None:
        guests.wait()
    if options.part in ("all", "box"):
        rest = options.rest if options.part == "box" else []
        if scenarios(repo, rest, again=options.again) != 0:
            failed.append("scenarios")
    took = f"{time.monotonic() - began:.0f} s"
    if failed:
        say(f"FAILED after {took}: {', '.join(failed)}")
        return 1
    say(f"all passed in {took}")
    return 0


def prepare_guests() -> subprocess.Popen[bytes]:
    """Begin with what the scenarios will ask for: the first time it takes minutes of waiting.

    Whatever comes between says so again when the scenarios run.
    """
    return subprocess.Popen([sys.executable, "-m", "agent_box_harness.cli", "prepare"])


def unit(repo: Path, pytest_arguments: list[str], *, again: bool = False) -> list[str]:
    """Linters, types and unit tests; returns the names of those that failed."""
    python = sys.executable
    checks: dict[str, Callable[[], int]] = {
        "ruff": lambda: run([python, "-m", "ruff", "check", *PYTHON_SOURCES]),
        "ruff format": lambda: run([python, "-m", "ruff", "format", "--check", *PYTHON_SOURCES]),
        "mypy": lambda: run([python, "-m", "mypy", *type_checked(repo)]),
        "shellcheck": lambda: run(["shellcheck", *shell_scripts(repo)]),
        "rendered config": lambda: rendered(repo),
    }
    for interpreter in interpreters():
        name = f"unit tests, {interpreter.label}"
        arguments = [*UNIT_TESTS, *(pytest_arguments or PARALLEL)]
        checks[name] = lambda i=interpreter, a=arguments: pytest(i.python, a, again=again)  # type: ignore[misc]
    if pytest_arguments:  # somebody selects tests: linters would only be in the way
        checks = {name: check for name, check in checks.items() if name.startswith("unit tests")}
    failed = []
    for name, check in checks.items():
        say(name)
        if check() != 0:
            failed.append(name)
    return failed


def scenarios(repo: Path, pytest_arguments: list[str], *, again: bool = False) -> int:
    """Run the scenarios on guests; everything that pytest takes is taken."""
    if not (repo / SCENARIOS).is_dir():
        raise HarnessError(f"there is no {SCENARIOS} in this checkout")
    say("scenarios")
    reports = repo / "build/reports" / time.strftime("%Y%m%d-%H%M%S")
    named = any(argument.startswith(SCENARIOS) for argument in pytest_arguments)
    where = [] if named else [SCENARIOS]
    # Whoever debugs wants one guest at a time.
    alone = ("-n", "--pdb", "-s", "--capture")
    parallel = () if any(a.startswith(alone) for a in pytest_arguments) else GUESTS
    options = ["-v", "--durations=10", f"--box-reports={reports}", *parallel]
    return pytest(sys.executable, [*options, *where, *pytest_arguments], again=again)


class Interpreter:
    """A Python with the locked packages; made when first asked for."""

    def __init__(self, label: str, base: str | None) -> None:
        self.label = label
        self._base = base

    @property
    def python(self) -> str:
        """Path of the interpreter inside its environment."""
        if self._base is None:
            return sys.executable
        venv = bootstrap.REPO / ".venv-others" / self.label.rpartition(" ")[2]
        return str(bootstrap.make_venv(venv, self._base))


def interpreters() -> list[Interpreter]:
    """This Python and every other supported version that is on PATH."""
    here = sys.version_info[:2]
    found = [Interpreter(f"Python {here[0]}.{here[1]}", None)]
    if os.environ.get("AGENT_BOX_READY") == "nix":  # its Python is the one that counts there
        return found
    for minor in range(bootstrap.OLDEST[1], bootstrap.NEWEST[1] + 1):
        program = shutil.which(f"python3.{minor}")
        if program and (3, minor) != here and works(program):
            found.append(Interpreter(f"Python 3.{minor}", program))
    return found


def works(program: str) -> bool:
    """Tell whether an interpreter runs and can make environments (a shim may do neither)."""
    probe = [program, "-c", "import ensurepip, venv"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


def rendered(repo: Path) -> int:
    """Compare the rendered config with the Nix sources that made it."""
    script = repo / "scripts/render"
    if not script.exists():
        say("scripts/render does not exist yet")
        return 1
    return run([str(script), "--check"])


def type_checked(repo: Path) -> list[str]:
    """What mypy looks at: both packages."""
    sources = ("pkgs/agent-box/src/agent_box", "harness/src/agent_box_harness")
    return [source for source in sources if (repo / source).is_dir()]


def shell_scripts(repo: Path) -> list[str]:
    """Every tracked-looking shell script: a shebang that names sh or bash."""
    files = [path for folder in ("scripts", ".ci") for path in sorted((repo / folder).glob("*"))]
    return [str(path.relative_to(repo)) for path in files if path.is_file() and is_shell(path)]


def is_shell(path: Path) -> bool:
    """Tell whether the first line of a file names a shell."""
    with path.open("rb") as file:
        return file.readline().rstrip().endswith(b"sh")


def pytest(python: str, arguments: list[str], *, again: bool = False) -> int:
    """Run pytest with an interpreter; its exit status, where "nothing selected" is a failure.

    With `again`, tests that failed get a second chance, one at a time: on a busy machine a wait
    can run out that has nothing to do with the product. What passes then is told as unsteady.
    """
    status = run([python, "-m", "pytest", *arguments])
    if status != TESTS_FAILED or not again:
        return status
    alone = ["-n", "0"] if "-n" in arguments else []
    status = run([python, "-m", "pytest", *arguments, *alone, "--lf", "--lfnf=none"])
    if status == 0:
        say("UNSTEADY: the tests just above failed at first and passed alone")
    return status


def run(argv: list[str]) -> int:
    """Run a tool with its output on this terminal."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    try:
        return subprocess.run(argv, check=False, env=environment).returncode
    except FileNotFoundError:
        say(f"{argv[0]} is not installed")
        return 127


def say(text: str) -> None:
    """A heading between the outputs of the tools."""
    sys.stdout.write(f"\n== {text}\n")
    sys.stdout.flush()
