"""The portable guest: a Debian box that runs the rendered config of the real NixOS module.

image = guest.build("test")                    # cached by content
with image.boot("qemu", workdir) as machine:   # a cold boot of a fresh disk
    machine.wait_ready()
snapshot = image.snapshot()                    # boots once, cached too
with snapshot.clone(workdir) as machine: ...   # a fresh guest in a fraction of a second
with image.fresh("container", workdir) as machine: ...   # the fastest fresh guest of a kind
"""

from __future__ import annotations

from agent_box_harness.guest.image import Image, Snapshot, build, run

__all__ = ["Image", "Snapshot", "build", "run"]
