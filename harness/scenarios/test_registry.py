"""The list of sessions is the user's own file; what we cannot read we never write over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.renewed(touches=("alice",))

USER = "alice"
UNIT = outside.supervisor(USER)


DAMAGES = {
    "does not parse": ('printf \'{"version": 1, "sessions": {\' >%s', "does not parse"),
    "is empty": ("truncate -s 0 %s", "it is empty"),
    "is a directory": ("rm %s && mkdir %s && touch %s/kept", "is not a regular file"),
    "belongs to root": ("chown root:root %s && chmod 0644 %s", "belongs to uid 0"),
}
"""What happens to the file, and a part of the sentence that tells it."""

MORE_DAMAGES = {
    "is no list of sessions": ("echo '[1, 2]' >%s", "does not parse"),
    "cannot be read": ("chown root:root %s && chmod 0600 %s", "belongs to uid 0"),
    "is a pipe": ("rm %s && mkfifo %s", "is not a regular file"),
    "is binary": ("head -c 4096 /dev/urandom >%s", "does not parse"),
    "lists a name twice": (
        """echo '{"sessions": {"a": {"agent": "shell"}, "a": {"agent": "shell"}}}' >%s""",
        "stands there twice",
    ),
    "is a link to nowhere": ("rm %s && ln -s /nonexistent/list %s", "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_parse_is_not_overwritten(box: Box, damage: str) -> None:
    """A list that cannot be used is left as it is: the sessions go on with the last good intent,
    also through a restart of the supervisor and the end of a session; `ls`, `status`, every
    refused change and the journal tell what is wrong; and once it is mended all is well.
    """
    command, sentence = DAMAGES[damage]
    path = _path(box)
    box.use_stub("claude")
    box.ctl(USER, "add work --agent claude --prompt 'first task'").check()
    box.wait_for("the agent", lambda: "stub: ready" in box.pane_text(USER, "work"))
    box.wait_session(USER, "main", "running")
    before = _pids(box)
    good = box.read(path)
    box.succeed(command.replace("%s", path))
    damaged = _looks(box)

    box.wait_for("the problem to be told", lambda: _problem(box, sentence))
    assert _pids(box) == before
    assert path in _problem(box, sentence)
    status = box.ctl(USER, "status")
    assert status.rc == 1
    box.expect_in(status.err, sentence)
    box.expect_in(outside.journal(box, UNIT), sentence)
    for change in ("add other --agent shell", "rm main", "stop main", "rename main desk"):
        refused = box.ctl(USER, change)
        assert refused.rc == 4, change
        box.expect_in(refused.err, sentence)
    assert _looks(box) == damaged
    assert _pids(box) == before

    box.succeed(f"systemctl restart {UNIT}")
    box.wait_for("the problem to be told again", lambda: _problem(box, sentence))
    assert set(_states(box)) == {"work", "main"}
    assert _pids(box) == before
    box.succeed(f"kill -9 {before['work']}")
    box.wait_for("the next launch", lambda: len(box.stub_launches(USER)) == 2)
    assert box.stub_launches(USER)[1]["resumed"] is True
    assert _looks(box) == damaged

    # Without a supervisor nothing is written over either.
    box.succeed(f"systemctl stop {UNIT}")
    refused = box.ctl(USER, "add other --agent shell")
    assert refused.rc == 4
    box.expect_in(refused.err, sentence)
    assert _problem(box, sentence)
    assert _looks(box) == damaged
    box.succeed(f"systemctl start {UNIT}")

    box.succeed(f"rm -r {path}")
    box.write_file(path, good, 0o600, f"{USER}:{USER}")
    box.wait_for("all to be well", lambda: box.ctl(USER, "status").rc == 0)
    assert box.read(path) == good
    assert _pids(box)["main"] == before["main"]
    box.ctl(USER, "add other --agent shell").check()


def test_more_that_is_not_overwritten(box: Box) -> None:
    """Other ways in which a list can be unusable: each is told, refuses changes with exit 4, ends
    nothing and is left as it is.
    """
    path = _path(box)
    box.wait_session(USER, "main", "running")
    before, good = _pids(box), box.read(path)
    for damage, (command, sentence) in MORE_DAMAGES.items():
        box.succeed(command.replace("%s", path))
        damaged = _looks(box)
        _told(box, sentence)
        if damage != "is a link to nowhere":  # there a change writes the list anew
            refused = box.ctl(USER, "add other --agent shell")
            assert refused.rc == 4, damage
            box.expect_in(refused.err, sentence)
        assert _looks(box) == damaged, damage
        assert _pids(box) == before, damage
        box.succeed(f"rm {path}")
        box.write_file(path, good, 0o600, f"{USER}:{USER}")
        box.wait_for("all to be well", lambda: box.ctl(USER, "status").rc == 0)
    assert _pids(box) == before


def test_a_list_that_is_deleted(box: Box) -> None:
    """Deleting the file ends nothing and sows nothing: the last known sessions stay, the problem
    is told with its remedy, and the next change writes the list anew with all of them.
    """
    path = _path(box)
    box.ctl(USER, "add extra --agent shell").check()
    box.wait_session(USER, "main", "running")
    before = _pids(box)
    box.succeed(f"rm {path}")
    box.wait_for("the problem to be told", lambda: _problem(box, "is missing"))
    box.succeed(f"systemctl restart {UNIT}")
    box.wait_for("the problem to be told", lambda: _problem(box, "is missing"))
    assert _pids(box) == before
    box.ctl(USER, "add other --agent shell").check()
    assert set(box.registry(USER)["sessions"]) == {"main", "extra", "other"}
    assert {name: pid for name, pid in _pids(box).items() if name != "other"} == before
    assert box.ctl(USER, "status").rc == 0


def test_unknown_fields_stay(box: Box) -> None:
    """Fields that this version does not know, of the file and of its entries, are no mistake and
    survive every kind of change.
    """
    document = box.registry(USER)
    document["future"] = {"of": ["the", "file"]}
    document["sessions"]["main"]["colour"] = "green"
    document["sessions"]["typed"] = {"agent": "shell", "note": {"deep": [1, None, "ü"]}}
    _write(box, document)
    box.wait_session(USER, "typed", "running")
    box.ctl(USER, "add other --agent shell").check()
    box.ctl(USER, "stop typed").check()
    box.ctl(USER, "start typed").check()
    box.ctl(USER, "rename typed noted").check()
    box.ctl(USER, "restart main").check()
    box.ctl(USER, "rm other").check()
    after = box.registry(USER)
    assert after.get("future") == {"of": ["the", "file"]}
    assert after["sessions"]["main"]["colour"] == "green"
    assert after["sessions"]["noted"]["note"] == {"deep": [1, None, "ü"]}
    assert box.ctl(USER, "status").rc == 0


def test_one_mistake_harms_one_session(box: Box) -> None:
    """An entry that makes no sense is shown as failed with the reason; the others go on, can be
    changed, and the entry stays as it was written until its owner mends or removes it.
    """
    main = box.wait_session(USER, "main", "running")
    document = box.registry(USER)
    wrong: dict[str, Any] = {
        "typo": {"agent": 7},
        "nowhere": {"agent": "shell", "workingDirectory": "relative/path"},
        "twin": {"agent": "shell", "boxSessionId": main["id"]},
        "alien": {"agent": "hal9000"},
        "bad name!": {"agent": "shell"},
    }
    document["sessions"].update(wrong)
    _write(box, document)
    for name in wrong:
        view = box.wait_session(USER, name, "failed")
        assert view["reason"], name
    assert "hal9000" in box.session(USER, "alien")["reason"]
    assert "workingDirectory" in box.session(USER, "nowhere")["reason"]
    assert box.session(USER, "main")["pid"] == main["pid"]
    box.ctl(USER, "add other --agent shell").check()
    listed = box.registry(USER)["sessions"]
    for name in ("typo", "nowhere", "twin", "bad name!"):
        assert listed[name] == wrong[name]
    box.ctl(USER, "rm typo").check()
    assert "typo" not in box.registry(USER)["sessions"]

    document = box.registry(USER)
    document["sessions"]["nowhere"]["workingDirectory"] = box.home(USER)
    _write(box, document)
    box.wait_session(USER, "nowhere", "running")
    assert box.session(USER, "main")["pid"] == main["pid"]


def test_edits_by_hand_are_noticed(box: Box) -> None:
    """What the owner writes into the file is carried out: a new entry starts and gets an id, a
    removed one ends, `stopped` parks; editors that rename and editors that write in place.
    """
    main = box.wait_session(USER, "main", "running")
    path = _path(box)
    document = box.registry(USER)
    document["sessions"]["typed"] = {"agent": "shell"}
    _write(box, document)
    box.wait_session(USER, "typed", "running")
    ident = box.registry(USER)["sessions"]["typed"]["boxSessionId"]
    assert box.session(USER, "typed")["id"] == ident

    document = box.registry(USER)
    document["sessions"]["main"]["stopped"] = True
    box.as_user(USER, f"cat >{path}", stdin=json.dumps(document)).check()
    box.wait_session(USER, "main", "stopped")
    box.wait_for("its end", lambda: not outside.alive(box, main["pid"]))

    pid = box.session(USER, "typed")["pid"]
    del document["sessions"]["typed"]
    del document["sessions"]["main"]["stopped"]
    box.as_user(USER, f"cat >{path}", stdin=json.dumps(document)).check()
    box.wait_for("the end of typed", lambda: not outside.alive(box, pid))
    box.wait_session(USER, "main", "running")
    assert set(outside.panes(box, USER)) == {"main"}


def _path(box: Box) -> str:
    return f"{box.home(USER)}/.config/agent-box/sessions.json"


def _write(box: Box, document: dict[str, Any]) -> None:
    box.write_file(_path(box), json.dumps(document, indent=4), 0o600, f"{USER}:{USER}")


def _looks(box: Box) -> str:
    """Everything about the file that a write would change: inode, owner, mode, time, content."""
    path = _path(box)
    return box.machine.succeed(
        f"stat -c '%i %U:%G %a %y %s' {path}; "
        f"if [ -f {path} ]; then sha256sum {path}; elif [ -d {path} ]; then ls -lA {path}; fi; "
        f"ls {path.rpartition('/')[0]}"
    )


def _problem(box: Box, sentence: str) -> str:
    """The problem of which `sentence` is a part, as `ls` tells it; empty while it does not."""
    problems: list[str] = json.loads(box.ctl(USER, "ls --json").check().out)["problems"]
    return next((problem for problem in problems if sentence in problem), "")


def _told(box: Box, sentence: str) -> None:
    box.wait_for(f"{sentence!r} to be told", lambda: _problem(box, sentence))


def _states(box: Box) -> dict[str, str]:
    return {view["name"]: view["state"] for view in box.sessions(USER)}


def _pids(box: Box) -> dict[str, int]:
    return {name: pane.pid for name, pane in outside.panes(box, USER).items()}
