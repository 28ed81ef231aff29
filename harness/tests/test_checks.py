"""`scripts/test`: which checks run, and how it ends."""

from __future__ import annotations

import argparse

import pytest

from agent_box_harness import checks, cli


@pytest.fixture
def calls(monkeypatch):
    made = []

    def run(argv):
        made.append(argv)
        return 1 if "mypy" in argv else 0

    monkeypatch.setattr(checks, "run", run)
    monkeypatch.setattr(checks, "interpreters", lambda: [checks.Interpreter("Python 3.x", None)])
    return made


def options(part, *rest):
    return argparse.Namespace(part=part, rest=list(rest))


def test_everything_runs_even_after_a_failure(calls, capsys):
    repo = cli.repository()
    assert checks.main(options("unit"), repo) == 1
    assert any("shellcheck" in argv for argv in calls)
    assert calls[-1][3:5] == ["pkgs/agent-box/tests", "harness/tests"]
    assert "FAILED" in capsys.readouterr().out


def test_selecting_unit_tests_leaves_the_linters_out(calls):
    assert checks.main(options("unit", "-k", "names"), cli.repository()) == 0
    assert len(calls) == 1
    assert calls[0][-2:] == ["-k", "names"]


def test_pytest_arguments_reach_the_scenarios(calls, tmp_path):
    (tmp_path / "harness/scenarios").mkdir(parents=True)
    assert checks.main(options("box", "-k", "respawn", "--guest", "qemu"), tmp_path) == 0
    assert calls[0][-5:] == ["harness/scenarios", "-k", "respawn", "--guest", "qemu"]
    checks.main(options("box", "harness/scenarios/test_boot.py"), tmp_path)
    assert calls[1].count("harness/scenarios") == 0


@pytest.mark.parametrize(
    ("line", "part", "rest"),
    [
        (["test"], "all", []),
        (["test", "unit"], "unit", []),
        (["test", "box", "-k", "a b", "--lf", "-x"], "box", ["-k", "a b", "--lf", "-x"]),
    ],
)
def test_the_command_line(line, part, rest):
    parsed = cli.build_parser().parse_args(line)
    assert (parsed.part, parsed.rest) == (part, rest)


def test_our_own_scripts_are_found():
    found = checks.shell_scripts(cli.repository())
    assert {"scripts/test", "scripts/try", ".ci/run"} <= set(found)
