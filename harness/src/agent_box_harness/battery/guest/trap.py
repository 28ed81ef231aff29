"""Puts traps in the place of paths that others read, as their user, and has the others read them.

Runs as root, because it starts the readers and looks whether anything outside changed; what is put
in place is put there by a process of the user.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import job, tell
else:  # beside it, inside the guest
    from telling import job, tell

BAIT = Path("/opt/battery-bait")
SECONDS = 10.0


def baits(victim: str, secret: str) -> list[Path]:
    """Lay out what must neither be read nor changed: root's, and another user's."""
    BAIT.mkdir(mode=0o755, exist_ok=True)
    alice = pwd.getpwnam(victim)
    found = []
    for name, owner in (("root", 0), ("other", alice.pw_uid)):
        folder = BAIT / name
        folder.mkdir(exist_ok=True)
        for file in (folder / "file", folder / "sites.json"):
            file.write_text(json.dumps({"version": 1, "sites": {secret: {"port": 3999}}}) + secret)
            os.chown(file, owner, owner)
            file.chmod(0o600)
            found.append(file)
        os.chown(folder, owner, owner)
        folder.chmod(0o700)
        found.append(folder)
    return found


def print_of(path: Path) -> list[Any]:
    """Return what must stay as it is."""
    info = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else sorted(
        os.listdir(path))  # noqa: PTH208 # fmt: skip
    return [info.st_uid, info.st_gid, info.st_mode, info.st_nlink, info.st_size, content]


FORMS = {
    "a link to root's file": f"ln -s {BAIT}/root/file $P",
    "a link to root's directory": f"ln -s {BAIT}/root $P",
    "a link to the other user's file": f"ln -s {BAIT}/other/file $P",
    "a link to the other user's directory": f"ln -s {BAIT}/other $P",
    "a link to nothing": "ln -s /nowhere/at/all $P",
    "a link to itself": "ln -s $P $P",
    "a link to /proc/self/environ": "ln -s /proc/self/environ $P",
    "a link to a terminal": "ln -s /dev/console $P",
    "a FIFO": "mkfifo $P",
    "a directory": "mkdir -p $P/sub",
    "a huge file": "truncate -s 900G $P",
    "a deep document": "head -c 3000000 /dev/zero | tr '\\0' '[' >$P",
    "a socket": "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('$P')\"",
    "nobody's to read": "touch $P; chmod 0 $P",
    "a directory above as a link to root's": f"mv $D $D.battery; ln -s {BAIT}/root $D",
    "a directory above as a link to the other's": f"mv $D $D.battery; ln -s {BAIT}/other $D",
    "a directory above as a link to itself": "mv $D $D.battery; ln -s $D $D",
    "a directory above as a file": "mv $D $D.battery; touch $D",
    "swapped all the time": (
        f"(e=$(( $(date +%s) + 1 )); while [ $(date +%s) -lt $e ]; do echo '{{}}' >$P; "
        f"ln -sfT {BAIT}/root/file $P; rm -f $P; mkfifo $P 2>/dev/null; rm -f $P; done) "
        ">/dev/null 2>&1 &"
    ),
}


def as_user(user: str, script: str, path: str) -> int:
    """Run a script as the user whose path it is."""
    given = {"P": path, "D": str(Path(path).parent), "PATH": os.environ["PATH"]}
    command = ["runuser", "-u", user, "--", "sh", "-c", script]
    done = subprocess.run(command, env=given, capture_output=True, timeout=30, check=False, cwd="/")
    return done.returncode


def read_by_others(commands: list[str]) -> list[str]:
    """Have whoever reads the path read it; say who does not come to an end."""
    wrong = []
    for command in commands:
        began = time.monotonic()
        try:
            subprocess.run(["sh", "-c", command], capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            wrong.append(f"`{command}` has not ended after {time.monotonic() - began:.0f} s")
            subprocess.run(["sh", "-c", command.replace(" start ", " kill -s KILL ")],
                           capture_output=True, check=False)  # fmt: skip
    return wrong


def leaks(user: str, secret: str) -> list[str]:
    """Return where the user can read what was in the bait."""
    search = (
        f"grep -rlsI --devices=skip -m1 {secret} /run/agent-box* /var/lib/agent-box* $HOME/.config "
        f"$HOME/.local 2>/dev/null; journalctl -q --no-pager 2>/dev/null | grep -m1 {secret}"
    )
    home = pwd.getpwnam(user).pw_dir
    command = ["runuser", "-u", user, "--", "env", f"HOME={home}", "sh", "-c", search]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.split("\n")[:3] if done.stdout.strip() else []


def failed() -> set[str]:
    """Return the units of the box that have failed."""
    command = ["systemctl", "list-units", "--failed", "--plain", "--no-legend", "agent-box*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def restore(path: Path, kept: Path) -> None:
    """Put back what was at a path."""
    above = Path(f"{path.parent}.battery")
    if above.exists():
        path.parent.unlink(missing_ok=True)
        above.rename(path.parent)
    if path.is_mount():  # nobody but root could take it away
        subprocess.run(["find", str(path), "-mindepth", "1", "-delete"], check=True)
        if kept.exists():
            subprocess.run(["cp", "-a", f"{kept}/.", str(path)], check=True)
        return
    if path.is_symlink() or path.is_file() or path.is_fifo() or path.is_socket():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if kept.exists():
        subprocess.run(["cp", "-a", str(kept), str(path)], check=True)


def attack(told: dict[str, Any], entry: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Attack one path with every form; return complaints, and the forms that could be made."""
    path, user, secret = Path(entry["path"]), told["user"], told["secret"]
    kept = Path("/opt/battery-kept")
    shutil.rmtree(kept, ignore_errors=True)
    if path.exists():
        subprocess.run(["cp", "-a", str(path), str(kept)], check=True)
    laid = baits(told["victim"], secret)
    before = {str(bait): print_of(bait) for bait in laid}
    wrong, made = [], []
    for name, script in FORMS.items():
        was_failed = failed()
        where = f"{path} as {name}"
        ready = "mkdir -p $D && [ -w $D ] && rm -rf $P && [ ! -e $P ] && [ ! -L $P ] && "
        if as_user(user, f"{ready} {{ {script}; }}", str(path)) == 0:
            made.append(name)
            wrong += [f"{where}: {what}" for what in read_by_others(entry["readers"])]
            changed = [bait for bait in laid if print_of(bait) != before[str(bait)]]
            wrong += [f"{where}: {bait} was changed: {print_of(bait)}" for bait in changed]
        restore(path, kept)
        if failed() - was_failed:
            wrong += [f"after {where}: {what}" for what in read_by_others(entry["readers"])]
            wrong += [f"after {where}: {unit} stays failed" for unit in failed() - was_failed]
    wrong += [f"{path}: {user} can read the secret in {leak}" for leak in leaks(user, secret)]
    return wrong, made


def main() -> None:
    """Attack each path."""
    told = job()
    result: dict[str, Any] = {"wrong": [], "made": {}}
    for entry in told["paths"]:
        wrong, made = attack(told, entry)
        result["wrong"] += wrong
        result["made"][entry["path"]] = made
    shutil.rmtree(BAIT, ignore_errors=True)
    tell(result)


if __name__ == "__main__":
    main()
