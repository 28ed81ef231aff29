"""The sudo list of a user is exact: that command, as root, and nothing near it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_box_harness.attack import attack_from_login, attack_from_session

if TYPE_CHECKING:
    from agent_box_harness.box import Box

SYSTEMCTL = "/run/current-system/sw/bin/systemctl"
UNIT = "agent-box-sudo-probe.service"
ALLOWED = f"sudo -n {SYSTEMCTL} reload {UNIT}"
EFFECT = "/run/agent-box-sudo-probe"

# `sudo -l COMMAND` asks whether the command is allowed, and is not disturbed by what it does.
REFUSED = {
    "one-more-argument": f"{ALLOWED} --no-block",
    "one-more-unit": f"{ALLOWED} agent-box-bob.service",
    "one-argument-less": f"sudo -n {SYSTEMCTL} reload",
    "another-unit": f"sudo -n {SYSTEMCTL} reload agent-box-bob.service",
    "another-verb": f"sudo -n {SYSTEMCTL} restart {UNIT}",
    "a-copy": f"cp {SYSTEMCTL} systemctl; sudo -n ./systemctl reload {UNIT}",
    "by-link": f"ln -s {SYSTEMCTL} systemctl; sudo -n ./systemctl reload {UNIT}",
    "by-path-variable": "printf '#!/bin/sh\\ntouch /run/planted\\n' >systemctl; "
    f"chmod +x systemctl; PATH=$PWD:$PATH sudo -n systemctl reload {UNIT}; test -e /run/planted",
    "with-environment": f"sudo -n SYSTEMD_EDITOR=/bin/sh {SYSTEMCTL} reload {UNIT}",
    "with-env-program": f"sudo -n env X=1 {SYSTEMCTL} reload {UNIT}",
    "keeping-environment": f"sudo -n -E {SYSTEMCTL} reload {UNIT}",
    "as-another-user": f"sudo -n -l -u bob {SYSTEMCTL} reload {UNIT}",
    "as-another-group": f"sudo -n -l -g bob {SYSTEMCTL} reload {UNIT}",
    "edit": "sudoedit -n /etc/hosts",
    "edit-option": "sudo -n -e /etc/hosts",
    "shell": "sudo -n -s true",
    "login-shell": "sudo -n -i true",
    "anything": "sudo -n true",
    "list-of-another": "sudo -n -l -U bob",
    "in-another-root": f"sudo -n -R / {SYSTEMCTL} reload {UNIT}",
    "elsewhere": f"sudo -n -D / {SYSTEMCTL} reload {UNIT}",
}


@pytest.mark.renewed("module")
def test_allowed(box: Box):
    """alice's one command works in her session and takes effect; for bob it is nobody's."""
    for run in (box.in_session, box.as_user):
        box.succeed(f"rm -f {EFFECT}")
        run("alice", ALLOWED).check("the allowed command")
        box.succeed(f"test -e {EFFECT}")
        box.succeed(f"rm -f {EFFECT}")
        assert run("bob", ALLOWED).rc != 0
        box.fail(f"test -e {EFFECT}")


@pytest.mark.renewed("module")
@pytest.mark.limit(200)
def test_refused(box: Box):
    """Everything that only resembles the allowed command is refused, inside and outside."""
    for attack in (attack_from_session, attack_from_login):
        outcomes = attack(box, "alice", {**REFUSED, "exactly": ALLOWED}, {})
        assert outcomes.pop("exactly").through
        through = {name: o.output for name, o in outcomes.items() if o.through}
        assert through == {}


@pytest.mark.renewed("module")
def test_loader_variables(box: Box):
    """Variables that make programs load code do not pass to root."""
    box.in_session("alice", f"LD_PRELOAD=/nowhere.so SYSTEMD_LOG_LEVEL=debug {ALLOWED}").check()
    answer = box.in_session("alice", f"SYSTEMD_LOG_LEVEL=debug {ALLOWED}").check()
    assert answer.err == ""
