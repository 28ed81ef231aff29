"""What the portable guest has beyond the rendered config, and what it cannot take over: all of it.

Nothing here changes what the module configures. It adds the way in for the
harness, makes up for Debian being laid out differently, and switches off what
makes an emulated boot slow and no scenario looks at.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from agent_box_harness.guest.packages import AGENTS
from agent_box_harness.guest.storemap import AGENTS_ROOT
from agent_box_harness.shell import BANNER

if TYPE_CHECKING:
    from agent_box_harness.guest.layer import Layer

AGENTS_MOUNT = "/opt/agents-disk"
"""Where the read-only tree of the real CLIs is, when the image has it."""
CONSOLES = ("hvc0", "hvc1")
"""Consoles with a root shell; the second serves while the first is busy."""

NOT_TAKEN_OVER = {
    "PAM stacks": "Debian's own are used; the module changes none",
    "serial-getty@ttyS0.service": "its rendered drop-in is installed, but the serial "
    "console is the log of the run, so the login is masked",
    "nix, gh, dig": "not installed, see guest/storemap.py",
    "fail2ban/jail.local": "NixOS has a builder write it; the jails of Debian are used, and ours",
    "NixOS activation": "accounts, homes and links are laid down with the image",
}
"""What of a NixOS host is missing here, and why."""

_LEAN = {
    "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer "
    "systemd-tmpfiles-clean.timer": "nothing here lives long enough",
    "ldconfig.service systemd-hwdb-update.service systemd-journal-catalog-update.service "
    "systemd-update-done.service": "done when the image was built; 6 s under emulation",
    "systemd-binfmt.service systemd-pstore.service systemd-boot-random-seed.service "
    "systemd-tpm2-setup.service systemd-tpm2-setup-early.service systemd-pcrphase.service "
    "systemd-pcrphase-sysinit.service systemd-pcrmachine.service systemd-hibernate-clear.service "
    "systemd-bsod.service e2scrub_reap.service": "no such hardware",
    "getty@tty1.service serial-getty@ttyS0.service serial-getty@hvc0.service "
    "serial-getty@hvc1.service console-getty.service": "nobody sits there; on hvc0 it would take "
    "the root shell's input",
    "systemd-networkd-wait-online.service": "the initrd sets the address",
    "sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount "
    "systemd-modules-load.service systemd-udev-load-credentials.service kmod-static-nodes.service "
    "systemd-random-seed.service": "seconds under emulation, and nothing here needs them",
    "systemd-firstboot.service systemd-resolved.service systemd-timesyncd.service": "not needed",
    "keyboard-setup.service console-setup.service": "no keyboard",
}

_UDEV_TRIGGER = """\
# Disks and the network are what units wait for; the other 300 devices, and the drivers of what
# no scenario uses, are a third of what an emulated boot costs.
[Service]
ExecStart=
ExecStart=-udevadm trigger --action=add --subsystem-match=block --subsystem-match=net
"""

_BACKDOOR = """\
[Unit]
Description=Root shell of the test harness on %I
DefaultDependencies=no
After=local-fs.target systemd-tmpfiles-setup.service
Conflicts=shutdown.target
Before=shutdown.target

[Service]
Environment=HOME=/root USER=root PAGER= SYSTEMD_PAGER= LANG=C.UTF-8
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
WorkingDirectory=/tmp
ExecStart=/usr/lib/agent-box-harness/backdoor %I
KillSignal=SIGHUP
TimeoutStopSec=5
TasksMax=infinity
OOMScoreAdjust=-1000
"""

_BACKDOOR_PROGRAM = f"""\
#!/bin/bash
# Requests come and answers go on the console; standard error goes to the log.
# The node of a console exists also where the machine has none.
if ! true <>/dev/"$1"; then exit 0; fi
exec </dev/"$1" >/dev/"$1" 2>/dev/ttyS0
stty raw -echo
echo '{BANNER.decode()}'
# Naming the terminal as the script keeps bash from turning interactive.
PS1='' exec /bin/bash --norc /dev/"$1"
"""

_TMPFILES = """\
# NixOS paths that rendered files name.
d /run/current-system 0755 root root -
L+ /run/current-system/sw - - - - /usr
L+ /run/wrappers - - - - /usr
"""


def add_guest_files(layer: Layer, host_name: str, ssh_key: str, *, agents: bool) -> None:
    """Put the harness's own files on the layer; `ssh_key` is a public key line."""
    layer.file("/usr/lib/agent-box-harness/backdoor", _BACKDOOR_PROGRAM, 0o755)
    layer.file("/etc/systemd/system/backdoor@.service", _BACKDOOR)
    for console in CONSOLES:
        layer.link(
            f"/etc/systemd/system/multi-user.target.wants/backdoor@{console}.service",
            "/etc/systemd/system/backdoor@.service",
        )
        # There is no such console in a container.
        layer.file(
            f"/etc/systemd/system/backdoor@{console}.service.d/container.conf",
            "[Unit]\nConditionVirtualization=vm\n",
        )
    layer.file("/etc/tmpfiles.d/agent-box-guest.conf", _TMPFILES)
    # What nixpkgs has in bin and Debian in sbin, where a unit names it by its path.
    for program in ("dnsmasq", "nft"):
        layer.link(f"/usr/bin/{program}", f"/usr/sbin/{program}")
    for units in _LEAN:
        for unit in units.split():
            layer.mask(unit)
    layer.file("/etc/systemd/system/systemd-udev-trigger.service.d/guest.conf", _UDEV_TRIGGER)
    layer.link(
        "/etc/systemd/system/sockets.target.wants/ssh.socket",
        "/usr/lib/systemd/system/ssh.socket",
    )
    layer.directory("/root", 0o700)
    layer.directory("/root/.ssh", 0o700)
    layer.file("/root/.ssh/authorized_keys", f"{ssh_key.strip()}\n", 0o600)
    layer.file("/etc/ssh/sshd_config.d/agent-box-guest.conf", "UseDNS no\nPrintMotd no\n")
    # An empty machine id would make this a first boot, which presets all units.
    layer.file("/etc/machine-id", hashlib.sha256(host_name.encode()).hexdigest()[:32] + "\n", 0o444)
    layer.file("/etc/hostname", f"{host_name}\n")
    layer.file("/etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {host_name}\n")
    layer.file("/etc/resolv.conf", "# no name server\n")
    layer.file("/etc/default/locale", "LANG=C.UTF-8\n")
    layer.link("/etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
    layer.file("/etc/.updated", "")
    layer.file("/var/.updated", "")
    layer.directory("/var/log/journal", 0o2755)
    # The root needs no entry: the initrd has mounted it for good, and an entry
    # makes the boot wait for its device.
    fstab = ""
    if agents:
        layer.directory(AGENTS_MOUNT)
        fstab += f"/dev/vdb {AGENTS_MOUNT} ext4 ro,nofail 0 0\n"
    layer.file("/etc/fstab", fstab)
    for agent, (_package, program) in AGENTS.items():
        layer.link(
            f"{AGENTS_ROOT}/{agent}/bin/{program}",
            f"{AGENTS_MOUNT}/{agent}/node_modules/.bin/{program}",
        )


def wake_command(now: float, entropy: bytes) -> str:
    """Return a command that gives a clone the time (unix seconds) and random numbers of its own.

    Clones share the memory, and with it the clock and the state of the
    generator. The machine id stays the same: systemd and the journal hold it in
    memory, and two clones never meet. One process of a small interpreter,
    because each costs a tenth of a second under emulation.
    """
    seconds, fraction = divmod(now, 1)
    # 227 = clock_settime, clock 0 = CLOCK_REALTIME; 0x5207 = RNDRESEEDCRNG:
    # take what was written into use now.
    program = (
        f'my $t = pack("q2", {int(seconds)}, {int(fraction * 1e9)}); '
        'syscall(227, 0, $t) == 0 or die "clock: $!"; '
        'open(my $f, "+>", "/dev/urandom") or die; '
        f'syswrite($f, pack("H*", "{entropy.hex()}")); '
        'ioctl($f, 0x5207, 0) or die "seed: $!"'
    )
    return f"perl -e '{program}'"
