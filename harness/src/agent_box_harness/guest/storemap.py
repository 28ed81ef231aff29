"""Where the programs of the Nix store live on the portable guest: the one table.

The rendered config names store paths as `@name@`. A name that is not here is an
error, because a guess would be found out at run time, far from its cause.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_box_harness.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable

AGENTS_ROOT = "/opt/agents"
"""`/opt/agents/<agent>/bin/<program>` is a symbolic link that a scenario may repoint."""

_IN_USR = """
    bash bash-completion bash-interactive bubblewrap bzip2 caddy coreutils curl dbus diffutils
    dnsmasq earlyoom fail2ban file findutils gawk git glibc glibc-locales gnugrep gnupg gnused
    gnutar gzip iproute2 iptables iputils jq kmod less nano ncurses netcat-gnu nftables nodejs
    openssh openssl patch polkit procps psmisc python3 ripgrep rsync shadow strace sudo systemd
    tmux ttyd tzdata unzip util-linux wget which xz zip
"""

STORE_MAP: dict[str, str] = {
    # our own
    "agent-box": "/usr",
    "agent-box-pages": "/usr/share/agent-box-pages",
    # the agents
    "claude-code": f"{AGENTS_ROOT}/claude",
    "codex": f"{AGENTS_ROOT}/codex",
    "opencode": f"{AGENTS_ROOT}/opencode",
    "pi-coding-agent": f"{AGENTS_ROOT}/pi",
    "pi": f"{AGENTS_ROOT}/pi",
    # everything that Debian installs below /usr
    **dict.fromkeys(_IN_USR.split(), "/usr"),
    # Not on the guest, on purpose: a path that does not exist, as on a host without them.
    "local-channels": "/opt/absent/local-channels",  # scenarios bring it where there is a copy
    "nix": "/opt/absent/nix",  # Debian has no store to build into without network
    "gh": "/opt/absent/gh",  # talks to one web site, which no guest can reach
    "bind": "/opt/absent/bind",  # dig; no name server answers in a guest
}

_PLACEHOLDER = re.compile(r"@([A-Za-z0-9][A-Za-z0-9+._-]*)@")


def substitute(text: str, where: str) -> str:
    """Replace every `@name@`; `where` is named in the error about an unknown one."""

    def path(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in STORE_MAP:
            raise BuildError(
                f"{where} uses @{name}@, which has no place on the portable guest: "
                "add it to guest/storemap.py"
            )
        return STORE_MAP[name]

    return _PLACEHOLDER.sub(path, text)


def unmapped(names: Iterable[str]) -> list[str]:
    """Return those of the names that the table does not know, sorted."""
    return sorted(set(names) - set(STORE_MAP))
