"""The box updater with stubs in place of Nix: whatever happens, pins tell what runs."""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_box import config
from agent_box.errors import InternalError
from agent_box.update import lockfile, status
from agent_box.update.run import Updater

SOURCES = Path(__file__).resolve().parents[2] / "src"
OLD, NEW = "a" * 40, "b" * 40


def lock(rev: str, modified: int, **more: object) -> bytes:
    """A lock file with the module's input and a nixpkgs."""
    box = {
        "type": "github",
        "owner": "o",
        "repo": "agent-box",
        "rev": rev,
        "lastModified": modified,
    }
    pkgs = {"type": "github", "owner": "NixOS", "repo": "nixpkgs", "rev": rev[::-1][:39] + "0"}
    nodes = {
        "agent-box": {"locked": {**box, **more}},
        "nixpkgs": {"locked": {**pkgs, "lastModified": modified}},
        "root": {"inputs": {"agent-box": "agent-box", "nixpkgs": "nixpkgs"}},
    }
    return json.dumps({"nodes": nodes, "root": "root", "version": 7}, indent=2).encode() + b"\n"


STUB = """#!/bin/sh
# Plays nix, nixos-rebuild, nix-env and systemctl. BOX is the folder of the test.
BOX={box}
echo "$0 $*" >>$BOX/calls
step=$1
[ "$(cat $BOX/kill 2>/dev/null)" = "$step-before" ] && kill -9 $PPID && sleep 5
if [ -e $BOX/fail-$step ]; then . $BOX/fail-$step; fi
case $step in
  resolve) cp $BOX/upstream.lock "${{2#path:}}/flake.lock" ;;
  build) ln -sfn $BOX/systems/new result ;;
  switch) ln -sfn $BOX/systems/new $BOX/profile; ln -sfn $BOX/systems/new $BOX/running ;;
  profile) ln -sfn "$2" $BOX/profile ;;
esac
[ -e $BOX/late-$step ] && . $BOX/late-$step
[ "$(cat $BOX/kill 2>/dev/null)" = "$step-after" ] && kill -9 $PPID && sleep 5
exit 0
"""


class Box:
    """A box with an old and a new system, an upstream, and an updater."""

    def __init__(self, folder: Path, api: str) -> None:
        self.folder = folder
        for name in ("old", "new"):
            (folder / "systems" / name).mkdir(parents=True)
        for name in ("running", "profile"):
            (folder / name).symlink_to(folder / "systems/old")
        self.flake = folder / "nixos"
        self.flake.mkdir()
        (self.flake / "flake.nix").write_text("{ }\n")
        (self.flake / ".git").mkdir()
        self.lock = self.flake / "flake.lock"
        self.lock.write_bytes(lock(OLD, 100))
        self.upstream(lock(NEW, 200))
        stub = folder / "stub"
        stub.write_text(STUB.format(box=folder))
        stub.chmod(0o755)
        words = {"resolve": ["{flake}"], "build": ["{flake}#box"], "switch": ["{flake}#box"]}
        commands = {
            step: [str(stub), step, *words.get(step, [])]
            for step in ("resolve", "build", "switch", "stop", "profile")
        }
        self.config = config.Update(
            flake=str(self.flake), input="agent-box", commands=commands, api=api
        )

    def upstream(self, content: bytes) -> None:
        (self.folder / "upstream.lock").write_bytes(content)

    def script(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text + "\n")

    @property
    def updater(self) -> Updater:
        return Updater(
            self.config, self.folder / "state", self.folder / "running", self.folder / "profile"
        )

    def update(self) -> status.Status:
        (self.folder / "state").mkdir(exist_ok=True)
        return self.updater.update()

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []

    def runs(self) -> str:
        return Path(os.path.realpath(self.folder / "running")).name

    def boots(self) -> str:
        return Path(os.path.realpath(self.folder / "profile")).name

    def pins(self) -> str:
        return {lock(OLD, 100): "old", lock(NEW, 200): "new"}[self.lock.read_bytes()]

    def consistent(self) -> None:
        """Pins, running system and next boot are one and the same; nothing is left over."""
        assert self.pins() == self.runs() == self.boots()
        assert not (self.folder / "state/update").exists()
        assert not [path for path in self.flake.iterdir() if "tmp" in path.name]


@pytest.fixture
def api():
    """Plays GitHub's comparison; `api.status` is what it answers."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            self.send_response(server.code)
            self.end_headers()
            self.wfile.write(server.body or json.dumps({"status": server.status}).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.code, server.status, server.asked, server.body = 200, "ahead", [], b""
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def box(tmp_path, api):
    return Box(tmp_path, f"http://127.0.0.1:{api.server_port}")


def test_an_update(box, api):
    ended = box.update()
    assert (ended.result, ended.phase, ended.exit) == ("updated", "done", None)
    assert box.calls() == ["resolve", "build", "switch"]
    assert box.pins() == "new"
    box.consistent()
    assert api.asked == [f"/repos/o/agent-box/compare/{OLD}...{NEW}?per_page=1&page=2"]
    written = json.loads((box.folder / "state/update.json").read_text())
    assert written["from"]["agent-box"] == OLD
    assert written["to"]["agent-box"] == NEW
    assert written["to"]["nixpkgs"] != written["from"]["nixpkgs"], "packages of the host advance"
    assert written["finished"] >= written["started"] > 0
    assert (box.folder / "state/update.json").stat().st_mode & 0o777 == 0o644


def test_inputs_go_by_their_path(tmp_path):
    """Nodes of a lock file get other names when inputs come and go."""
    locked = {"type": "github", "owner": "o", "repo": "r", "lastModified": 1}
    nodes = {
        "agent-box": {"inputs": {"nixpkgs": "nixpkgs_2"}, "locked": {**locked, "rev": "1"}},
        "nixpkgs_2": {"locked": {**locked, "rev": "2"}},
        "nixpkgs": {"locked": {**locked, "rev": "3"}},
        "root": {
            "inputs": {
                "agent-box": "agent-box",
                "nixpkgs": ["agent-box", "nixpkgs"],
                "more": "nixpkgs",
            }
        },
    }
    content = json.dumps({"nodes": nodes, "root": "root", "version": 7}).encode()
    assert lockfile.revisions(lockfile.parse(content, tmp_path)) == {
        "agent-box": "1", "agent-box/nixpkgs": "2", "more": "3", "nixpkgs": "2",
    }  # fmt: skip


@pytest.mark.parametrize("inputs", [{"a": ["a"]}, {"a": ["b"]}, {"a": "gone"}, {"a": 7}])
def test_lock_files_that_lead_nowhere(tmp_path, inputs):
    content = json.dumps({"nodes": {"root": {"inputs": inputs}}, "root": "root"}).encode()
    with pytest.raises(InternalError, match="nix flake lock"):
        lockfile.parse(content, tmp_path)


def test_nothing_newer(box):
    box.upstream(lock(OLD, 100))
    assert box.update().result == "current"
    assert box.calls() == ["resolve"]
    box.consistent()


def test_it_works_on_a_copy(box):
    box.script(
        "fail-build",
        f"[ $(sha256sum <{box.lock} | cut -c1-64) = "
        f"{hashlib.sha256(lock(OLD, 100)).hexdigest()} ] || exit 9; ls -a flake >$BOX/seen",
    )
    assert box.update().result == "updated"
    assert (box.folder / "seen").read_text().split() == [".", "..", "flake.lock", "flake.nix"]


@pytest.mark.parametrize("answer", ["behind", "diverged", "nonsense"])
def test_what_is_not_built_on_what_runs_is_refused(box, api, answer):
    api.status = answer
    ended = box.update()
    assert ended.result == "failed"
    assert "not built on" in ended.message
    assert box.calls() == ["resolve"]
    box.consistent()


@pytest.mark.parametrize(("code", "remedy"), [(403, "for an hour"), (404, "404"), (500, "500")])
def test_github_does_not_answer(box, api, code, remedy):
    api.code = code
    ended = box.update()
    assert remedy in ended.message
    assert "try again later" in ended.message
    box.consistent()


@pytest.mark.parametrize(
    ("upstream", "remedy"),
    [
        (lock(NEW, 50), "is older than"),
        (lock(NEW, 200, repo="evil"), "another place"),
        (lock(NEW, 200, type="git"), "another place"),
        (b"{", "no lock file"),
        (b'{"nodes": {"root": {}}, "root": "root", "version": 7}', "has no input"),
    ],
)
def test_pins_that_go_elsewhere_are_refused(box, upstream, remedy):
    box.upstream(upstream)
    ended = box.update()
    assert ended.result == "failed"
    assert remedy in ended.message
    assert box.calls() == ["resolve"]
    box.consistent()


@pytest.mark.parametrize("step", ["resolve", "build"])
def test_a_step_before_the_switch_fails(box, step):
    box.script(f"fail-{step}", "echo first; echo 'error: no space' >&2; exit 3")
    ended = box.update()
    assert (ended.result, ended.exit) == ("failed", 3)
    assert "error: no space" in ended.message
    assert "nothing was changed" in ended.message
    assert "switch" not in box.calls()
    box.consistent()


def test_the_switch_fails_before_anything(box):
    box.script("fail-switch", "exit 1")
    assert box.update().result == "failed"
    box.consistent()
    assert box.pins() == "old"


def test_the_switch_fails_after_the_profile_was_set(box):
    """Otherwise the next boot would take what did not come up."""
    box.script("fail-switch", "ln -sfn $BOX/systems/new $BOX/profile; exit 1")
    ended = box.update()
    assert ended.result == "failed"
    assert box.calls()[-1] == "profile"
    box.consistent()
    assert box.pins() == "old"


def test_the_profile_cannot_be_set_back(box):
    box.script("fail-switch", "ln -sfn $BOX/systems/new $BOX/profile; exit 1")
    box.script("fail-profile", "exit 1")
    assert "nixos-rebuild switch --rollback" in box.update().message


def test_a_unit_fails_after_the_switch(box):
    """The new system runs: it is what the pins must say."""
    box.script("late-switch", "exit 4")
    ended = box.update()
    assert (ended.result, ended.exit) == ("partly", 4)
    assert "systemctl --failed" in ended.message
    assert box.pins() == "new"
    box.consistent()


def test_the_lock_file_was_changed_meanwhile(box):
    box.script("late-switch", f"echo mine >{box.lock}")
    ended = box.update()
    assert ended.result == "partly"
    assert box.lock.read_text() == "mine\n"
    assert (box.folder / "state/flake.lock.running").read_bytes() == lock(NEW, 200)


def test_a_build_without_a_result(box):
    box.script("fail-build", "exit 0")
    assert "left no result" in box.update().message
    box.consistent()


def test_no_flake(box):
    box.lock.unlink()
    ended = box.update()
    assert ended.result == "failed"
    assert ended.message.startswith(f"{box.lock} is missing: ")
    assert "services.agent-box.selfUpdate.flake" in ended.message


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "make room"), (errno.EACCES, "journalctl -u agent-box-update")],
)
def test_the_system_refuses(box, monkeypatch, number, remedy):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/var/full")

    monkeypatch.setattr("shutil.copytree", refuse)
    message = box.update().message
    assert message.startswith(f"/var/full: {os.strerror(number)}; ")
    assert remedy in message
    box.consistent()


def test_a_command_is_missing(box):
    box.config.commands["resolve"][0] = "/nowhere/nix"
    assert "does not start" in box.update().message
    box.consistent()


RUN = """
import json, pathlib, sys
import msgspec
from agent_box import config
from agent_box.update.run import Updater
folder = pathlib.Path(sys.argv[1])
update = msgspec.json.decode((folder / "config.json").read_bytes(), type=config.Update)
Updater(update, folder / "state", folder / "running", folder / "profile").update()
"""

DIES = """
import os, signal
left = int(os.environ["KILL_AT"])
def hook(event, args):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "subprocess.Popen") or (
        event == "open" and args[1] is not None and "w" in str(args[1])
    ) or (event == "open" and args[1] is None and isinstance(args[2], int) and args[2] & 3):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""


def run(box, kill_at: int = 0) -> int:
    """Update in a process of its own, cut off before its `kill_at`-th step if not 0."""
    import msgspec

    (box.folder / "config.json").write_bytes(msgspec.json.encode(box.config))
    (box.folder / "state").mkdir(exist_ok=True)
    code = RUN.replace("folder = ", f"{DIES if kill_at else ''}\nfolder = ", 1)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "KILL_AT": str(kill_at)}
    process = subprocess.run(
        [sys.executable, "-c", code, str(box.folder)], env=environment, check=False,
        capture_output=True, timeout=60,
    )  # fmt: skip
    return process.returncode


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["resolve", "build", "switch"])
def test_killed_during_a_command(box, step, when):
    """The next boot, or the end of the unit, settles it; and the next update works."""
    box.script("kill", f"{step}-{when}")
    assert run(box) == -signal.SIGKILL
    (box.folder / "kill").unlink()
    ended = box.updater.recover()
    assert ended is not None
    assert ended.result == ("partly" if (step, when) == ("switch", "after") else "failed")
    box.consistent()
    assert box.pins() == ("new" if (step, when) == ("switch", "after") else "old")
    assert box.update().result in ("updated", "current")
    assert box.pins() == "new"
    box.consistent()


def test_power_cut_at_any_step(tmp_path, api):
    """Wherever the power goes, what runs and what is pinned are the same after the next boot."""
    ends = set()
    for step in range(1, 200):
        box = Box(tmp_path / str(step), f"http://127.0.0.1:{api.server_port}")
        code = run(box, kill_at=step)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        box.updater.recover()
        box.consistent()
        ends.add(box.pins())
        last = status.read(box.folder / "state")
        assert not last.running
        assert (last.result in ("updated", "partly")) == (box.pins() == "new") or not last.started
    else:
        pytest.fail("it never got through")
    assert ends == {"old", "new"}
    assert step > 20


def test_power_cut_between_profile_and_activation(box):
    """The machine booted the new system, since its profile was set: that is what runs."""
    box.script("fail-switch", "ln -sfn $BOX/systems/new $BOX/profile; kill -9 $PPID; sleep 5")
    assert run(box) == -signal.SIGKILL
    (box.folder / "running").unlink()
    (box.folder / "running").symlink_to(box.folder / "systems/new")
    ended = box.updater.recover("the machine lost its power")
    assert ended is not None
    assert ended.result == "partly"
    assert "the machine lost its power while switching" in ended.message
    box.consistent()
    assert box.pins() == "new"


def test_recovery_without_an_update(box):
    assert box.updater.recover() is None
    box.update()
    assert box.updater.recover() is None
    assert status.read(box.folder / "state").result == "updated"


def test_recovery_stops_a_switch_that_goes_on(box):
    box.script("kill", "switch-before")
    run(box)
    box.updater.recover()
    assert box.calls()[-1] == "stop"


def test_a_broken_status_is_replaced(box):
    (box.folder / "state").mkdir()
    (box.folder / "state/update.json").write_text("{")
    assert box.update().result == "updated"
