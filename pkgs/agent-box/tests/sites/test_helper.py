"""The helper of root, run as nobody in particular: files in, verdicts and configuration out."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
import stat
import time

import pytest

from agent_box import config
from agent_box.sites import cli, courier, declared, handover, helper, judge, pace, publish, results

ME = getpass.getuser()


@pytest.fixture
def stand(tmp_path, monkeypatch):
    """A box whose only user runs the tests, with a `caddy` that says what the test wants."""
    home = tmp_path / "home"
    for directory in (home / ".config/agent-box", home / "sites", tmp_path / "state",
                      tmp_path / "run", tmp_path / "bin"):  # fmt: skip
        directory.mkdir(parents=True)
    user = {"home": str(home), "shell": "/bin/sh", "runtimeDirectory": str(tmp_path / "rt")}
    web = {
        "domain": "box.test",
        "origins": ["https://box.test:8443"],
        "rootUser": ME,
        "users": {ME: {}},
    }
    document = {
        "version": 1,
        "defaultAgent": "claude",
        "programs": {"tmux": "/t", "launch": "/l"},
        "agents": {},
        "users": {ME: user},
        "web": web,
    }
    path = tmp_path / "box.json"
    path.write_text(json.dumps(document))
    caddy = tmp_path / "bin/caddy"
    caddy.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/calls\n[ ! -e {tmp_path}/no-$1 ]\n')
    caddy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{caddy.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("AGENT_BOX_CONFIG", str(path))
    monkeypatch.setattr(helper, "STATE", tmp_path / "state")
    monkeypatch.setattr(helper, "RESULTS", tmp_path / "run")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "run")
    monkeypatch.setattr(handover, "FOLDER", tmp_path / "lists")
    monkeypatch.setattr(pace, "PAUSE", 0.0)
    monkeypatch.setattr(pace, "AT_ONCE", 1000)
    monkeypatch.setattr(pace, "BURST", 1000)
    monkeypatch.setattr(publish, "_edge_is_up", lambda: True)
    monkeypatch.setattr(helper.os, "geteuid", lambda: 1000)
    systemctl = tmp_path / "bin/systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/units\n')
    systemctl.chmod(0o755)
    return tmp_path


def made():
    box = config.load()
    return helper.Helper(box, box.web)


def declare(stand, text, service=None):
    """Write the user's file and play what happens to it: handed over, taken, taken up."""
    data = text if isinstance(text, str) else json.dumps({"version": 1, "sites": text})
    (stand / "home/.config/agent-box/sites.json").write_text(data)
    service = service or made()
    service.take(ME, handover.message_of(config.load().user(ME)))
    service.take_up(service.pick())
    return json.loads((stand / f"run/{ME}.json").read_text())


def calls(stand):
    path = stand / "calls"
    return path.read_text().split() if path.exists() else []


def states(result):
    return {each["name"]: each["state"] for each in result["sites"]}


def test_a_port(stand):
    result = declare(stand, {"a": {"port": 3000}, "B": {"port": 3000}})
    assert result["problem"] is None
    assert states(result) == {"a": "served", "B": "refused"}
    label = f"a-{ME}".replace("_", "-")
    assert result["sites"][0]["url"] == f"https://{label}.box.test:8443/"
    rendered = (stand / "state/sites.caddy").read_text()
    assert f"reverse_proxy unix//run/agent-box-site-port/{ME}/3000.sock {{" in rendered
    assert calls(stand) == ["reload"]
    assert f"start agent-box-site-port-{ME}@3000.socket" in (stand / "units").read_text()
    declare(stand, {"a": {"port": 3000}, "B": {"port": 3000}})
    made().take_up({})
    assert calls(stand) == ["reload"], "nothing changed, nothing to do"
    assert stat.S_IMODE((stand / f"run/{ME}.json").stat().st_mode) == 0o640


def test_last_good(stand):
    declare(stand, {"a": {"port": 60001, "public": True}})
    before = (stand / "state/sites.caddy").read_bytes()
    result = declare(stand, "{")
    assert "last good" in result["problem"]
    assert states(result) == {"a": "served"}
    assert result["digest"] == hashlib.sha256(b"{").hexdigest()
    assert (stand / "state/sites.caddy").read_bytes() == before


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_what_is_no_file(stand, kind):
    path = stand / "home/.config/agent-box/sites.json"
    (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    service = made()
    service.take(ME, handover.message_of(config.load().user(ME)))
    service.take_up(service.pick())
    assert json.loads((stand / f"run/{ME}.json").read_text())["problem"]


def test_a_configuration_that_caddy_refuses(stand):
    declare(stand, {"a": {"port": 60001}})
    before = (stand / "state/sites.caddy").read_bytes()
    (stand / "no-reload").touch()
    result = declare(stand, {"b": {"port": 60001}})
    assert result["problem"]
    assert (stand / "state/sites.caddy").read_bytes() == before
    (stand / "no-reload").unlink()
    assert declare(stand, {"b": {"port": 60001}})["problem"] is None
    assert "b-" in (stand / "state/sites.caddy").read_text()


def test_no_edge(stand, monkeypatch):
    monkeypatch.setattr(publish, "_edge_is_up", lambda: False)
    assert declare(stand, {"a": {"port": 60001}})["problem"] is None
    assert calls(stand) == ["adapt"]


def test_a_folder(stand):
    (stand / "home/sites/blog").mkdir()
    (stand / "home/sites/out").symlink_to("/etc")
    (stand / "home/sites/in").symlink_to("blog")
    found = {name: {"dir": name} for name in ("blog", "out", "in", "missing")}
    declare(stand, found)
    # What is in a home is for the user's own programs to see.
    assert states(results.current(config.load().user(ME))) == {
        "blog": "served", "out": "waiting", "in": "served", "missing": "waiting"
    }  # fmt: skip


def test_what_listens(stand):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        declare(stand, {"a": {"port": port}, "b": {"port": 1024}})
        user = config.load().user(ME)
        assert states(results.current(user)) == {"a": "served", "b": "waiting"}


def test_a_flood(stand):
    result = declare(stand, {f"s{number}": {"port": 60001} for number in range(1000)})
    assert list(states(result).values()).count("served") == 20
    assert len(result["sites"]) == 21


def test_names_by_the_dozen(stand):
    """Names that were given up count for a week, those in use do not count again."""
    for start in (0, 10, 20):
        sites = {f"s{number}": {"port": 60001} for number in range(start, start + 10)}
        assert set(states(declare(stand, sites)).values()) == {"served"}
    assert set(states(declare(stand, sites)).values()) == {"served"}
    result = declare(stand, {"s29": {"port": 60001}, "more": {"port": 60001}})
    assert states(result) == {"s29": "served", "more": "refused"}


def test_pace(stand, monkeypatch):
    monkeypatch.undo()
    share = pace.Pace(stand / "pace.json")
    now = time.time()
    for _ in range(pace.AT_ONCE):
        share.note(["bob"])
    assert share.wait("bob", now + 3) > 30
    assert share.wait("alice", now + 3) == 0.0
    assert 0 < share.wait("alice", now + 1) <= pace.PAUSE
    assert pace.Pace(stand / "pace.json").wait("bob", now + 3) > 30, "over a restart, too"
    assert share.wait("bob", now + pace.MINUTE_SHARE + 3) == 0.0
    for _ in range(pace.BURST):
        share.note(["bob"])
    assert share.wait("bob", now + pace.MINUTE_SHARE + 3) > 10


def test_a_list_that_has_to_wait(stand, monkeypatch):
    monkeypatch.setattr(pace, "AT_ONCE", 1)
    service = made()
    declare(stand, {"a": {"port": 3000}}, service)
    result = declare(stand, {"b": {"port": 3000}}, service)
    assert states(result) == {"a": "served"}
    assert service.next_round() > 30
    waits = json.loads((stand / f"run/{ME}.json").read_text())["waits"]
    assert waits["digest"] != result["digest"]
    assert waits["until"] > time.time() + 30
    assert states(declare(stand, {"a": {"port": 3000}}, service)) == {"a": "served"}
    assert service.next_round() is None, "taken back"


def test_what_was_handed_over_is_known(stand):
    user = config.load().user(ME)
    assert courier._hand_over(user), "nobody ever declared a site"
    declare(stand, {"a": {"port": 3000}})
    assert courier._hand_over(user)
    user.sites_path.write_text("{")
    assert not courier._hand_over(user)
    user.sites_path.unlink()
    assert not courier._hand_over(user), "it has gone: no site is left"
    user.sites_path.symlink_to("/dev/zero")
    assert handover.message_of(user) == b"problem\nit is no regular file"


def test_a_name_that_was_given_up(stand):
    """It waits for its user for a week, in use or not for however long before."""
    day = 86400.0
    target = judge.caddyfile.Target("x.box.test", "alice", False, "unix//s")
    claims = judge.claim([target], {}, 0.0)
    claims = judge.claim([target], claims, 100 * day)
    claims = judge.claim([], claims, 101 * day)
    (stand / "claims.json").write_bytes(judge.dump_claims(claims))
    claims = judge.read_claims(stand / "claims.json")
    assert claims["x.box.test"] == judge.Claim("alice", 0.0, 101 * day)
    assert "x.box.test" in judge.claim([], claims, 107 * day)
    assert "x.box.test" not in judge.claim([], claims, 109 * day)
    (stand / "claims.json").write_text('{"y.box.test": ["bob", 5.0]}')
    assert judge.read_claims(stand / "claims.json") == {"y.box.test": judge.Claim("bob", 5.0)}


def test_two_users_want_one_name():
    web = config.Web(
        domain="box.test", origins=["https://box.test"], root_user="alice",
        users={"alice": config.WebUser(), "bob": config.WebUser()},
    )  # fmt: skip
    sites = {"x": {"port": 60001, "host": "x"}}
    both = [
        judge.Declaration(
            config.User(name, config.UserConfig(home="/h", shell="/s", runtime_directory="/r")),
            uid, sites=sites,
        )
        for name, uid in (("alice", 1), ("bob", 2))
    ]  # fmt: skip
    for claimed, winner in (
        ({}, "alice"),
        ({"x.box.test": judge.Claim("bob", 1.0)}, "bob"),
        ({"x.box.test": judge.Claim("eve", 1.0, 2.0)}, "alice"),
    ):
        verdicts, targets = judge.judge(both, web, claimed)
        assert [target.user for target in targets] == [winner]
        assert verdicts[{"alice": "bob", "bob": "alice"}[winner]][0].state == "refused"


def test_the_command(stand, monkeypatch, capsys):
    (stand / "home/sites/blog").mkdir()
    real = declared.add

    def add(*arguments):
        data = real(*arguments)
        service = made()
        service.take(ME, handover.LIST + data)
        service.take_up(service.pick())
        return data

    monkeypatch.setattr(cli.declared, "add", add)
    cli.main(["add", "blog", "--dir", "blog", "--public"])
    assert "served" in capsys.readouterr().out
    for argv, code in (
        (["add", "blog", "--port", "3000"], 4),
        (["add", "b"], 2),
        (["add", "b", "--port", "80"], 2),
        (["add", "b", "--dir", "/etc"], 2),
        (["add", "out", "--dir", "nothing"], 4),
        (["rm", "other"], 3),
        ([], 2),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == code, argv
    capsys.readouterr()
    cli.main(["ls", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert states(shown) == {"blog": "served"}
    assert shown["pending"] is False
