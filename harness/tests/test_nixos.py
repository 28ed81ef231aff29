"""The adapter to the NixOS test driver, with a stand-in that runs commands on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_box_harness import nixos
from agent_box_harness.nixos import NixosGuests, NixosMachine

pytestmark = pytest.mark.usefixtures("own_input")


class Driver:
    """As much of the driver's machine as a scenario without a guest touches."""

    name = "machine"
    booted = True

    def start(self, allow_reboot=False):
        assert allow_reboot

    def connect(self):
        pass

    def crash(self):
        self.booted = False

    def wait_for_shutdown(self):
        assert not self.booted

    def get_console_log(self):
        return "console"

    def execute(self, command, timeout=None):
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail; {command}"], stdout=subprocess.PIPE, check=False,
            timeout=timeout,
        )  # fmt: skip
        return done.returncode, done.stdout.decode()


@pytest.fixture
def own_input(monkeypatch, tmp_path):
    monkeypatch.setattr("agent_box_harness.nixos._INPUT", str(tmp_path / "stdin"))


def test_commands_inputs_and_binary_files(tmp_path):
    machine = NixosMachine(Driver(), tmp_path / "work")
    assert machine.execute("echo hi; exit 3") == (3, "hi\n")
    assert machine.execute("false | true")[0] == 1
    data = bytes(range(256)) * 1000
    assert machine._execute("cat", None, data) == (0, data)
    (tmp_path / "file").write_bytes(data)
    assert machine.read_file(str(tmp_path / "file")) == data
    assert [command.command for command in machine.history] == ["echo hi; exit 3", "false | true"]
    machine.close()
    assert machine.serial_log.read_text() == "console"


SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from test_nixos import Driver
from agent_box_harness import nixos
nixos.NixosMachine.wait_ready = lambda self: "running"
nixos.run({{"machine": Driver()}}, {scenario!r})
print("all passed")
"""


@pytest.mark.parametrize(("command", "passes"), [("true", True), ("false", False)])
def test_run_gives_scenarios_the_drivers_machine(tmp_path, command, passes):
    scenario = tmp_path / "test_scenario.py"
    scenario.write_text(
        "import pytest\n\n"
        "@pytest.mark.needs('power-cut', 'agents')\n"
        "def test_it(box):\n"
        "    assert box.machine.kind == 'nixos'\n"
        f"    box.machine.succeed('{command}')\n"
    )
    paths = [str(Path(__file__).parent), str(Path(nixos.__file__).parents[1])]
    script = SCRIPT.format(paths=paths, scenario=str(scenario))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode == 0) == passes, done.stdout + done.stderr
    assert ("all passed" in done.stdout) == passes


class Disk:
    """The driver's machine as far as its disk: the start script makes one where none is."""

    name = "machine"

    def __init__(self, state_dir: Path):
        self.state_dir = state_dir
        self.booted = False
        self.dead = False
        self.forwards: list[tuple[int, int]] = []

    def start(self, allow_reboot=False):
        assert allow_reboot
        self.booted, self.dead, self.forwards = True, False, []
        disk = self.state_dir / "machine.qcow2"
        if not disk.exists():
            disk.write_text("")

    def crash(self):
        if self.booted and self.dead:
            raise BrokenPipeError
        self.booted = False

    def shutdown(self):
        self.booted = False

    def wait_for_shutdown(self):
        self.booted = False

    def get_console_log(self):
        return "console"

    def forward_port(self, host, guest):
        self.forwards.append((host, guest))


@pytest.fixture
def guests(tmp_path, monkeypatch):
    monkeypatch.setattr(NixosMachine, "wait_ready", lambda self: "running")
    (tmp_path / "state").mkdir()
    return NixosGuests(NixosMachine(Disk(tmp_path / "state"), tmp_path / "work"))


@pytest.mark.parametrize("end", ["runs", "is off", "has died"])
def test_each_scenario_gets_a_machine_that_never_ran(guests, tmp_path, end):
    """However the one before left it: its disk and what lies beside it are gone."""
    machine = guests.fresh("test", frozenset(), tmp_path, cold=False)
    driver = machine.driver
    disk = driver.state_dir / "machine.qcow2"
    disk.write_text("what the first one wrote")
    (driver.state_dir / "xchg").mkdir()
    (driver.state_dir / "xchg/file").write_text("and exchanged")
    if end == "is off":
        driver.shutdown()
    driver.dead = end == "has died"
    again = guests.fresh("test", frozenset(), tmp_path, cold=False)
    assert again.is_up()
    assert not machine.is_up()
    machine.close()
    assert again.is_up()
    assert disk.read_text() == ""
    assert [path.name for path in driver.state_dir.iterdir()] == ["machine.qcow2"]


def test_forwarded_ports_outlive_a_power_cut_but_not_the_scenario(guests, tmp_path):
    machine = guests.fresh("test", frozenset(), tmp_path, cold=False)
    host = machine.forward_port(guest=443)
    machine.power_cut()
    machine.start()
    assert machine.driver.forwards == [(host, 443)]
    guests.fresh("test", frozenset(), tmp_path, cold=False)
    assert machine.driver.forwards == []


SHARERS = """
import pytest

# Those that take longest come first, whoever shares.
pytestmark = pytest.mark.needs("kernel")

def disk(box):
    return box.machine.driver.state_dir / "machine.qcow2"


@pytest.mark.shared
@pytest.mark.limit(40)
def test_one(box):
    disk(box).write_text("of those who share")


@pytest.mark.shared
@pytest.mark.limit(30)
def test_two(box):
    assert disk(box).read_text() == "of those who share"


@pytest.mark.limit(20)
def test_alone(box):
    assert disk(box).read_text() == ""
    disk(box).write_text("of who is alone")


@pytest.mark.shared
@pytest.mark.limit(10)
def test_three(box):
    assert box.machine.is_up()
    assert disk(box).read_text() == ""
"""


def test_those_who_share_get_another_when_theirs_went_to_somebody_else(tmp_path):
    scenario = tmp_path / "test_scenario.py"
    scenario.write_text(SHARERS)
    (tmp_path / "state").mkdir()
    paths = [str(Path(__file__).parent), str(Path(nixos.__file__).parents[1])]
    script = (
        SCRIPT.format(paths=paths, scenario=str(scenario))
        .replace("import Driver", "import Disk, Path")
        .replace("Driver()", f"Disk(Path({str(tmp_path / 'state')!r}))")
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
