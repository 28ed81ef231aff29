"""`agent-box-session` gives one answer wherever it is called from, and keeps its contracts."""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed

USER = "alice"
STABLE = ("name", "agent", "state", "id", "pid", "workingDirectory", "restarts", "limits")


@pytest.mark.limit(180)
def test_the_same_answer_from_everywhere(box: Box) -> None:
    """Inside a session and inside another of its windows, over `sudo -u`, `su -`, a login shell,
    ssh-like and empty environments, with TMUX, TMUX_TMPDIR, HOME, USER, XDG_RUNTIME_DIR set to
    junk or to another user's: `ls` and `status` say the same, and changes reach the same list.
    """
    box.ctl(USER, "add other --agent shell").check()
    box.wait_session(USER, "main", "running")
    box.wait_session("bob", "main", "running")
    listing = _facts(box.ctl(USER, "ls --json").check().out)
    assert [view["name"] for view in listing] == ["main", "other"]
    status = json.loads(box.ctl(USER, "status --json").check().out)

    for place, prefix in PLACES.items():
        answer = box.run(prefix.format(command="agent-box-session ls --json"))
        assert answer.rc == 0, f"{place}: {answer.err}"
        assert _facts(answer.out) == listing, place
        assert answer.err == "", place
    for session in (None, "main"):
        inside = box.in_session(USER, "agent-box-session ls --json", session=session).check()
        assert _facts(inside.out) == listing
    for place in ("junk in the environment", "a directory that is gone"):
        answer = box.run(PLACES[place].format(command="agent-box-session status --json"))
        assert json.loads(answer.out) == status, f"{place}: {answer.err}"

    # A change from a strange place changes what everybody sees, and nobody else's.
    for place in ("junk in the environment", "bob's directory", "an empty environment"):
        add = "agent-box-session add strange --agent shell --quiet"
        box.run(PLACES[place].format(command=add)).check(place)
        assert set(box.registry(USER)["sessions"]) == {"main", "other", "strange"}
        box.run(PLACES[place].format(command="agent-box-session rm strange")).check(place)
    assert _facts(box.ctl(USER, "ls --json").check().out) == listing
    assert list(box.registry("bob")["sessions"]) == ["main"]
    assert len(outside.servers(box, USER)) == 1


def test_typed_into_a_session(box: Box) -> None:
    """What a person types into a session: the command is on PATH, knows its user and marks no
    difference to the answer outside.
    """
    box.wait_session(USER, "main", "running")
    out = f"{box.home(USER)}/answer"
    box.ctl(USER, f"send main 'agent-box-session ls --json >{out}.new; mv {out}.new {out}'").check()
    box.wait_for_file(out)
    assert _facts(box.read(out)) == _facts(box.ctl(USER, "ls --json").check().out)


def test_strangers_are_told_what_to_do(box: Box) -> None:
    """Root, and an account that is no user of the box, get a usage error with the way out."""
    as_root = box.run("agent-box-session ls")
    assert as_root.rc == 2
    box.expect_in(as_root.err, "sudo -u alice agent-box-session")
    as_nobody = box.run("runuser -u nobody -- agent-box-session ls")
    assert as_nobody.rc == 2
    box.expect_in(as_nobody.err, "not a user of this box")


def test_exit_codes(box: Box) -> None:
    """0 done, 2 wrong usage, 3 no such session, 4 conflict, 1 broken; each refusal is one line
    on standard error that names the way out, and with `--json` it is JSON on standard output.
    """
    box.wait_session(USER, "main", "running")
    expected = {
        "ls": 0,
        "show main": 0,
        "add second --agent shell": 0,
        "rm second": 0,
        "frobnicate": 2,
        "add 'bad name' --agent shell": 2,
        "add other --agent hal9000": 2,
        "add other --cwd /nonexistent": 2,
        "env set 1BAD x": 2,
        "show nobody": 3,
        "rm nobody": 3,
        "logs nobody": 3,
        "restart nobody": 3,
        "send nobody hello": 3,
        "add main --agent shell": 4,
        "rename main main": 4,
        "wait main --state stopped --timeout 0.5": 4,
    }
    outcome = {command: box.ctl(USER, command) for command in expected}
    assert {command: result.rc for command, result in outcome.items()} == expected
    for command, result in outcome.items():
        if result.rc in (3, 4):
            assert len(result.err.splitlines()) == 1, command
            assert result.err.startswith("agent-box-session: "), command
            refused = box.ctl(USER, f"{command} --json")
            assert json.loads(refused.out), command
        assert "Traceback" not in result.err
    box.succeed(f"systemctl stop {outside.supervisor(USER)}")
    assert box.ctl(USER, "status").rc == 1
    assert box.ctl(USER, "send main hello").rc == 1


def test_attach_as_the_readme_prints_it(box: Box) -> None:
    """`sudo -u alice env TMUX_TMPDIR=… tmux -L agent-box attach -t main` and `agent-box-session
    attach` both put a person on a terminal into the session; a second look does not disturb.
    """
    box.wait_session(USER, "main", "running")
    lines = {
        "tmux": f"sudo -u {USER} env TMUX_TMPDIR=/run/agent-box-{USER} "
        "tmux -L agent-box attach -t main",
        "command": f"sudo -u {USER} agent-box-session attach main",
    }
    for name, line in lines.items():
        unit = f"attach-{name}"
        box.succeed(
            f"systemd-run --quiet --unit={unit} --setenv=TERM=xterm-256color "
            f"script -qec {shlex.quote(line)} /dev/null"
        )
        box.wait_for("a person attached", lambda: box.session(USER, "main")["attached"] == 1)
        box.succeed(f"systemctl stop {unit}")
        box.wait_for("nobody attached", lambda: box.session(USER, "main")["attached"] == 0)
    assert len(outside.servers(box, USER)) == 1


def test_prompts_arrive_whole(box: Box) -> None:
    """A kickoff prompt by argument, file or standard input reaches the agent exactly, with
    quotes, newlines, `$` and UTF-8; 100 KB and more as well. `send` types what it was given.
    """
    box.use_stub("claude")
    tricky = 'it\'s "quoted", $HOME `id` \\n\n--not-an-option\n\tGrüße 世界 \N{ROCKET}'
    long = "".join(f"line {number} of a long task\n" for number in range(4600))
    assert len(long) > 100_000
    path = f"{box.home(USER)}/task.md"
    box.write_file(path, tricky, 0o600, f"{USER}:{USER}")
    box.ctl(USER, f"add argument --agent claude --prompt {shlex.quote(tricky)}").check()
    box.ctl(USER, f"add file --agent claude --prompt-file {path}").check()
    box.ctl(USER, "add stdin --agent claude --prompt -", stdin=tricky).check()
    box.ctl(USER, "add long --agent claude --prompt -", stdin=long[:102_000]).check()
    for name in ("argument", "file", "stdin"):
        assert _prompts(box, name, 1) == [tricky]
    received = _prompts(box, "long", 1)[0]
    digest = hashlib.sha256(long[:102_000].encode()).hexdigest()
    assert hashlib.sha256(received.encode()).hexdigest() == digest
    box.wait_for("all delivered", lambda: not any(v["promptPending"] for v in box.sessions(USER)))

    # Longer than one argument may be: the agent is told where it lies.
    box.ctl(USER, "add longer --agent claude --prompt -", stdin=long * 2).check()
    told = _prompts(box, "longer", 1)[0]
    named = next(word for word in told.split() if word.startswith(box.home(USER)))
    named = named.rstrip(".,:;")
    assert box.read(named) == long * 2
    assert box.succeed(f"stat -c '%U %a' {named}").strip() == f"{USER} 600"

    box.ctl(USER, "send argument --file -", stdin="second, $HOME\nof two lines").check()
    assert _prompts(box, "argument", 2)[1] == "second, $HOME\nof two lines"


def _prompts(box: Box, name: str, count: int) -> list[str]:
    """What the stub of a session was told, once that are `count` prompts."""
    ident = box.session(USER, name)["id"]

    def told() -> list[str]:
        return [item["prompt"] for item in box.stub_prompts(USER) if item["id"] == ident]

    box.wait_for(f"{count} prompts of {name}", lambda: len(told()) >= count)
    return told()


def _facts(text: str) -> list[dict[str, Any]]:
    """The part of a listing that does not change by itself."""
    return [{key: view[key] for key in STABLE} for view in json.loads(text)["sessions"]]


_JUNK = (
    "TMUX=/tmp/junk,1,2 TMUX_PANE=%99 TMUX_TMPDIR=/nonexistent HOME=/root USER=bob LOGNAME=bob "
    "XDG_RUNTIME_DIR=/run/agent-box-bob AGENT_BOX_SESSION=junk SHELL=/bin/false"
)

PLACES = {
    "sudo -u": f"sudo -u {USER} {{command}}",
    "sudo -i": f"sudo -i -u {USER} {{command}}",
    "sudo -u with root's environment": f"sudo -E -u {USER} {{command}}",
    "a login shell": f"su - {USER} -c '{{command}}'",
    "a shell in a login shell": f"su - {USER} -c 'bash -lc \"{{command}}\"'",
    "a plain su": f"su {USER} -c '{{command}}'",
    "an empty environment": f"runuser -u {USER} -- env -i /usr/bin/env PATH=$PATH {{command}}",
    "junk in the environment": f"runuser -u {USER} -- env {_JUNK} {{command}}",
    "bob's directory": f"cd / && sudo -u {USER} env TMUX_TMPDIR=/run/agent-box-bob {{command}}",
    "another locale": f"runuser -u {USER} -- env LC_ALL=POSIX LANG=POSIX {{command}}",
    "no terminal type": f"runuser -u {USER} -- env -u TERM {{command}}",
    "a directory that is gone": "d=$(mktemp -d) && cd $d && rmdir $d && "
    f"runuser -u {USER} -- {{command}}",
}
"""Where a command is called from -> root's command line that calls it there."""
