"""The attacker's battery: what it discovers, how it judges, and the table that people keep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_box_harness import rendered
from agent_box_harness.battery import declared, impostor, siblings, walls, walls_doc
from agent_box_harness.battery.samples import samples
from agent_box_harness.battery.sockets import Account, Part, Socket
from agent_box_harness.edge import Answer

REPO = Path(__file__).resolve().parents[2]
FILES = rendered.read_tree(REPO / rendered.TREE / declared.HOST)


class TestTable:
    def test_every_socket_and_path_of_the_units_has_a_reason(self):
        """Put a new one into sockets-and-paths.toml, with who reads it and why that is safe."""
        assert walls.problems(walls.read(), declared.read(REPO)) == []

    def test_the_page_is_what_table_and_units_say(self):
        """Write it again: python -m agent_box_harness.battery.walls_doc."""
        assert walls_doc.problems(REPO) == []

    def test_a_new_socket_is_noticed(self):
        unit = "[Socket]\nSocketUser=bob\nListenStream=/run/agent-box-new/bob.sock\n"
        found = declared.extract({**FILES, "units/agent-box-new-bob.socket": unit})
        (problem,) = walls.problems(walls.read(), found)
        assert "/run/agent-box-new/USER.sock (USER:root 0666; agent-box-new-USER.socket)" in problem

    @pytest.mark.parametrize(
        "line",
        [
            "PathChanged=/home/bob/.new",
            "EnvironmentFile=-/home/bob/.new",
            "LoadCredential=x:/home/bob/.new",
            "BindReadOnlyPaths=/etc /home/bob/.new:/x",
            "ExecStart=@coreutils@/bin/cat /home/bob/.new",
            "ConditionPathExists=|!/home/bob/.new",
            "DirectoryNotEmpty=/run/agent-box-bob/new",
        ],
    )
    def test_a_new_path_is_noticed(self, line):
        files = {**FILES, "units/agent-box-new.service": f"[Service]\nUser=root\n{line}\n"}
        (problem,) = walls.problems(walls.read(), declared.extract(files))
        assert re.search(r"path /(home|run/agent-box-)/?USER/\.?new .*agent-box-new", problem)

    def test_a_new_directory_of_a_user_is_noticed(self):
        files = dict(FILES)
        files["etc/tmpfiles.d/new.conf"] = "d /run/agent-box-new/bob 0700 bob bob -\n"
        (problem,) = walls.problems(walls.read(), declared.extract(files))
        assert "/run/agent-box-new/USER (USER 0700; tmpfiles (d))" in problem

    def test_what_is_gone_is_noticed(self):
        files = {path: text for path, text in FILES.items() if "agent-box-update-" not in path}
        (problem,) = walls.problems(walls.read(), declared.extract(files))
        assert "/run/agent-box-update/USER.sock" in problem
        assert "no unit names it any more" in problem

    def test_which_row_is_about_a_socket(self):
        row = walls.Row("/run/x-USER/tmux-*/s", "", "", "")
        assert row.covers("/run/x-bob/tmux-1001/s", ["alice", "bob"])
        assert not row.covers("/run/x-carol/tmux-1001/s", ["alice", "bob"])
        assert not row.covers("/run/x-bob/tmux-1/2/s", ["alice", "bob"])


def test_samples_take_every_branch_of_every_route():
    patterns = re.findall(r"vars_regexp (?:[a-z]+ )?\{http\.request\.uri\} (\S+)",
                          FILES["etc/caddy/Caddyfile"])  # fmt: skip
    assert len(patterns) > 5
    for pattern in patterns:
        found = samples(pattern)
        assert found
        assert [text for text in found if not re.fullmatch(pattern, text)] == []
    every = {text for pattern in patterns for text in samples(pattern)}
    assert {"/bob/t/a", "/bob/t/a/ws", "/bob/t/a/token"} <= every


BOB = Account("bob", 1001, frozenset({1001, 50}))


def socket_below(*parts: tuple[int, int, int]) -> Socket:
    chain = [Part("/", 0, 0, 0o755, False, False)]
    for index, (uid, gid, mode) in enumerate(parts):
        chain.append(Part(f"/{index}", uid, gid, mode, False, False))
    return Socket("/x", tuple(chain), "", "", "bob", "bob")


@pytest.mark.parametrize(
    ("parts", "replaceable"),
    [
        ([(0, 0, 0o755), (1001, 0, 0o660)], False),
        ([(1001, 0, 0o755), (0, 0, 0o660)], True),  # his directory
        ([(1001, 0, 0o555), (0, 0, 0o660)], True),  # whose modes he may change
        ([(1001, 0, 0o700), (0, 0, 0o755), (0, 0, 0o660)], True),  # further up
        ([(0, 50, 0o770), (0, 0, 0o660)], True),  # of a group of his
        ([(0, 51, 0o770), (0, 0, 0o660)], False),
        ([(0, 0, 0o777), (0, 0, 0o660)], True),
        ([(0, 0, 0o1777), (0, 0, 0o660)], False),  # sticky
        ([(0, 0, 0o1777), (1001, 0, 0o660)], True),  # but his
    ],
)
def test_who_may_replace_a_socket(parts, replaceable):
    assert bool(socket_below(*parts).replaceable_by(BOB)) == replaceable


class TestHarm:
    GOOD = (
        ("content-security-policy", "default-src 'none'"),
        ("x-content-type-options", "nosniff"),
    )
    PAGE = "<script>battery-was-here</script>"

    def test_none(self):
        answer = Answer(200, (*self.GOOD, ("content-type", "text/plain")), self.PAGE)
        assert impostor.harm(answer) == []

    def test_a_page(self):
        answer = Answer(200, (*self.GOOD, ("content-type", "text/html")), self.PAGE)
        assert [harm.kind for harm in impostor.harm(answer)] == ["body without sandbox"]
        policy = ("content-security-policy", "sandbox; default-src 'none'")
        answer = Answer(200, (policy, *self.GOOD[1:], ("content-type", "text/html")), self.PAGE)
        assert impostor.harm(answer) == []

    def test_a_page_of_unknown_type(self):
        assert impostor.harm(Answer(200, self.GOOD, self.PAGE))

    def test_a_header(self):
        answer = Answer(200, (*self.GOOD, ("refresh", f"0; url=https://{impostor.EVIL}")))
        assert [harm.kind for harm in impostor.harm(answer)] == ["header"]

    def test_no_policy(self):
        assert [harm.kind for harm in impostor.harm(Answer(404))] == ["missing", "missing"]

    def test_before_the_answer(self):
        final = "HTTP/1.1 200 OK\r\ncontent-security-policy: x\r\nx-content-type-options: nosniff"
        answer = Answer(103, (("link", impostor.MARK),), f"{final}\r\n\r\nhello")
        assert [harm.kind for harm in impostor.harm(answer)] == ["in an interim answer"]

    def test_behind_the_answer(self):
        answer = Answer(200, self.GOOD, f"5\r\nhello\r\n0\r\nSet-Cookie: {impostor.MARK}\r\n\r\n")
        assert impostor.harm(answer) == []  # no browser acts upon it


POWER = {"may gain privileges": False, "without a filter of system calls": False,
         "capabilities": 0, "network": 7, "group": "/"}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "doors", "reach", "number"),
    [
        ({}, ["root", "ptrace"], {"connect to": ["/a"]}, 0),
        ({}, ["root"], {"connect to": ["/a", "/run/dbus"]}, 1),
        ({"may gain privileges": True}, ["mem"], {}, 1),
        ({"may gain privileges": True}, [], {}, 0),  # nothing leads there
        ({"network": 1}, ["ptrace"], {}, 1),  # that of the host
        ({"network": 9}, ["ptrace"], {}, 0),  # one with nobody in it
        ({"group": "/../../system.slice/agent-box-x.service"}, ["ptrace"], {}, 1),
    ],
)
def test_what_a_sibling_is_a_door_to(more, doors, reach, number):
    other = {
        "name": "x",
        "power": {**POWER, "group": "/../agent-box-x.service", **more},
        "doors": doors,
        "reach": reach,
    }
    own = {"power": POWER, "reach": {"connect to": ["/a"]}}
    told = {"own": own, "others": {"5": other}, "host": 1}
    assert len(siblings.escapes(told, login=False)) == number
