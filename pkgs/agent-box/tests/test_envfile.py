"""The environment file: nothing lost, nothing changed that nobody asked for."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_box import envfile, locking
from agent_box.errors import ConflictError, InternalError, UsageError

KEYS = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,20}\Z").filter(
    lambda key: not envfile.is_reserved(key)
)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
NASTY = st.text(st.sampled_from("$'\"\\\n\r\t x=#n\x7f\x01é\u2028"), max_size=12)
VALUES = TEXT | NASTY


SOURCES = {"PYTHONPATH": str(Path(envfile.__file__).parents[1])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "env"


def test_old_plain_lines_read_as_before(path: Path):
    path.parent.mkdir()
    path.write_bytes(
        b'# a note\n\nTOKEN=abc=d\nDOUBLE="quoted text"\nSINGLE=\'q\'\nHALF="x\nONE="\n'
        b' SPACED=1\nexport E=1\nno equals\n1X=1\nTRAIL=x  \nBACK="C:\\new\\table"\nEMPTY=\n'
        b"DUP=1\nDUP=2\nDOLLAR=$HOME `id`\nCR=x\r\nBYTES=\xff\nHASH=#1\nLAST=no newline"
    )
    assert envfile.read(path) == {
        "TOKEN": "abc=d",
        "DOUBLE": "quoted text",
        "SINGLE": "q",
        "HALF": '"x',
        "ONE": '"',
        "TRAIL": "x  ",
        "BACK": "C:\\new\\table",
        "EMPTY": "",
        "DUP": "2",
        "DOLLAR": "$HOME `id`",
        "CR": "x\r",
        "BYTES": "\udcff",
        "HASH": "#1",
        "LAST": "no newline",
    }


def test_plain_values_are_written_plainly(path: Path):
    envfile.set_values(path, {"GH_TOKEN": "ghp_xxx"})
    assert path.read_bytes() == b"GH_TOKEN=ghp_xxx\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("a b", "a b"),
        ("", ""),
        (" a", '" a"'),
        ('"a"', "'\"a\"'"),
        ("'a'", "\"'a'\""),
        ("it's $5", "it's $5"),
        ("$'x'", "\"$'x'\""),
        ("a\nb", "$'a\\nb'"),
        ("a\\n\r'\n", "$'a\\\\n\\r\\'\\n'"),
        ("\x1b", "$'\\x1b'"),
        ("größe", "größe"),
    ],
)
def test_quoting_only_where_needed(value, line):
    assert envfile.format_value(value) == line
    assert envfile.parse_value(line) == value


@pytest.mark.parametrize(
    "raw", ["$'", "$'a'b'", "$'a\\'", "$'\\q'", "$'\\x0'", "$'\\x00'", "$'\\xzz'"]
)
def test_what_is_not_quoted_from_end_to_end_is_plain(raw):
    assert envfile.parse_value(raw) == raw


@given(VALUES)
def test_every_value_survives_on_one_line(value):
    line = envfile.format_value(value)
    assert "\n" not in line
    assert envfile.parse_value(line) == value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.dictionaries(KEYS, VALUES, max_size=5))
def test_round_trip_through_the_file(tmp_path: Path, first, second):
    path = tmp_path / "env"
    path.unlink(missing_ok=True)
    envfile.set_values(path, first)
    assert envfile.read(path) == first
    envfile.set_values(path, second)
    assert envfile.read(path) == {**first, **second}
    assert envfile.unset(path, first) == list(first)
    assert envfile.read(path) == {key: value for key, value in second.items() if key not in first}


@given(data=st.binary(max_size=200), key=KEYS, value=VALUES)
def test_lines_of_others_stay_as_they_are(data, key, value):
    document = envfile.EnvFile(data)
    assert document.to_bytes() == data
    before = document.values()
    document.set(key, value)
    after = envfile.EnvFile(document.to_bytes()).values()
    assert after == {**before, key: value}
    start = key.encode() + b"="
    kept = [line for line in document.to_bytes().split(b"\n") if not line.startswith(start)]
    wanted = [line for line in data.split(b"\n") if not line.startswith(start)]
    assert [line for line in kept if line] == [line for line in wanted if line]


def test_edits_keep_place_comments_and_the_unfinished_last_line(path: Path):
    path.parent.mkdir()
    path.write_bytes(b"# mine\nA=1\n\n  odd line\nB=2\r\nA=3\n#end\nLAST=x")
    envfile.set_values(path, {"A": "4", "NEW": "n"})
    assert path.read_bytes() == b"# mine\n\n  odd line\nB=2\r\nA=4\n#end\nLAST=x\nNEW=n\n"
    assert envfile.unset(path, ["B", "GONE"]) == ["B"]
    assert path.read_bytes() == b"# mine\n\n  odd line\nA=4\n#end\nLAST=x\nNEW=n\n"


def test_nothing_is_written_when_nothing_changes(path: Path):
    path.parent.mkdir()
    path.write_bytes(b'A="1"')
    before = path.stat()
    assert envfile.set_values(path, {"A": "1"}) == []
    assert envfile.unset(path, ["B"]) == []
    assert path.stat() == before


@pytest.mark.parametrize(
    "key",
    [
        *(
            "PATH",
            "HOME",
            "USER",
            "SHELL",
            "LOGNAME",
            "LD_PRELOAD",
            "LD_X",
            "BASH_ENV",
            "ENV",
            "IFS",
        ),
        *("PYTHONPATH", "NODE_OPTIONS", "TMUX", "TMUX_TMPDIR", "TMUX_PANE", "AGENT_BOX_SESSION_ID"),
    ],
)
def test_reserved_keys_take_force(path: Path, key):
    with pytest.raises(UsageError, match="--force"):
        envfile.set_values(path, {"OK": "1", key: "x"})
    assert not path.exists()
    envfile.set_values(path, {key: "x"}, force=True)
    assert envfile.read(path) == {key: "x"}
    assert envfile.unset(path, [key]) == [key]


def test_settings_meant_for_users_are_not_reserved():
    assert not envfile.is_reserved("AGENT_BOX_HOOK_SESSION_ARGS")


@pytest.mark.parametrize("key", ["", "1A", "A-B", "A B", "A=B", "é", "A\n"])
def test_keys_that_are_no_names(path: Path, key):
    with pytest.raises(UsageError, match="not a variable name"):
        envfile.set_values(path, {key: "x"}, force=True)
    with pytest.raises(UsageError, match="not a variable name"):
        envfile.unset(path, [key])


def test_values_that_no_program_could_start_with(path: Path):
    for value in ("a\0b", "\ud800", "x" * (128 * 1024)):
        with pytest.raises(UsageError):
            envfile.set_values(path, {"K": value})
    longest = "x" * (envfile.MAX_ENTRY - 2)
    envfile.set_values(path, {"K": longest})
    code = "import os; assert len(os.environ['K']) > 100000"
    subprocess.run([sys.executable, "-c", code], env={"K": envfile.read(path)["K"]}, check=True)
    with pytest.raises(UsageError, match="together"):
        envfile.set_values(path, {f"K{count}": longest[1:] for count in range(9)})
    assert envfile.keys(path) == ["K"]


def test_fifty_parallel_sets_lose_nothing(path: Path):
    code = (
        "import pathlib, sys; from agent_box import envfile; path, n = sys.argv[1:];"
        "envfile.set_values(pathlib.Path(path), {f'KEY_{n}': f'value\\n{n}'})"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code, path, str(number)], env=SOURCES)
        for number in range(50)
    ]
    assert [worker.wait(60) for worker in workers] == [0] * 50
    assert envfile.read(path) == {f"KEY_{n}": f"value\n{n}" for n in range(50)}
    assert sorted(item.name for item in path.parent.iterdir()) == ["env", "env.lock"]


def test_a_held_lock_is_an_error_not_a_risk(path: Path):
    with locking.locked(path):
        started = time.monotonic()
        with pytest.raises(ConflictError, match="locked"):
            envfile.set_values(path, {"A": "1"}, timeout=0.1)
        assert time.monotonic() - started < 5
    assert not path.exists()
    assert stat.S_IMODE(locking.lock_path(path).stat().st_mode) == 0o600


def test_children_do_not_inherit_the_lock(path: Path):
    with locking.locked(path):
        child = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        with locking.locked(path, timeout=1):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_linked_file_stays_linked(tmp_path: Path):
    target = tmp_path / "dotfiles" / "env"
    target.parent.mkdir()
    target.write_text("A=1\n")
    link = tmp_path / "env"
    link.symlink_to(target)
    envfile.set_values(link, {"B": "2"})
    assert link.is_symlink()
    assert target.read_text() == "A=1\nB=2\n"


def test_failed_writes_leave_the_old_file_and_nothing_else(path: Path, monkeypatch):
    envfile.set_values(path, {"A": "1"})

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(InternalError, match="No space left"):
        envfile.set_values(path, {"A": "2"})
    assert path.read_text() == "A=1\n"
    assert sorted(item.name for item in path.parent.iterdir()) == ["env", "env.lock"]


def test_leftovers_of_a_power_cut_are_cleared(path: Path):
    envfile.set_values(path, {"A": "1"})
    litter = path.with_name(".env.0123456789ab.agent-box-tmp")
    litter.write_text("A=secret")
    other = path.with_name(".env.mine")
    other.touch()
    envfile.set_values(path, {"A": "2"})
    assert not litter.exists()
    assert other.exists()


def test_things_that_are_no_file_are_named(path: Path):
    assert envfile.read(path) == {}
    path.mkdir(parents=True)
    with pytest.raises(InternalError, match="plain file"):
        envfile.read(path)
    with pytest.raises(InternalError, match="plain file"):
        envfile.set_values(path, {"A": "1"})
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(InternalError, match="plain file"):
        envfile.read(path)


def test_reading_imports_next_to_nothing():
    code = (
        "import sys; before = set(sys.modules); import agent_box.envfile;"
        "print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=SOURCES,
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"re", "typing", "pathlib", "json", "tempfile"} & set(result.stdout.split())
    assert not heavy
