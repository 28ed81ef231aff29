"""The pytest plugin, run on machines that only look like machines."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

import agent_box_harness

pytest_plugins = ["pytester"]

CONFTEST = """
import sys
sys.path[:0] = [{source!r}, {tests!r}]
from agent_box_harness import choice
from fakes import FakeImage

image = FakeImage()
choice.accelerated = lambda: {kvm}
choice.container_works = lambda: {root}
choice.capabilities = lambda kind: (
    choice.ALL_CAPABILITIES | {{"agents"}} if kind == "qemu" else frozenset({{"network"}})
)
choice.Guests.image = lambda self, host: image

def pytest_unconfigure():
    print("ASKED", image.asked, "OPEN", [m for m in image.machines if not m.closed])
"""

SCENARIOS = """
import pytest

def test_works(box):
    '''A box answers.'''
    assert box.succeed("echo yes").strip() == "yes"

@pytest.mark.needs("power-cut")
def test_power(box, measured):
    measured("boot", 1.5)
    box.crash()

def test_breaks(box):
    '''Two is three.'''
    box.succeed("echo 'before <it>'; exit 4")

def test_after(box):
    assert box.run("exit 3").rc == 3

def test_no_box():
    pass
"""


@pytest.fixture
def run(pytester):
    def go(*arguments, kvm=False, root=True, scenarios=SCENARIOS):
        source = str(Path(agent_box_harness.__file__).parents[1])
        tests = str(Path(__file__).parent)
        pytester.makeconftest(CONFTEST.format(source=source, tests=tests, kvm=kvm, root=root))
        pytester.makepyfile(test_scenarios=scenarios)
        installed = importlib.metadata.entry_points(group="pytest11", name="agent_box_harness")
        plugin = [] if installed else ["-p", "agent_box_harness.plugin"]
        paths = (source, os.environ.get("PYTHONPATH", ""))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return pytester.runpytest_subprocess(
            *plugin, "-p", "no:cacheprovider", "-v", "-s", "--box-reports=reports", *arguments
        )

    before = os.environ.get("PYTHONPATH")
    yield go
    os.environ.pop("PYTHONPATH", None)
    if before is not None:
        os.environ["PYTHONPATH"] = before


def test_each_scenario_gets_the_quickest_guest_that_can_run_it(run, pytester):
    result = run()
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "guest: container (native speed), what it cannot do in qemu (emulation*",
            "*test_works PASSED*",
            "report: *index.html",
            "ASKED [[]('fresh', 'qemu'), ('fresh', 'container'), *OPEN [[][]]*",
        ]
    )


def test_a_failure_leaves_evidence_and_the_rest_still_runs(run, pytester):
    result = run()
    assert result.ret == 1
    page = (pytester.path / "reports/index.html").read_text()
    assert "Two is three." in page
    assert "1 failed" in page
    assert "3 passed" in page
    assert "Measured: boot 1.50 s" in page
    evidence = pytester.path / "reports/test_breaks"
    commands = (evidence / "commands.txt").read_text()
    assert "status 4  echo 'before <it>'; exit 4" in commands
    assert (evidence / "serial.log").read_text() == "the console\n"
    assert "&lt;it&gt;" in page
    assert "test_breaks" in (pytester.path / "reports/junit.xml").read_text()


def test_an_explicit_guest_skips_with_the_reason(run):
    result = run("--guest=container", "-rs")
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*the container guest lacks power-cut*"])


def test_with_acceleration_everything_is_a_virtual_machine(run):
    result = run("-k", "works or power", kvm=True)
    result.assert_outcomes(passed=2, deselected=3)
    result.stdout.fnmatch_lines(
        ["guest: qemu (KVM)", "ASKED [[]('fresh', 'qemu'), ('fresh', 'qemu')*"]
    )


def test_workers_share_the_run(run, pytester):
    result = run("-n", "2")
    result.assert_outcomes(passed=4, failed=1)
    page = (pytester.path / "reports/index.html").read_text()
    assert "3 passed" in page
    assert "Two is three." in page
    assert (pytester.path / "reports/test_breaks/commands.txt").exists()


def test_a_scenario_that_hangs_ends(run, pytester):
    result = run(
        scenarios="""
import pytest, time

@pytest.mark.limit(0.3)
def test_hangs(box):
    time.sleep(20)

@pytest.mark.cold
def test_cold(box):
    pass
"""
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*took longer than 0.3 s*", "ASKED*('boot', 'container')*"])
    assert (pytester.path / "reports/test_hangs/commands.txt").exists()


def test_a_fixture_of_the_same_name_is_none_of_ours(run, pytester):
    result = run(
        scenarios="""
import pytest

@pytest.fixture
def box():
    return 7

def test_it(box):
    assert box == 7
"""
    )
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("guest:*")
    assert not (pytester.path / "reports/index.html").exists()


def test_a_guest_that_never_comes_up_leaves_its_console(run, pytester):
    result = run(
        scenarios="""
import pytest
from agent_box_harness import choice
from agent_box_harness.errors import MachineError

def broken(self, host, needs, workdir, *, cold):
    workdir.mkdir()
    (workdir / "serial.log").write_text("panic!")
    raise MachineError("no shell")

choice.Guests.fresh = broken

def test_it(box):
    pass
"""
    )
    result.assert_outcomes(errors=1)
    assert (pytester.path / "reports/test_it/serial.log").read_text() == "panic!"
    assert "panic!" in (pytester.path / "reports/index.html").read_text()


def test_guests_that_several_scenarios_use(run):
    """Those of one guest come together; after a failure the next one gets a fresh guest."""
    result = run(
        scenarios="""
import pytest
from agent_box_harness import renew

renew.keep = lambda box: print("KEPT")
renew.renew = lambda box, touched: print("RENEWED")

@pytest.mark.renewed
def test_one(box):
    pass

@pytest.mark.shared
def test_two(box):
    pass

@pytest.mark.shared
def test_three(box):
    pass

@pytest.mark.renewed
def test_four(box):
    assert False

def test_five(box):
    pass

@pytest.mark.renewed
def test_six(box):
    pass
"""
    )
    result.assert_outcomes(passed=5, failed=1)
    # five; two and three; one and four; six
    asked = ", ".join(["('fresh', 'container')"] * 4)
    result.stdout.fnmatch_lines(
        ["*KEPT*", "*RENEWED*", "*KEPT*", f"ASKED [[]{asked}] OPEN [[][]]*"]
    )


def test_users_made_anew_for_a_module(run):
    """Its scenarios have the same users, one that asks for its own has them alone."""
    result = run(
        scenarios="""
import pytest
from agent_box_harness import renew

log = []
renew.keep = lambda box: log.append("kept")
renew.renew = lambda box, touched: log.append("renewed")
pytestmark = pytest.mark.renewed("module")

def test_one(box):
    pass

def test_two(box):
    pass

@pytest.mark.renewed
def test_three(box):
    assert log == ["kept", "renewed"]

def test_four(box):
    assert log == ["kept", "renewed", "renewed"]

def test_five(box):
    assert log == ["kept", "renewed", "renewed"]
"""
    )
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["ASKED [[]('fresh', 'container')] OPEN [[][]]*"])


def test_only_those_whom_something_happened_to_are_made_anew(run):
    result = run(
        scenarios="""
import pytest
from agent_box_harness import renew

log = []
renew.keep = lambda box: None
renew.renew = lambda box, touched: log.append(touched)

@pytest.mark.renewed(touches=("alice",))
def test_one(box):
    assert log == []

@pytest.mark.renewed
def test_two(box):
    assert log == [("alice",)]

@pytest.mark.renewed(touches=("alice",))
def test_three(box):
    assert log == [("alice",), None]
"""
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["ASKED [[]('fresh', 'container')] OPEN [[][]]*"])


def test_who_cannot_clean_up_is_the_last_in_its_guest(run):
    """The next scenario gets a fresh guest also after one that fails at its end."""
    result = run(
        scenarios="""
import pytest

pytestmark = pytest.mark.shared

@pytest.fixture
def untidy(box):
    yield
    assert False

def test_one(untidy):
    pass

def test_two(box):
    pass
"""
    )
    result.assert_outcomes(passed=2, errors=1)
    asked = ", ".join(["('fresh', 'container')"] * 2)
    result.stdout.fnmatch_lines([f"ASKED [[]{asked}] OPEN [[][]]*"])
