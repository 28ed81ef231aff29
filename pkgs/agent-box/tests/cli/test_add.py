"""`add`: what reaches the supervisor, and what is refused before anything is stored."""

from __future__ import annotations

import io
import os
import sys

import pytest

from agent_box.errors import ConflictError

from .conftest import view


@pytest.fixture
def add(cli, box):
    """Run `add` and return the result and the request, `wait` taken out."""

    def reply(args):
        name = args.get("name", "claude")
        return {"session": view(name, "running", agent=args.get("agent", "claude"))}

    box.supervisor.replies["add"] = reply

    def run(*argv):
        before = len(box.supervisor.requests)
        result = cli("add", *argv)
        sent = box.supervisor.requests[before:]
        return result, (sent[0][1] if sent else None)

    return run


def test_plain(add):
    result, sent = add()
    assert sent == {"wait": True}
    assert result.out == "claude: started (claude in /home/alice)\n"
    assert add("--quiet")[0].out == "claude\n"
    assert add("x", "--json")[0].json["name"] == "x"
    result, sent = add("x", "--no-wait")
    assert sent == {"wait": False, "name": "x"}
    assert result.out == "x: added (claude in /home/alice)\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["review", "--agent", "codex"],
        ["--agent", "codex", "review"],
        ["--agent=codex", "review"],
        ["--quiet", "review", "--agent", "codex"],
    ],
)
def test_order_does_not_matter(add, argv):
    assert add(*argv)[1] == {"wait": True, "name": "review", "agent": "codex"}


def test_every_option(add, tmp_path):
    _, sent = add(
        *("x", "--no-skip-permissions", "--no-remote-control", "--remote-control-name", "a b"),
        *(
            "--resume-prompt",
            "- go on",
            "--prompt",
            "--model is $HOME\nnot 'x'",
            "--cwd",
            str(tmp_path),
        ),
        *("--", "--model", "o p", "--", "a\nb", ""),
    )
    assert sent == {
        "wait": True,
        "name": "x",
        "skipPermissions": False,
        "remoteControl": False,
        "remoteControlName": "a b",
        "resumePrompt": "- go on",
        "prompt": "--model is $HOME\nnot 'x'",
        "workingDirectory": os.path.realpath(tmp_path),
        "extraArgs": ["--model", "o p", "--", "a\nb", ""],
    }


def test_prompts_of_all_sources(add, tmp_path, monkeypatch):
    text = "größe\n" * 20_000
    source = tmp_path / "task.md"
    source.write_text(text)
    assert add("--prompt", text)[1]["prompt"] == text
    assert add("--prompt-file", str(source))[1]["prompt"] == text
    for argv in (["--prompt", "-"], ["--prompt-file", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert add(*argv)[1]["prompt"] == text
    assert "prompt" not in add("--prompt", "")[1]


def test_a_long_prompt_through_a_real_process(box):
    box.supervisor.replies["add"] = {"session": view("x")}
    text = "0123456789" * 10_240
    result = box.process("add", "x", "--quiet", "--prompt", text)
    assert (result.returncode, result.stdout) == (0, "x\n")
    assert box.supervisor.args("add")["prompt"] == text
    large = "é" * 200_000
    assert box.process("add", "x", "--prompt", "-", input=large).returncode == 0
    assert box.supervisor.requests[-1][1]["prompt"] == large


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["_x"], "reserved"),
        (["a b"], "letters"),
        (["x" * 151], "150"),
        (["--agent", "emacs"], "not an agent"),
        (["--agent", "pi"], "not an agent of this box"),
        (["--agent", "shell", "--prompt", "x"], "shell takes no prompt"),
        (["--agent"], "expected one argument"),
        (["--prompt", "--cwd", "/"], "expected one argument"),
        (["--prompt", "x", "--prompt-file", "y"], "not allowed with"),
        (["a", "b"], "unrecognized arguments: b"),
        (["--nope"], "unrecognized arguments: --nope"),
        (["--prompt-file", "/nowhere/x"], "cannot read /nowhere/x"),
        (["--prompt-file", "/dev/null"], "empty"),
        (["--cwd", ""], "empty"),
        (["--cwd", "/nowhere/x"], "--mkdir"),
        (["--cwd", "/dev/null"], "not a directory"),
        (["--mkdir"], "--cwd"),
    ],
)
def test_refusals(add, argv, says):
    result, sent = add(*argv)
    assert result.status == 2
    assert says in result.err
    assert result.out == ""
    assert sent is None


def test_directories_become_absolute_and_real(add, box, tmp_path, monkeypatch):
    real = tmp_path / "real" / "proj"
    real.mkdir(parents=True)
    (tmp_path / "link").symlink_to(real.parent)
    (box.home / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    expected = os.path.realpath(real)
    for given in (
        "real/proj",
        "real/proj/",
        "link/proj",
        f"{tmp_path}/link/../real/proj",
        "./link/proj",
    ):
        assert add("--cwd", given)[1]["workingDirectory"] == expected
    # The home directory is that of the account, not $HOME.
    assert add("--cwd", "~/work")[1]["workingDirectory"] == os.path.realpath(box.home / "work")
    assert add("--cwd", "~")[1]["workingDirectory"] == os.path.realpath(box.home)
    sent = add("--cwd", "new/dir", "--mkdir")[1]
    assert sent["workingDirectory"] == str(tmp_path.resolve() / "new/dir")
    assert sent["mkdir"] is True
    assert "mkdir" not in add("--cwd", "real", "--mkdir")[1]


def test_what_is_not_utf8_is_refused_by_name(box):
    result = box.process("add", "x", "--prompt", b"\xff\xfe", text=None)  # type: ignore[arg-type]
    assert result.returncode == 2
    assert b"UTF-8" in result.stderr


def test_a_session_that_does_not_run_is_no_success(cli, box):
    box.supervisor.replies["add"] = {"session": view("x", "failed", reason="claude is missing")}
    result = cli("add", "x")
    assert result.status == 1
    assert "does not run" in result.out
    assert "claude is missing" in result.err
    box.supervisor.replies["add"] = {"session": view("x", "waiting", reason="not signed in")}
    result = cli("add", "x", "--quiet")
    assert (result.status, result.out) == (0, "x\n")
    assert "attach x" in result.err


def test_an_existing_name_is_a_conflict(cli, box):
    box.supervisor.replies["add"] = ConflictError("session 'x' exists already")
    assert cli("add", "x").status == 4
