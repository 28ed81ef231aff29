"""Makes the users of a box anew, so that scenarios about users can take turns in one guest.

A fresh guest costs seconds of processor time. What a scenario does to users only, their files,
processes and services, is undone in a fraction of that: everything of theirs ends, homes are what
they were before the first start of a supervisor, nothing is left in /run and in the journal, and
the services start as they do in the first boot. What services of the box remember of them goes as
well: failed sign-ins, and a packet filter that was emptied.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_box_harness.box import Box

KEPT = "/var/lib/agent-box-harness"
"""Where homes, and where the CLIs are, stay as they were."""

_KEEP = """\
mkdir -p {kept}/{user}
cp -a {home}/. {kept}/{user}/
rm -rf {kept}/{user}/.config/agent-box {kept}/{user}/.local/state/agent-box
systemctl list-units --plain --no-legend --type=service,socket --state=active {units} \
  | cut -d ' ' -f 1 | grep -v '^agent-box-network-' >{kept}/{user}.units
"""

_RENEW = """\
systemctl list-units --all --plain --no-legend {units} \
  | cut -d ' ' -f 1 | grep -v '^agent-box-network-' | xargs systemctl stop || true
while pkill -KILL -u {user}; do sleep 0.02; done
find {home} -mindepth 1 -delete
cp -a {kept}/{user}/. {home}/
[ ! -e {run} ] || find {run} -mindepth 1 -delete
find /tmp /var/tmp /dev/shm -mindepth 1 -user {user} -delete
find /var/lib/agent-box-tmp/{user} -mindepth 2 -delete
"""

_START = """\
systemctl reset-failed
journalctl --quiet --sync
failed="$(journalctl --quiet --unit agent-box-gate --grep 'failed login' --lines 1 || true)"
[ -z "$failed" ] || agent-box-gate unban --all || true
# Debian's firewall empties all tables when it stops, and knows nothing of ours.
for unit in $(systemctl show --property PropagatesReloadTo --value nftables.service); do
  nft list table inet "${{unit%.service}}" >/dev/null 2>&1 \\
    || systemctl try-reload-or-restart "$unit"
done
journalctl --quiet --rotate
journalctl --quiet --vacuum-time=1us
begin() {{ cat {units} | xargs systemctl start; }}
# The helper for sites stops while a socket of its starts, which may cancel the start of another.
begin || {{ sleep 0.5; begin; }}
"""


def keep(box: Box) -> None:
    """Note what the users of a fresh guest are like. Call it before anything happens to them."""
    script = "".join(_for(box, user, _KEEP) for user in box.users)
    for agent, command in _commands(box).items():
        script += f"readlink {command} >{KEPT}/{agent}.cli || true\n"
    box.succeed(script)


def renew(box: Box, touched: Iterable[str] | None) -> None:
    """Undo all that happened since `keep` to the users, or to the only ones `touched`."""
    users = box.users if touched is None else list(touched)
    script = "".join(_for(box, user, _RENEW) for user in users)
    for agent, command in _commands(box).items():
        real = f"{KEPT}/{agent}.cli"
        now = f'[ -s {real} ] && [ "$(readlink {command})" != "$(cat {real})" ]'
        script += f'if {now}; then ln -sfn "$(cat {real})" {command}; fi\n'
    box.succeed(script + _START.format(units=" ".join(f"{KEPT}/{user}.units" for user in users)))


def _for(box: Box, user: str, text: str) -> str:
    return text.format(
        user=user,
        home=box.home(user),
        run=box.document["users"][user]["runtimeDirectory"],
        # Sockets too: a page that is still open would have its services started again.
        units=f"'agent-box-*-{user}.socket' agent-box-{user}.service 'agent-box-*-{user}.service'",
        kept=KEPT,
    )


def _commands(box: Box) -> dict[str, str]:
    return {name: shlex.quote(box.agent_link(name)) for name in box.document["agents"]}
