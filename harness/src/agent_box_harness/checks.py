"""`scripts/test`: every check of the repository.

What fails fastest comes first. Unit tests run beside the scenarios: what the ones wait is what the
others compute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from agent_box_harness import bootstrap
from agent_box_harness.errors import HarnessError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO

SCENARIOS = "harness/scenarios"
UNIT_TESTS = ("pkgs/agent-box/tests", "harness/tests")
PYTHON_SOURCES = ("pkgs", "harness")
TESTS_FAILED = 1
"""pytest's exit status when tests failed, as opposed to a run that came to nothing."""

CORES = os.cpu_count() or 1
PARALLEL = ("-n", str(min(2 * CORES, 8)), "--dist", "worksteal")
"""Unit tests wait more than they compute; with still more at once, those about time fail."""
BESIDE = ("-n", str(min(CORES, 4)), "--dist", "worksteal")
"""The same, while scenarios run: they last longer in any case."""
GUESTS = ("-n", str(min(CORES + 2, 8)), "--dist", "worksteal")
"""A guest waits half of the time; many more of them would be slower than scenarios expect."""
OWN_CACHE = ("-o", "cache_dir=.pytest_cache/unit")
"""Where unit tests note what failed: two runs at once would overwrite each other's notes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`test`, `test lint`, `test unit` or `test box`, and arguments of pytest."""
    parser.add_argument(
        "--again",
        action="store_true",
        help="run what failed once more, alone, and call it unsteady if it passes then",
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=("all", "lint", "unit", "box"),
        default="all",
        help="lint: formatters, linters and types; unit: these and the tests without a guest; "
        "box: the scenarios on a guest (default: all)",
    )
    parser.add_argument("rest", nargs="...", help="passed on to pytest, for example -k respawn")


def main(options: argparse.Namespace, repo: Path) -> int:
    """Run the chosen part. All checks run, even after one has failed."""
    began = time.monotonic()
    if options.part == "lint":
        failed = perform(static_checks(repo))
    elif options.part == "unit":
        failed = unit(repo, options.rest, again=options.again)
    elif options.part == "box":
        failed = scenarios(repo, options.rest, again=options.again)
    else:
        failed = everything(repo, again=options.again)
    took = f"{time.monotonic() - began:.0f} s"
    if failed:
        say(f"FAILED after {took}: {', '.join(failed)}")
        return 1
    say(f"all passed in {took}")
    return 0


def everything(repo: Path, *, again: bool) -> list[str]:
    """Linters and types, then unit tests and scenarios at once; returns what failed.

    The unit tests' output comes in one piece when they are through.
    """
    guests = prepare_guests()
    failed = perform(static_checks(repo))
    with tempfile.TemporaryFile(buffering=0) as output, ThreadPoolExecutor(1) as beside:

        def units() -> list[str]:
            return perform(unit_tests(BESIDE, again=again, output=output), output)

        def show(_: object) -> None:
            output.seek(0)
            say("unit tests, while scenarios go on")
            sys.stdout.buffer.write(output.read())
            sys.stdout.buffer.flush()

        ran = beside.submit(units)
        ran.add_done_callback(show)
        guests.wait()
        failed += scenarios(repo, [], again=again)
        return failed + ran.result()


def prepare_guests() -> subprocess.Popen[bytes]:
    """Begin with what the scenarios will ask for: the first time it takes minutes of waiting.

    Whatever goes wrong says so again when the scenarios run.
    """
    return subprocess.Popen([sys.executable, "-m", "agent_box_harness.cli", "prepare"])


def unit(repo: Path, pytest_arguments: list[str], *, again: bool = False) -> list[str]:
    """Linters, types and unit tests; returns the names of those that failed."""
    checks = unit_tests(tuple(pytest_arguments) or PARALLEL, again=again)
    if pytest_arguments:  # somebody selects tests: linters would only be in the way
        return perform(checks)
    return perform({**static_checks(repo), **checks})


def static_checks(repo: Path) -> dict[str, Callable[[], int]]:
    """What looks at the sources and runs none of them: name -> how to run it."""
    python = sys.executable
    return {
        "ruff": lambda: run([python, "-m", "ruff", "check", *PYTHON_SOURCES]),
        "ruff format": lambda: run([python, "-m", "ruff", "format", "--check", *PYTHON_SOURCES]),
        "mypy": lambda: run([python, "-m", "mypy", *type_checked(repo)]),
        "shellcheck": lambda: run(["shellcheck", *shell_scripts(repo)]),
        "rendered config": lambda: rendered(repo),
    }


def unit_tests(
    pytest_arguments: tuple[str, ...], *, again: bool, output: IO[bytes] | None = None
) -> dict[str, Callable[[], int]]:
    """The unit tests on every interpreter: name -> how to run them, into `output` if given."""
    arguments = [*UNIT_TESTS, *OWN_CACHE, *pytest_arguments]

    def on(interpreter: Interpreter) -> Callable[[], int]:
        return lambda: pytest(interpreter.python, arguments, again=again, output=output)

    return {f"unit tests, {each.label}": on(each) for each in interpreters()}


def perform(checks: dict[str, Callable[[], int]], output: IO[bytes] | None = None) -> list[str]:
    """Run checks one after the other, all of them; returns the names of those that failed."""
    failed = []
    for name, check in checks.items():
        say(name, output)
        if check() != 0:
            failed.append(name)
    return failed


def scenarios(repo: Path, pytest_arguments: list[str], *, again: bool = False) -> list[str]:
    """Run the scenarios on guests, with whatever pytest takes; returns what failed, by name."""
    if not (repo / SCENARIOS).is_dir():
        raise HarnessError(f"there is no {SCENARIOS} in this checkout")
    reports = repo / "build/reports" / time.strftime("%Y%m%d-%H%M%S")
    named = any(argument.startswith(SCENARIOS) for argument in pytest_arguments)
    where = [] if named else [SCENARIOS]
    # Whoever debugs wants one guest at a time.
    alone = ("-n", "--pdb", "-s", "--capture")
    parallel = () if any(a.startswith(alone) for a in pytest_arguments) else GUESTS
    options = ["-v", "--durations=10", f"--box-reports={reports}", *parallel]
    arguments = [*options, *where, *pytest_arguments]
    return perform({"scenarios": lambda: pytest(sys.executable, arguments, again=again)})


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


def pytest(
    python: str, arguments: list[str], *, again: bool = False, output: IO[bytes] | None = None
) -> int:
    """Run pytest with an interpreter; its exit status, where "nothing selected" is a failure.

    With `again`, tests that failed get a second chance, one at a time: on a busy machine a wait
    can run out that has nothing to do with the product. What passes then is told as unsteady.
    """
    status = run([python, "-m", "pytest", *arguments], output)
    if status != TESTS_FAILED or not again:
        return status
    alone = ["-n", "0"] if "-n" in arguments else []
    status = run([python, "-m", "pytest", *arguments, *alone, "--lf", "--lfnf=none"], output)
    if status == 0:
        say("UNSTEADY: the tests just above failed at first and passed alone", output)
    return status


def run(argv: list[str], output: IO[bytes] | None = None) -> int:
    """Run a tool with its output on this terminal, or in a file."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    # Hundreds of processes import the same modules, which are compiled once and for all.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(argv, check=False, env=environment, stdout=output, stderr=output)
        return done.returncode
    except FileNotFoundError:
        say(f"{argv[0]} is not installed")
        return 127


def say(text: str, output: IO[bytes] | None = None) -> None:
    """A heading between the outputs of the tools, on this terminal or in a file."""
    stream = output or sys.stdout.buffer
    stream.write(f"\n== {text}\n".encode())
    stream.flush()
