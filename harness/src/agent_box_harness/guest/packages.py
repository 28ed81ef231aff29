"""What the portable guest is made of."""

from __future__ import annotations


def _words(*lines: str) -> tuple[str, ...]:
    return tuple(" ".join(lines).split())


SUITE = "forky"
"""The Debian release: the first with ttyd, Caddy >= 2.11 and systemd >= 262 (see DESIGN.md 4)."""

BASE = _words(
    # the machine
    "systemd systemd-sysv libpam-systemd dbus udev kmod ca-certificates iproute2 procps psmisc ",
    "util-linux file less bash-completion ncurses-term locales netcat-openbsd iputils-ping ",
    # what the runtime imports and runs
    "python3 python3-msgspec python3-asyncinotify tmux sudo ",
    "python3-starlette python3-uvicorn python3-httptools python3-argon2 python3-bcrypt ",
    # what sessions are promised to be able to use
    "git openssh-client openssh-server ripgrep jq curl wget strace bubblewrap gcc g++ make ",
    "golang-go cargo rustc nodejs libnode-dev npm python3-cffi python3-dev python3-venv ",
    "gawk diffutils patch gzip bzip2 xz-utils zip unzip rsync openssl gpg nano ",
    # services of the box; their own units stay off until a rendered unit replaces them
    "earlyoom systemd-zram-generator caddy ttyd fail2ban nftables dnsmasq-base ",
    # an issuer of certificates for scenarios
    "pebble ",
    # only here so that `at`, `cron` and polkit can refuse something
    "at cron polkitd ",
    # the initrd
    "busybox-static",
)
"""Debian packages of the base root, dependencies only (no recommends)."""

KERNEL, KERNEL_SUITE = "linux-image-cloud-amd64", "trixie"
"""It is unpacked, not installed, so that no initrd is generated. That of Debian 13 ticks 250 times
a second; that of Debian 14 does 1000 times, which makes an emulated guest a tenth slower."""

DISABLED = _words(
    "caddy.service ttyd.service fail2ban.service nftables.service earlyoom.service ssh.service"
)
"""Units that Debian would start and the box configures itself, or not at all."""

STAGING = "/.agent-box-boot"
"""Where the build leaves what it needs outside of the root: kernel, modules, accounts."""

INITRD_MODULES = ("virtio_blk", "failover", "net_failover", "virtio_net")
"""In load order. PCI, console, ext4 and the random number device are built in."""

AGENTS = {
    "claude": ("@anthropic-ai/claude-code@latest", "claude"),
    "codex": ("@openai/codex@latest", "codex"),
    "opencode": ("opencode-ai@latest", "opencode"),
    "pi": ("@earendil-works/pi-coding-agent@latest", "pi"),
}
"""Agent -> (npm package, program). Without `@latest` an old npm picks an old release."""
