"""Many commands at once: nothing that was acknowledged is lost. Values arrive as they were set."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed(touches=("alice",))

USER = "alice"


VALUES = {
    "TWO_LINES": "first\nsecond\n\nfourth",
    "QUOTES": """it's "quoted" and `ticked` and \\ escaped \\n""",
    "DOLLARS": "$HOME ${PATH} $(id) $'\\x41' !! %s",
    "UTF_8": "Grüße, 世界, \N{ROCKET}, e\N{COMBINING ACUTE ACCENT}",
    "BLANKS": "  two before, a tab\tin it, two behind  ",
    "LOOKS_QUOTED": '"all of it"',
    "LOOKS_LIKE_A_COMMENT": "# no comment",
    "LOOKS_LIKE_A_PAIR": "A=B=C",
    "EMPTY": "",
    "LONG": "0123456789abcdef" * 6000,
}


def test_fifty_variables_at_once(box: Box) -> None:
    """Of 50 variables that are set at the same time none is lost, and of 25 that are then removed
    while 25 others are set, each is what was last acknowledged; the file stays the user's alone.
    """
    box.ctl(USER, "env set BEFORE kept").check()
    _at_once(box, [f"env set KEY_{number} value-{number}" for number in range(50)])
    assert _keys(box) == {"BEFORE", *(f"KEY_{number}" for number in range(50))}
    _at_once(
        box,
        [f"env unset KEY_{number}" for number in range(25)]
        + [f"env set MORE_{number} value-{number}" for number in range(25)],
    )
    wanted = {"BEFORE": "kept"}
    wanted |= {f"KEY_{number}": f"value-{number}" for number in range(25, 50)}
    wanted |= {f"MORE_{number}": f"value-{number}" for number in range(25)}
    lines = box.read(f"{box.home(USER)}/.config/agent-box/env").splitlines()
    assert dict(line.split("=", 1) for line in lines) == wanted
    assert len(lines) == len(wanted)
    _clean(box)


@pytest.mark.limit(180)
def test_twenty_sessions_at_once(box: Box) -> None:
    """Of 20 sessions that are added at the same time each is listed and runs; then 20 are removed
    while 20 others are added: the ones are gone with every process, the others all run.
    """
    main = box.wait_session(USER, "main", "running")
    _at_once(box, [f"add one-{number} --agent shell" for number in range(20)])
    ones = {f"one-{number}" for number in range(20)}
    _all_run(box, {"main", *ones})
    pids = [pane.pid for name, pane in outside.panes(box, USER).items() if name in ones]

    _at_once(
        box,
        [f"rm one-{number}" for number in range(20)]
        + [f"add two-{number} --agent shell" for number in range(20)],
    )
    twos = {f"two-{number}" for number in range(20)}
    _all_run(box, {"main", *twos})
    assert box.session(USER, "main")["pid"] == main["pid"]
    left = box.run(f"ps -o pid=,args= -p {','.join(map(str, pids))}").out
    assert left == ""
    records = box.succeed(f"ls {box.home(USER)}/.local/state/agent-box/sessions").split()
    ids = {view["id"] for view in box.sessions(USER)}
    assert {name.removesuffix(".json") for name in records} == ids
    assert box.ctl(USER, "status").rc == 0
    _clean(box)


def test_the_same_name_at_once(box: Box) -> None:
    """Of ten who add a session of one name at the same time, one succeeds and nine hear that it
    exists (exit 4); one session runs.
    """
    outcomes = _outcomes(box, ["add twin --agent shell"] * 10)
    assert sorted(outcomes) == [0] + [4] * 9
    _all_run(box, {"main", "twin"})


def test_values_arrive_as_they_were_set(box: Box) -> None:
    """Newlines, quotes, `$`, blanks, UTF-8 and 96 KB arrive in the environment of the agent as
    they were given, whether by argument or by standard input; `env ls` tells names only.
    """
    for number, (key, value) in enumerate(VALUES.items()):
        if number % 2 and len(value) < 1000:
            box.ctl(USER, f"env set {key} {shlex.quote(value)}").check(key)
        else:
            box.ctl(USER, f"env set {key} --raw", stdin=value).check(key)
    listing = box.ctl(USER, "env ls").check()
    assert set(listing.out.split()) == set(VALUES)
    box.use_stub("claude")
    box.ctl(USER, "add work --agent claude").check()
    box.wait_for("the launch", lambda: box.stub_launches(USER))
    seen = box.stub_launches(USER)[0]["env"]
    assert {key: seen.get(key) for key in VALUES} == VALUES


def test_reserved_keys_are_refused(box: Box) -> None:
    """Variables that break every session at once are refused (exit 2) with the way out, and
    nothing is written; with `--force` they are set.
    """
    for key in ("PATH", "LD_PRELOAD", "BASH_ENV", "HOME", "NODE_OPTIONS", "TMUX_TMPDIR"):
        refused = box.ctl(USER, f"env set {key} /tmp/x")
        assert refused.rc == 2, key
        box.expect_in(refused.err, "--force")
        assert box.run(f"test -s {box.home(USER)}/.config/agent-box/env").rc != 0, key
    assert _keys(box) == set()
    box.ctl(USER, "env set --force PATH /tmp/x").check()
    assert _keys(box) == {"PATH"}


def _at_once(box: Box, commands: list[str]) -> None:
    outcomes = _outcomes(box, commands)
    assert outcomes == [0] * len(commands)


def _outcomes(box: Box, commands: list[str]) -> list[int]:
    """Exit statuses of commands that are started together."""
    script = "d=$(mktemp -d)\n"
    for number, command in enumerate(commands):
        # They wait for one another at a door that opens for all at once.
        script += (
            f"(while [ ! -e $d/go ]; do sleep 0.05; done; agent-box-session {command} "
            f">$d/{number}.out 2>&1; echo $? >$d/{number}.rc) &\n"
        )
    script += (
        "sleep 0.5; : >$d/go; wait\n"
        f"for i in $(seq 0 {len(commands) - 1}); do cat $d/$i.rc; "
        "[ $(cat $d/$i.rc) = 0 ] || cat $d/$i.out >&2; done\n"
    )
    done = box.as_user(USER, script, timeout=120).check("commands at once")
    return [int(word) for word in done.out.split()]


def _keys(box: Box) -> set[str]:
    return set(box.ctl(USER, "env ls").check().out.split())


def _all_run(box: Box, names: set[str]) -> None:
    wanted = dict.fromkeys(names, "running")

    def states() -> dict[str, str]:
        return {view["name"]: view["state"] for view in box.sessions(USER)}

    box.wait_for(f"{len(names)} running sessions", lambda: states() == wanted)
    assert set(box.registry(USER)["sessions"]) == names
    panes = outside.panes(box, USER)
    assert set(panes) == names
    assert not any(pane.dead for pane in panes.values())


def _clean(box: Box) -> None:
    """Nothing is left lying about, and nothing may be read by others."""
    folder = f"{box.home(USER)}/.config/agent-box"
    left = set(box.succeed(f"ls -A {folder}").split())
    assert left <= {
        "env",
        "env.lock",
        "session-env",
        "sessions.json",
        "sessions.json.lock",
        "sessions.json.last-good",
    }
    modes = box.succeed(f"find {folder} -mindepth 1 -printf '%y %m\\n'").splitlines()
    assert set(modes) <= {"f 600", "d 700"}
