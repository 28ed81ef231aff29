"""What a scenario can need of the machine that it runs on."""

from __future__ import annotations

ALL_CAPABILITIES = frozenset(
    {
        "kernel",  # its own kernel: sysctls, modules, the kernel log are the guest's
        "reboot",  # reboot() works
        "power-cut",  # power_cut() works, the disk survives
        "memory-limits",  # memory.max of a cgroup is enforced
        "pids-limits",  # pids.max of a cgroup is enforced
        "zram",  # a compressed swap device can exist
        "network",  # a route to the outside through the host
    }
)
"""Every capability that a machine can declare and a scenario can need."""

OF_THE_IMAGE = frozenset(
    {
        "agents",  # the real agent CLIs
        "acme-issuer",  # pebble, an issuer of certificates for tests
    }
)
"""Needs that what is installed fulfils, whatever the machine."""
