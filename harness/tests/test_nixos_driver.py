"""The driver of NixOS tests, unmodified: it drives the portable guest, and accepts our scripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_box_harness import guest
from agent_box_harness.qemu import accelerator

REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "nixos-tests/scenario.py"
SCENARIOS = ("test_boot.py", "test_seeds.py")
"""A power cycle and every unit; then first boots, each of which needs a disk that never booted, and
a reboot after them."""
IMAGE = REPO / "nixos-tests/image.py"
OF_THE_IMAGE = ("the console is the agent's", "the disk is as large as the machine's")
"""What the Debian guest is not: nobody signs in on its console, and its disk does not grow."""
SECONDS = 3000
"""Of the whole run of the driver; with an emulated CPU each boot takes half a minute."""

DRIVER = os.environ.get("AGENT_BOX_TEST_DRIVER") or shutil.which("nixos-test-driver")
NIXPKGS = os.environ.get("AGENT_BOX_NIXPKGS", "")
PREPEND = Path(NIXPKGS, "nixos/lib/test-script-prepend.py")
TY = shutil.which("ty") or shutil.which("ty", path=str(Path(sys.executable).parent))


def script_for(start: Path, scenario: Path, environment: Path) -> str:
    """The test script as nixos-tests/default.nix writes it."""
    text = SCRIPT.read_text()
    given = {"start": start, "scenario": scenario, "environment": environment, "seconds": SECONDS}
    assert sorted(re.findall(r"@([a-z]+)@", text)) == sorted(given)
    for name, value in given.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def files_in(folder: Path) -> set[str]:
    """Everything below a folder, but for what Python compiled."""
    paths = (path.relative_to(folder) for path in folder.rglob("*"))
    return {str(path) for path in paths if "__pycache__" not in path.parts}


def portable_guest(folder: Path) -> tuple[Path, Path]:
    """The start script of a Debian guest, and what its scenarios must know of its speed."""
    image = guest.build("test", repo=REPO, agents=False, progress=print)
    environment = folder / "environment.json"
    environment.write_text(json.dumps({"AGENT_BOX_TIME_FACTOR": str(accelerator().time_factor)}))
    return image.driver_script(folder, name="machine"), environment


def without_steps(script: str, steps: tuple[str, ...]) -> str:
    """The script without the subtests of these names."""
    for step in steps:
        block = rf' {{4}}with subtest\("{re.escape(step)}"\):\n(?: {{8}}.*\n)+\n'
        script, count = re.subn(block, "", script)
        assert count == 1, step
    return script


def run_driver(folder: Path, script: Path) -> subprocess.CompletedProcess[str]:
    """Start the driver with the configuration that NixOS writes for a test without nodes."""
    config = {
        "vms": {},
        "containers": {},
        "vlans": [],
        "global_timeout": SECONDS,
        "enable_ssh_backdoor": False,
        "test_script": str(script),
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tmp").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPO / "harness/src"),
        "XDG_RUNTIME_DIR": str(folder / "tmp"),
        "TERM": "dumb",
    }
    environment.pop("DISPLAY", None)
    command = [str(DRIVER), "--config", str(folder / "config.json")]
    return subprocess.run(
        [*command, "--output_directory", str(folder)],
        cwd=REPO, env=environment, stdin=subprocess.DEVNULL, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.skipif(
    DRIVER is None,
    reason="no NixOS test driver: put nixos-test-driver on PATH, or name one in "
    "AGENT_BOX_TEST_DRIVER (in an environment of Python 3.13, pip installs it from "
    "nixos/lib/test-driver/src of a nixpkgs checkout, ./harness, and ptpython, colorama, pydantic, "
    "junit-xml and remote-pdb, which it needs)",
)
def test_it_drives_the_portable_guest(tmp_path):
    """Scenarios pass on the Debian guest with nothing of ours between it and the driver."""
    start, environment = portable_guest(tmp_path)
    # Alone, as in the store, where nothing can be written beside them.
    scenarios = tmp_path / "scenarios"
    shutil.copytree(REPO / "harness/scenarios", scenarios)
    before = files_in(scenarios)
    script = tmp_path / "script.py"
    script.write_text(
        "\n".join(script_for(start, scenarios / name, environment) for name in SCENARIOS)
    )
    result = run_driver(tmp_path, script)
    assert result.returncode == 0, result.stdout[-8000:]
    passed = [int(count) for count in re.findall(r"=+ (\d+) passed.* in [0-9.]+s", result.stdout)]
    defined = [
        len(re.findall(r"^def test_", (scenarios / name).read_text(), re.MULTILINE))
        for name in SCENARIOS
    ]
    assert passed == defined, result.stdout[-8000:]
    assert files_in(scenarios) == before


@pytest.mark.skipif(DRIVER is None, reason="no NixOS test driver (see the test above)")
def test_it_runs_the_script_of_the_image(tmp_path):
    """What is asked of the image holds for the same host on Debian: the script itself is right."""
    image = guest.build("vm", repo=REPO, agents=False, progress=print)
    start = image.driver_script(tmp_path, name="image")
    text = without_steps(IMAGE.read_text(), OF_THE_IMAGE).replace("@start@", str(start))
    script = tmp_path / "script.py"
    script.write_text(text)
    result = run_driver(tmp_path, script)
    assert result.returncode == 0, result.stdout[-8000:]
    steps = re.findall(r'with subtest\("(.+)"\)', text)
    assert steps
    for step in steps:
        assert f"(finished: subtest: {step}, in " in result.stdout, result.stdout[-8000:]


@pytest.mark.skipif(DRIVER is None, reason="no NixOS test driver (see the test above)")
def test_it_reports_a_scenario_that_fails(tmp_path):
    """A failing scenario, and one in which nothing ran, end the driver with a failure."""
    start, environment = portable_guest(tmp_path)
    failing = tmp_path / "test_failing.py"
    failing.write_text(
        "def test_failing(box):\n    box.succeed('systemctl is-active no.service')\n"
    )
    script = tmp_path / "script.py"
    script.write_text(script_for(start, failing, environment))
    result = run_driver(tmp_path, script)
    assert result.returncode == 1
    assert "ended with pytest status 1" in result.stdout
    assert "no.service" in result.stdout


def with_types(script: str) -> str:
    """What the driver checks: its own definitions, no machines, the script."""
    return f"{PREPEND.read_text()}\n{script}"


@pytest.mark.skipif(
    not PREPEND.is_file() or TY is None,
    reason="needs ty, and AGENT_BOX_NIXPKGS=PATH of a nixpkgs checkout",
)
@pytest.mark.parametrize("file", ["scenario.py", "image.py"])
def test_scripts_pass_the_checks_of_the_driver(tmp_path, file):
    """The same two commands as in nixpkgs, nixos/lib/testing/driver.nix."""
    checked = tmp_path / "testScriptWithTypes"
    checked.write_text(with_types((REPO / "nixos-tests" / file).read_text()))
    driver = Path(NIXPKGS, "nixos/lib/test-driver/src")
    site = [str(path) for path in Path(str(DRIVER)).parents[1].glob("lib/python*/site-packages")]
    paths = [word for path in [str(driver), *site] for word in ("--extra-search-path", path)]
    types = subprocess.run(
        [str(TY), "check", "--python-version", "3.13", *paths, str(checked)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert types.returncode == 0, types.stdout + types.stderr
    lint = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", str(checked)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert lint.returncode == 0, lint.stdout


@pytest.mark.parametrize("file", ["scenario.py", "image.py"])
def test_scripts_are_clean(tmp_path, file):
    """Lint with the names that the driver defines; runs everywhere."""
    names = "create_machine = subtest = None\n"
    checked = tmp_path / "script.py"
    checked.write_text(names + (REPO / "nixos-tests" / file).read_text())
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,E9"]
    result = subprocess.run(
        [*command, str(checked)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout


def test_every_need_of_a_scenario_is_provided_for():
    """nixos-tests/default.nix reads needs out of the files: it must find what pytest finds."""
    table = (REPO / "nixos-tests/needs.nix").read_text()
    provided = set(re.findall(r"^    ([a-z-]+) = given", table, re.MULTILINE))
    for path in (REPO / "harness/scenarios").glob("test_*.py"):
        text = path.read_text()
        calls = re.findall(r"mark\.needs\(([^)]*)\)", text)
        assert len(calls) == len(re.findall(r"\bneeds\(", text)), f"{path}: spell out mark.needs"
        for call in calls:
            words = re.findall(r'"([a-z-]+)"', call)
            assert words, f"{path}: needs({call}) are no plain words"
            assert set(words) <= provided, path
