"""`scripts/test`: which checks run, and how it ends."""

from __future__ import annotations

import argparse
import subprocess

import pytest

from agent_box_harness import checks, choice, cli


@pytest.fixture
def calls(monkeypatch):
    made = []

    def run(argv, output=None):
        made.append(argv)
        if output is not None:
            output.write(b"what pytest says")
        return 1 if "mypy" in argv or "pkgs/agent-box/tests" in argv else 0

    monkeypatch.setattr(checks, "run", run)
    monkeypatch.setattr(checks, "interpreters", lambda: [checks.Interpreter("Python 3.x", None)])
    return made


def options(part, *rest):
    return argparse.Namespace(again=False, part=part, rest=list(rest))


def test_everything_runs_even_after_a_failure(calls, capsys):
    repo = cli.repository()
    assert checks.main(options("unit"), repo) == 1
    assert any("shellcheck" in argv for argv in calls)
    assert calls[-1][3:5] == ["pkgs/agent-box/tests", "harness/tests"]
    assert "FAILED after 0 s: mypy, unit tests, Python 3.x" in capsys.readouterr().out


def test_unit_tests_run_beside_the_scenarios(calls, capsys, monkeypatch):
    monkeypatch.setattr(checks, "prepare_guests", lambda: subprocess.Popen(["true"]))
    assert checks.main(options("all"), cli.repository()) == 1
    for part in ("harness/scenarios", "harness/tests"):
        assert sum(part in argv for argv in calls) == 1
    said = capsys.readouterr().out
    assert said.count("what pytest says") == 1
    assert "FAILED after 0 s: mypy, unit tests, Python 3.x" in said


def test_selecting_unit_tests_leaves_the_linters_out(calls):
    assert checks.main(options("unit", "-k", "names"), cli.repository()) == 1
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


@pytest.mark.parametrize(
    ("answers", "again", "status", "runs"),
    [
        ([0], True, 0, 1),
        ([1, 0], True, 0, 2),
        ([1, 1], True, 1, 2),
        ([1], False, 1, 1),
        ([2], True, 2, 1),
    ],
)
def test_what_failed_gets_one_more_chance_alone(monkeypatch, answers, again, status, runs):
    seen: list[list[str]] = []
    left = list(answers)

    def run(argv: list[str], _: object) -> int:
        seen.append(argv)
        return left.pop(0)

    monkeypatch.setattr(checks, "run", run)
    assert checks.pytest("python3", ["x", *checks.PARALLEL], again=again) == status
    assert len(seen) == runs
    if runs == 2:
        assert seen[1][-4:] == ["-n", "0", "--lf", "--lfnf=none"]


def test_what_scenarios_ask_for_is_begun_by_a_command_of_the_harness(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(checks.subprocess, "Popen", made.append)
    checks.prepare_guests()
    ((_, dash, module, *arguments),) = made
    assert (dash, module) == ("-m", cli.__name__)
    hosts = []
    monkeypatch.setattr(cli, "repository", lambda: tmp_path)
    monkeypatch.setattr(choice.Guests, "prepare", lambda self, host: hosts.append(host))
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 0
    assert hosts == ["test"]


def test_byte_code_is_kept_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert checks.run(["sh", "-c", '[ -z "$PYTHONDONTWRITEBYTECODE" ]']) == 0
