"""How exposed the units of the box may be, by `systemd-analyze security`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_box_harness.box import Box

CEILINGS = {
    "agent-box-alice.service": 3.7,  # sudo: no NoNewPrivileges, some capabilities
    "agent-box-bob.service": 2.7,
    "agent-box-codex-alice.service": 3.7,  # the class of alice's sessions
    "agent-box-supervisor-alice.service": 0.6,
    "agent-box-supervisor-bob.service": 0.6,
    "agent-box-gate.service": 0.2,
    "agent-box-gate-unban.service": 0.9,
    "caddy.service": 1.4,
    "agent-box-settings-alice.service": 0.4,
    "agent-box-webhook-alice.service": 0.4,
    "agent-box-terminal-alice.service": 2.7,  # the class of bob's sessions
    "agent-box-relay-alice.service": 0.4,
    "agent-box-sites.service": 1.2,
    "agent-box-site-files-alice.service": 0.4,
    "agent-box-site-port-alice@3000.service": 1.1,
    "agent-box-update.service": 2.3,  # sets the profile of the system, has systemd switch to it
    "agent-box-first-boot.service": 1.8,  # asks the box, and tells an address that it was given
    "agent-box-memory.service": 1.3,  # ends processes and groups of others
    "agent-box-logins-alice.service": 1.2,  # sets limits of the slice of logins
    "agent-box-network-alice.service": 4.6,  # makes network namespaces: no mounts of its own
    "agent-box-names.service": 1.5,  # a name server
    "agent-box-port-alice-8765.service": 1.2,  # dials one port of the machine
    "agent-box-status.service": 1.2,  # asks the system bus
    "agent-box-attention-alice.service": 1.2,  # posts notices
    "fail2ban.service": 2.1,  # reads the journal and rules the firewall
}
"""From 0 (closed) to 10. docs/security.md shows these figures; they may only ever go down."""


def measure(box: Box) -> dict[str, float]:
    """Return how exposed these units are, by systemd's own count."""
    found = {}
    for unit in CEILINGS:  # a listing leaves out what has run and gone
        verdict = box.succeed(f"systemd-analyze security --no-pager {unit} | tail -n 1")
        found[unit] = float(verdict.rpartition(": ")[2].split()[0])
    return found
