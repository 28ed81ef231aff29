"""The table of mutations fits the product and the scenarios."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agent_box_harness import mutations

REPO = Path(__file__).resolve().parents[2]
SCENARIOS = REPO / "harness/scenarios"


@pytest.fixture(scope="module")
def table():
    return mutations.load(REPO)


def scenario_module(monkeypatch, name):
    spec = importlib.util.spec_from_file_location(name, SCENARIOS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_mutation_can_be_made(table):
    assert mutations.problems(REPO, table) == []
    assert len({mutation.id for mutation in table}) == len(table)


def test_every_scenario_exists(table):
    for mutation in table:
        assert mutation.text
        for scenario in mutation.scenarios:
            file, _, test = scenario.partition("::")
            text = (REPO / mutations.test_path(file)).read_text()
            assert f"def {test.rpartition('::')[2].partition('[')[0]}(" in text


def test_every_cell_has_a_mutation(monkeypatch, table):
    module = scenario_module(monkeypatch, "test_isolation")
    cells = {cell.name for cell in module.CELLS}
    assert len(cells) == len(module.CELLS)
    assert len(cells) >= 30
    prefix = "test_isolation.py::test_bob_against_alice["
    covered = {
        scenario.removeprefix(prefix).removesuffix("]")
        for mutation in table
        for scenario in mutation.scenarios
        if scenario.startswith(prefix)
    }
    assert covered == cells


def test_out_of_date(tmp_path, table):
    stale = mutations.Mutation("x", [], file="f", old="gone", new="")
    (tmp_path / "f").write_text("here")
    assert "0 times" in mutations.problems(tmp_path, [stale])[0]


JUNIT = """\
<testsuites><testsuite>
<testcase name="test_a[red]"><failure message="AssertionError: bob got through"/></testcase>
<testcase name="test_a[bare]"><failure message="assert 200 == 401"/></testcase>
<testcase name="test_a[green]"/>
<testcase name="test_a[lost]"><failure message="RequestFailedError: no answer"/></testcase>
<testcase name="test_a[late]"><failure message="a.b.WaitTimeoutError: gave up"/></testcase>
<testcase name="test_a[dead]"><error message="the guest did not boot"/></testcase>
</testsuite></testsuites>
"""


@pytest.mark.parametrize(
    ("cell", "killed", "survived", "trouble"),
    [
        ("[red]", True, False, False),
        ("[bare]", True, False, False),  # pytest leaves the name out of a bare assertion
        ("[green]", False, True, False),
        ("[lost]", False, False, True),
        ("[dead]", False, True, True),
        ("", True, False, False),  # any of its parameters
        ("[late]", True, False, False),
        ("[absent]", False, True, False),
    ],
)
def test_verdict(tmp_path, cell, killed, survived, trouble):
    report = tmp_path / "junit.xml"
    document = ET.fromstring(JUNIT)
    for case in list(document.iter("testcase")):
        if (cell or "late") not in case.get("name"):
            document[0].remove(case)
    ET.ElementTree(document).write(report)
    mutation = mutations.Mutation("x", [f"f.py::test_a{cell}"])
    result = mutations._verdict(mutation, report)
    assert (result.killed, bool(result.survived), bool(result.trouble)) == (
        killed,
        survived,
        trouble,
    )


def test_nothing_selected():
    options = argparse.Namespace(k="no such mutation", list=True, guest=None)
    with pytest.raises(mutations.HarnessError, match="no mutation has"):
        mutations.main(options, REPO)
