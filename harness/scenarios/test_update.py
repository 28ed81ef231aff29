"""An update from inside the box, with stubs in place of Nix: who may start it, and that what is
pinned is what runs, however it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agent_box_harness.boots import boot_for

if TYPE_CHECKING:
    from agent_box_harness.box import Box

OLD, NEW = "a" * 40, "b" * 40
LOCK = "/etc/nixos/flake.lock"
STATUS = "/var/lib/agent-box/update.json"
UNIT = "agent-box-update.service"

STUB = r"""#!/bin/sh
# Plays nix, nixos-rebuild and nix-env, and notes how it was called.
state=/var/lib/agent-box/stub
printf '%s' "${0##*/}" >>$state/calls
for word in "$@"; do printf '\t%s' "$word" >>$state/calls; done
printf '\n' >>$state/calls
step="${0##*/} $1"
case $step in
  "nix-env --profile") ln -sfn "$4" /nix/var/nix/profiles/system; exit ;;
  "nix "*) step=resolve; cp $state/upstream.lock "${6#path:}/flake.lock" ;;
  "nixos-rebuild build") step=build; ln -sfn /opt/systems/new result ;;
  "nixos-rebuild switch") step=switch ;;
esac
if [ -e $state/$step ]; then . $state/$step; fi
if [ $step = switch ]; then
  ln -sfn /opt/systems/new /nix/var/nix/profiles/system
  systemd-run --quiet --wait --pipe ln -sfnT /opt/systems/new /run/current-system
fi
if [ -e $state/after-$step ]; then . $state/after-$step; fi
exit 0
"""


def lock(rev: str, modified: int) -> str:
    """A lock file as Nix writes it; no kind of input that somebody outside must be asked for."""
    locked = {"type": "git", "url": "file:///srv/agent-box", "rev": rev, "lastModified": modified}
    nodes = {"agent-box": {"locked": locked}, "root": {"inputs": {"agent-box": "agent-box"}}}
    return json.dumps({"nodes": nodes, "root": "root", "version": 7}, indent=2) + "\n"


PREPARE = r"""
real=$(readlink -f /run/current-system/sw)
if [ ! -e /opt/systems ]; then
  for it in old new; do
    mkdir -p /opt/systems/$it/sw/bin
    ln -s $real/bin/* /opt/systems/$it/sw/bin/
    for name in nix nix-env nixos-rebuild; do
      ln -sfn /var/lib/agent-box/stub/program /opt/systems/$it/sw/bin/$name
    done
  done
fi
mkdir -p /nix/var/nix/profiles /etc/nixos /var/lib/agent-box/stub
rm -rf /run/current-system /var/lib/agent-box/stub/*
ln -sT /opt/systems/old /run/current-system
ln -sfn /opt/systems/old /nix/var/nix/profiles/system
"""


def prepare(box: Box) -> None:
    """Make the guest look like a NixOS with two systems, one of which runs."""
    box.succeed(PREPARE)
    box.write_file("/var/lib/agent-box/stub/program", STUB, mode=0o755)
    box.write_file("/etc/nixos/flake.nix", "{ }\n")
    box.write_file(LOCK, lock(OLD, 100))
    box.write_file("/var/lib/agent-box/stub/upstream.lock", lock(NEW, 200))


def script(box: Box, step: str, text: str) -> None:
    """Have the stub do something else at a step."""
    box.write_file(f"/var/lib/agent-box/stub/{step}", f"{text}\n")


def calls(box: Box) -> list[list[str]]:
    """How the stubs were called."""
    return [line.split("\t") for line in box.read("/var/lib/agent-box/stub/calls").splitlines()]


def status(box: Box) -> dict:
    """What everybody may know of the update."""
    return json.loads(box.as_user("bob", f"cat {STATUS}").check().out)


def is_consistent(box: Box, system: str) -> None:
    """Pins, running system and next boot are `system`, and nothing is left over."""
    assert box.read(LOCK) == {"old": lock(OLD, 100), "new": lock(NEW, 200)}[system]
    for link in ("/run/current-system", "/nix/var/nix/profiles/system"):
        assert box.succeed(f"readlink -f {link}").strip() == f"/opt/systems/{system}", link
    box.fail("test -e /var/lib/agent-box/update")


def ended(box: Box) -> None:
    """Wait until the unit and its end have run."""
    ends = f"case $(systemctl is-active {UNIT}) in activating | deactivating) false; esac"
    box.wait_until_succeeds(ends)


@pytest.mark.shared
def test_update(box: Box):
    """alice's session starts it and sees its end; pins are those of the new system, no session
    is disturbed, and the command lines are those that the module wrote.
    """
    prepare(box)
    before = box.session("alice", "main")["pid"]
    answer = box.in_session("alice", "agent-box-update start", timeout=120)
    answer.check("agent-box-update start")
    assert "the box runs the new system" in answer.out
    assert f"agent-box: {OLD[:12]} -> {NEW[:12]}" in answer.out
    ended(box)
    is_consistent(box, "new")
    found = status(box)
    assert (found["phase"], found["result"]) == ("done", "updated")
    assert (found["from"], found["to"]) == ({"agent-box": OLD}, {"agent-box": NEW})
    flake = "path:/var/lib/agent-box/update/flake"
    assert calls(box) == [
        ["nix", "--extra-experimental-features", "nix-command flakes", "flake", "update",
         "--flake", flake],
        ["nixos-rebuild", "build", "--flake", f"{flake}#box"],
        ["nixos-rebuild", "switch", "--flake", f"{flake}#box"],
    ]  # fmt: skip
    assert box.session("alice", "main")["pid"] == before
    again = box.in_session("alice", "agent-box-update start", timeout=120).check()
    assert "up to date" in again.out
    assert "up to date" in box.in_session("bob", "agent-box-update status").check().out


@pytest.mark.shared
def test_only_who_may(box: Box):
    """bob gets nothing: not by the command, not by the socket, not by systemd, and not by a
    request that somebody else's file stands for.
    """
    prepare(box)
    refused = box.in_session("bob", "agent-box-update start")
    assert refused.rc == 4
    assert "may not update this box" in refused.err
    knock = (
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX);"
        ' s.connect("/run/agent-box-update/alice.sock")\''
    )
    for run in (box.in_session, box.as_user):
        assert run("bob", knock).rc != 0
        assert run("bob", f"systemctl start {UNIT}").rc != 0
        assert run("bob", f"touch {STATUS}").rc != 0
    box.succeed(f"rm -f {STATUS}")
    box.in_session("alice", knock).check("the same, as who may")
    box.wait_until_succeeds(f"test -e {STATUS}")
    ended(box)


@pytest.mark.parametrize(
    ("step", "text", "result", "system"),
    [
        ("build", "echo 'error: builder failed' >&2; exit 1", "failed", "old"),
        ("switch", "exit 1", "failed", "old"),
        ("switch", "ln -sfn /opt/systems/new /nix/var/nix/profiles/system; exit 1",
         "failed", "old"),
        ("after-switch", "exit 4", "partly", "new"),
        ("build", "kill -9 $PPID; sleep 9", "failed", "old"),
        ("after-switch", "kill -9 $PPID; sleep 9", "partly", "new"),
    ],
    ids=["build", "switch", "half-a-switch", "a-unit", "killed-early", "killed-late"],
)  # fmt: skip
@pytest.mark.shared
def test_failures(box: Box, step: str, text: str, result: str, system: str):
    """Whatever fails or dies: pins, running system and next boot agree, and the status says so."""
    prepare(box)
    script(box, step, text)
    answer = box.in_session("alice", "timeout 60 agent-box-update start", timeout=120)
    assert (answer.rc == 0) == (result == "partly"), answer.out + answer.err
    ended(box)
    assert status(box)["result"] == result
    is_consistent(box, system)
    box.succeed(f"systemctl reset-failed {UNIT}; rm -f /var/lib/agent-box/stub/{step}")
    box.in_session("alice", "agent-box-update start", timeout=120).check("the next one")
    ended(box)
    is_consistent(box, "new")


@pytest.mark.shared
def test_hang(box: Box):
    """A build that never ends can be stopped; the box is as before, and says why."""
    prepare(box)
    script(box, "build", "sleep 1000")
    box.in_session("alice", "agent-box-update start --no-wait").check()
    box.wait_for("the build", lambda: status(box)["phase"] == "building")
    box.succeed(f"systemctl stop {UNIT}")
    ended(box)
    found = status(box)
    assert found["result"] == "failed"
    assert "while building the new system" in found["message"]
    is_consistent(box, "old")


BOOT = """
[Unit]
Description=What the boot of a NixOS does: the system of the profile is the one that runs
Before=agent-box-update-recover.service
After=systemd-tmpfiles-setup.service

[Service]
Type=oneshot
ExecStart=/bin/sh -ec 'rm -rf /run/current-system; \
  ln -sT $(readlink -f /nix/var/nix/profiles/system) /run/current-system'
"""


@pytest.mark.needs("power-cut")
@pytest.mark.limit(300)
def test_power_cut(box: Box):
    """The power goes after the switch and before the pins were noted: the next boot notes them."""
    if box.kind == "nixos":
        pytest.skip("its boot loader takes the real system, whatever the stubs say")
    prepare(box)
    box.write_file("/etc/systemd/system/stub-boot.service", BOOT)
    boot_for(box, "stub-boot.service", "agent-box-update-recover.service")
    script(box, "after-switch", "sync; echo >/run/switched; sleep 1000")
    box.in_session("alice", "agent-box-update start --no-wait").check()
    box.wait_for_file("/run/switched")
    assert box.read(LOCK) == lock(OLD, 100)
    box.power_cut()
    box.start()
    box.connect()
    box.wait_until_succeeds(
        "systemctl show -P ExecMainExitTimestampMonotonic agent-box-update-recover | grep -v '^0$'",
        timeout=60,
    )
    is_consistent(box, "new")
    found = status(box)
    assert found["result"] == "partly"
    assert "while switching to the new system" in found["message"]
