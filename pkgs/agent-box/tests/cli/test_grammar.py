"""Usage, help and completion."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box.session_cli import completion
from agent_box.session_cli import parser as grammar

VERBS = list(grammar.subparsers(grammar.build()))


def test_no_arguments_is_usage_on_stderr(cli):
    result = cli()
    assert result.status == 2
    assert result.out == ""
    assert "usage: agent-box-session" in result.err


def test_help_is_on_stdout(cli):
    for argv in (["--help"], ["-h"], ["add", "--help"], ["env", "set", "-h"]):
        result = cli(*argv)
        assert (result.status, result.err) == (0, "")
        assert "usage: agent-box-session" in result.out


def test_help_knows_every_verb(cli):
    out = cli("--help").out
    wanted = "ls add rm restart stop start show logs attach send wait rename env signin"
    wanted += " completion status"
    assert set(wanted.split()) == set(VERBS)
    assert all(f"\n    {verb}" in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_json_and_help(cli, verb):
    assert "--json" in cli(verb, "--help").out


@pytest.mark.parametrize(
    "argv", [["bogus"], ["ls", "x"], ["--bogus"], ["rm"], ["rename", "a"], ["lis"]]
)
def test_wrong_usage(cli, argv):
    result = cli(*argv)
    assert result.status == 2
    assert result.out == ""
    assert "usage:" in result.err


def test_version(cli):
    assert cli("--version").out.startswith("agent-box-session ")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_option_values_are_free_text(text):
    options = {
        option
        for verb in ("add",)
        for option in grammar.options_of(grammar.subparsers(grammar.build())[verb])
    }
    if text.partition("=")[0] in options:
        return
    _, arguments = grammar.parse(["add", "--prompt", text, "x"])
    assert (arguments.prompt, arguments.name) == (text, "x")
    _, arguments = grammar.parse(["send", "main", "--no-enter", "--", text])
    assert (arguments.text, arguments.no_enter) == (text, True)


@pytest.mark.parametrize("shell", grammar.SHELLS)
def test_completion_scripts_know_everything(cli, shell):
    out = cli("completion", shell).out
    assert all(verb in out for verb in VERBS)
    assert "no-skip-permissions" in out
    assert "unset" in out
    assert cli("completion", shell, "--json").json["script"] == out


@pytest.mark.parametrize("shell", grammar.SHELLS)
def test_completion_scripts_parse(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(getattr(completion, shell)())
    subprocess.run([shell, "-n", str(script)], check=True)


def test_bash_completion_completes(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    fake = tmp_path / "agent-box-session"
    fake.write_text("#!/bin/sh\nprintf 'main\\nreview\\n'\n")
    fake.chmod(0o755)

    def complete(*words: str) -> list[str]:
        program = (
            completion.bash()
            + f"COMP_WORDS=({' '.join(repr(word) for word in ('agent-box-session', *words))})\n"
            + f"COMP_CWORD={len(words)}\n_agent_box_session\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        )
        result = subprocess.run(
            ["bash", "--norc", "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        )
        assert result.stderr == ""
        return result.stdout.split()

    assert complete("re") == ["restart", "rename"]
    assert complete("rm", "ma") == ["main"]
    assert complete("add", "--agent", "co") == ["codex"]
    assert complete("wait", "main", "--state", "run") == ["running"]
    assert complete("env", "un") == ["unset"]
    assert complete("completion", "z") == ["zsh"]
    assert "--no-wait" in complete("add", "--no")


def test_fish_completion_completes(tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    fake = tmp_path / "agent-box-session"
    fake.write_text("#!/bin/sh\nprintf 'main\\nreview\\n'\n")
    fake.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(completion.fish())

    def complete(line: str) -> list[str]:
        result = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        return [row.split("\t")[0] for row in result.stdout.splitlines()]

    assert set(complete("agent-box-session re")) == {"restart", "rename"}
    assert complete("agent-box-session rm ma") == ["main"]
    assert complete("agent-box-session add --agent co") == ["codex"]
    assert "unset" in complete("agent-box-session env ")


def test_zsh_completion_completes(tmp_path):
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script = tmp_path / "script"
    script.write_text(completion.zsh())
    # What compadd is asked to offer, without a line editor.
    program = f"""
        compdef() {{ : }}; _describe() {{ print -l describe $verbs }}; _files() {{ print files }}
        compadd() {{ shift; print -l -- "$@" }}
        agent-box-session() {{ print -l main review }}
        source {script}
        offer() {{ words=("$@"); CURRENT=$#words; _agent_box_session }}
        offer agent-box-session ''; print --; offer agent-box-session rm ''; print --
        offer agent-box-session add --cwd ''; print --; offer agent-box-session add --agent ''
    """
    result = subprocess.run(
        ["zsh", "-f", "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stderr == ""
    assert "\nrestart:" in result.stdout
    assert "main\nreview" in result.stdout
    assert "\nfiles\n" in result.stdout
    assert "codex\n" in result.stdout
