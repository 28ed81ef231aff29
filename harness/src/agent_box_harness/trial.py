"""`scripts/try`: a box of one's own, to look at and to play with.

The machine is detached: it goes on running after the terminal that started it is gone, until
``scripts/try --stop``. Its working directory is ``build/try``; a file there says what runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness import choice, guest
from agent_box_harness.box import Box
from agent_box_harness.errors import HarnessError

if TYPE_CHECKING:
    import argparse

    from agent_box_harness.machine import Machine

HOST, USER, SESSION = "vm", "agent", "main"
WEB_PORT = 8443
"""Where browsers on this machine find the box; `hosts/vm.nix` knows it as one of its origins."""

SEED_TIMEOUT = 30.0  # seconds at native speed for the seeded session to exist
SETTLED = ("running", "waiting", "stopped", "crashed", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `try`."""
    parser.add_argument("--guest", choices=choice.CHOICES, default="auto", help="which machine")
    parser.add_argument(
        "--keep", action="store_true", help="keep the disk for the next time (also after --stop)"
    )
    parser.add_argument(
        "--no-agents", action="store_true", help="leave the agent CLIs out (a smaller download)"
    )
    parser.add_argument("--stop", action="store_true", help="stop the running box")
    parser.add_argument(
        "--check",
        action="store_true",
        help="boot, look whether the session exists, print its state, leave nothing behind",
    )


def main(options: argparse.Namespace, repo: Path) -> int:
    """Do what the options ask; returns the exit status."""
    folder = repo / "build/try"
    if options.stop:
        return stop(folder)
    if options.check:
        with tempfile.TemporaryDirectory(prefix="agent-box-try-") as temporary:
            machine = start(options, repo, Path(temporary), detach=False)
            try:
                report(Box(machine))
            finally:
                machine.close()
        return 0
    machine = running(folder) or start(options, repo, folder, detach=True)
    return attach(machine)


def start(options: argparse.Namespace, repo: Path, folder: Path, *, detach: bool) -> Machine:
    """Boot a box and wait until its first session exists."""
    began = time.monotonic()
    kept = folder / "kept.json"
    if kept.exists() and options.keep:
        say("starting the box that was kept")
        machine = guest.run(folder)
        machine.start()
    else:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        kind = choice.pick(options.guest)
        say(f"this machine is best served by: {kind}")
        image = guest.build(
            HOST, repo=repo, agents=not options.no_agents, kinds=(kind,), progress=say
        )
        say("booting")
        # a box that is to be kept boots for real: a clone's disk hangs on the snapshot
        boot = image.boot if options.keep else image.fresh
        machine = boot(kind, folder, name="agent-box", detach=detach)
        if options.keep:
            kept.write_text(json.dumps({"kind": kind, "since": time.time()}))
    machine.wait_ready()
    box = Box(machine)
    box.wait_session(USER, SESSION, SETTLED, timeout=SEED_TIMEOUT)
    say(f"ready after {time.monotonic() - began:.0f} s: {machine.description}")
    return machine


def running(folder: Path) -> Machine | None:
    """The machine that runs in a folder, if one does."""
    if not folder.is_dir():
        return None
    try:
        machine = guest.run(folder)
        return machine if machine.is_up() else None
    except (HarnessError, OSError):
        return None


def stop(folder: Path) -> int:
    """Stop the running box; its disk goes too, unless it was started with --keep."""
    machine = running(folder)
    if machine is None:
        say("no box is running")
    elif (folder / "kept.json").exists():
        machine.shutdown()  # and no close(): that would throw the disk away
        say("stopped; scripts/try --keep starts it again")
        return 0
    else:
        machine.close()
        say("stopped")
    if not (folder / "kept.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def attach(machine: Machine) -> int:
    """Put this terminal into the session; comes back when the person leaves."""
    offer_browser(machine)
    command = f"agent-box-session attach {SESSION}"
    say(f"attaching to session {SESSION} of user {USER}")
    say("to leave, press Ctrl-b, then d; to stop the box: scripts/try --stop")
    if not sys.stdin.isatty():
        say("this is no terminal, so nothing is attached; the box goes on running")
        return 0
    status = subprocess.run(machine.interactive_argv(command, user=USER), check=False).returncode
    say("the box goes on running. Back in: scripts/try   Stop it: scripts/try --stop")
    return status


def offer_browser(machine: Machine) -> None:
    """Make the box reachable for a browser on this machine and say how to sign in."""
    try:
        machine.forward_port(WEB_PORT, 443)
    except (HarnessError, OSError) as error:
        say(f"no browser this time, port {WEB_PORT} cannot be forwarded: {error}")
        return
    say(f"in the browser: https://localhost:{WEB_PORT}/ (it warns of the box's own certificate)")
    if code := first_code(Box(machine)):
        address = f"https://localhost:{WEB_PORT}/login?setup=1#user={USER}&code={code}"
        say(f"the first time, choose a password: {address}")


def first_code(box: Box) -> str:
    """Return the set-up code of a box without a password, the same until it is used; else ""."""
    said = box.run("agent-box-gate status")
    if said.rc != 0 or f"{USER}: password set" in said.out:
        return ""
    made = box.run(f"agent-box-gate setup-code {USER}")
    return made.out.strip().rpartition(" ")[2] if made.rc == 0 else ""


def report(box: Box) -> None:
    """Print the state of every session, as the user would see it."""
    sys.stdout.write(box.ctl(USER, "ls").check("agent-box-session ls").out + "\n")
    view = box.session(USER, SESSION)
    reason = f" ({view['reason']})" if view.get("reason") else ""
    sys.stdout.write(f"session {SESSION} of user {USER}: {view['state']}{reason}\n")


def say(text: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(f"agent-box: {text}\n")
    sys.stderr.flush()
