"""The helper of root, run as nobody in particular: files in, verdicts and configuration out."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
import stat

import pytest

from agent_box import config
from agent_box.sites import cli, declared, helper, publish, results

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
    monkeypatch.setattr(publish, "PAUSE", 0.0)
    monkeypatch.setattr(publish, "_edge_is_up", lambda: True)
    monkeypatch.setattr(helper.os, "geteuid", lambda: 1000)
    return tmp_path


def declare(stand, text):
    data = text if isinstance(text, str) else json.dumps({"version": 1, "sites": text})
    (stand / "home/.config/agent-box/sites.json").write_text(data)
    helper.main()
    return json.loads((stand / f"run/{ME}.json").read_text())


def calls(stand):
    path = stand / "calls"
    return path.read_text().split() if path.exists() else []


def states(result):
    return {each["name"]: each["state"] for each in result["sites"]}


def test_a_port(stand):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = declare(stand, {"a": {"port": port}, "B": {"port": port}})
    assert result["problem"] is None
    assert states(result) == {"a": "served", "B": "refused"}
    label = f"a-{ME}".replace("_", "-")
    assert result["sites"][0]["url"] == f"https://{label}.box.test:8443/"
    rendered = (stand / "state/sites.caddy").read_text()
    assert f"reverse_proxy 127.0.0.1:{port} {{" in rendered
    assert calls(stand) == ["adapt", "reload"]
    helper.main()
    assert calls(stand) == ["adapt", "reload"], "nothing changed, nothing to do"
    assert stat.S_IMODE((stand / f"run/{ME}.json").stat().st_mode) == 0o640


def test_last_good(stand):
    declare(stand, {"a": {"port": 60001, "public": True}})
    before = (stand / "state/sites.caddy").read_bytes()
    result = declare(stand, "{")
    assert "last good" in result["problem"]
    assert states(result) == {"a": "waiting"}
    assert result["digest"] == hashlib.sha256(b"{").hexdigest()
    assert (stand / "state/sites.caddy").read_bytes() == before


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_what_is_no_file(stand, kind):
    path = stand / "home/.config/agent-box/sites.json"
    (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    helper.main()
    assert json.loads((stand / f"run/{ME}.json").read_text())["problem"]


@pytest.mark.parametrize("step", ["adapt", "reload"])
def test_a_configuration_that_caddy_refuses(stand, step):
    declare(stand, {"a": {"port": 60001}})
    before = (stand / "state/sites.caddy").read_bytes()
    (stand / f"no-{step}").touch()
    result = declare(stand, {"b": {"port": 60001}})
    assert result["problem"]
    assert (stand / "state/sites.caddy").read_bytes() == before
    (stand / f"no-{step}").unlink()
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
    result = declare(stand, found)
    assert states(result) == {
        "blog": "served", "out": "refused", "in": "served", "missing": "refused"
    }  # fmt: skip


def test_a_flood(stand):
    result = declare(stand, {f"s{number}": {"port": 60001} for number in range(1000)})
    assert list(states(result).values()).count("waiting") == 20
    assert len(result["sites"]) == 21


def test_names_by_the_dozen(stand):
    """Names that were given up count for a week, those in use do not count again."""
    for start in (0, 10, 20):
        sites = {f"s{number}": {"port": 60001} for number in range(start, start + 10)}
        assert set(states(declare(stand, sites)).values()) == {"waiting"}
    assert set(states(declare(stand, sites)).values()) == {"waiting"}
    result = declare(stand, {"s29": {"port": 60001}, "more": {"port": 60001}})
    assert states(result) == {"s29": "waiting", "more": "refused"}


def test_pace(stand, monkeypatch):
    slept = []
    monkeypatch.setattr(publish.time, "sleep", slept.append)
    monkeypatch.setattr(publish, "PAUSE", 2.0)
    for _ in range(publish.BURST + 1):
        publish._pace(stand / "run")
    assert len(slept) == publish.BURST
    assert all(seconds <= publish.PAUSE for seconds in slept[:-1])
    assert publish.PAUSE < slept[-1] <= publish.LONG_PAUSE


def test_two_users_want_one_name():
    web = config.Web(
        domain="box.test", origins=["https://box.test"], root_user="alice",
        users={"alice": config.WebUser(), "bob": config.WebUser()},
    )  # fmt: skip
    sites = {"x": {"port": 60001, "host": "x"}}
    both = [
        helper.Declaration(
            config.User(name, config.UserConfig(home="/h", shell="/s", runtime_directory="/r")),
            uid, uid, sites=sites,
        )
        for name, uid in (("alice", 1), ("bob", 2))
    ]  # fmt: skip
    for claimed, winner in (
        ({}, "alice"),
        ({"x.box.test": ("bob", 1.0)}, "bob"),
        ({"x.box.test": ("eve", 1.0)}, "alice"),
    ):
        verdicts, targets = helper.judge(both, web, claimed)
        assert [target.user for target in targets] == [winner]
        assert verdicts[{"alice": "bob", "bob": "alice"}[winner]][0].state == "refused"


def test_the_command(stand, monkeypatch, capsys):
    (stand / "home/sites/blog").mkdir()
    real = declared.add

    def add(*arguments):
        data = real(*arguments)
        helper.main()
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
    assert states(shown) == {"blog": "served", "out": "refused"}
    assert shown["pending"] is False
