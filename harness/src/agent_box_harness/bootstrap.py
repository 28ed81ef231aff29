"""Make a checkout ready to work: system packages by name, then the environment in `.venv`.

Runs before anything is installed, on the system's own Python, so it uses the standard library
only. `scripts/*` call it with the subcommand of `agent-box-harness` to go on with:

    python3 harness/src/agent_box_harness/bootstrap.py test unit
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
VENV = REPO / ".venv"
REQUIREMENTS = REPO / "harness/requirements.txt"
NODE = REPO / "harness"
"""Where package.json and its lock say what the browser tests load into pages."""
OLDEST, NEWEST = (3, 11), (3, 14)

# Debian and Ubuntu packages, each with a program or file that shows that it is there.
UNIT = {
    "tmux": "tmux",
    "shellcheck": "shellcheck",
}
GUEST = {
    "tmux": "tmux",
    "qemu-system-x86": "qemu-system-x86_64",
    "qemu-utils": "qemu-img",
    "mmdebstrap": "mmdebstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "uidmap": "newuidmap",
    "e2fsprogs": "mke2fs",
    "zstd": "zstd",
    "openssh-client": "ssh",
    "npm": "npm",
}
CONTAINER = {"systemd-container": "systemd-nspawn"}
# What tests skip with a reason where it cannot be had: Ubuntu's is no ordinary package. The build
# without windows costs half the processor time of the other one.
BROWSER = {"chromium-headless-shell": "chromium-headless-shell"}


def say(text: str) -> None:
    """Tell what takes time, on standard error."""
    sys.stderr.write(f"agent-box: {text}\n")
    sys.stderr.flush()


def give_up(text: str) -> None:
    """End with a message that names the remedy."""
    say(text)
    sys.exit(1)


def packages_for(arguments: list[str], *, root: bool) -> dict[str, str]:
    """Return the system packages that a subcommand needs, each with its proof."""
    command, part = [*arguments, "", ""][:2]
    if "--help" in arguments or "-h" in arguments:
        return {}
    needs: dict[str, str] = {}
    if command == "test" and part != "box":
        needs.update(UNIT)
    if command in ("try", "bench") or (command == "test" and part != "unit"):
        needs.update(GUEST)
        if root:
            needs.update(CONTAINER)
    if command == "test" and part != "unit":
        needs.update(BROWSER)
    return needs


def present(proof: str) -> bool:
    """Tell whether a program is on PATH (sbin included), or a file exists."""
    if proof.startswith("/"):
        return Path(proof).exists()
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    return shutil.which(proof, path=path) is not None


def missing_packages(needs: dict[str, str]) -> list[str]:
    """Names of the packages that are not there yet."""
    return [package for package, proof in needs.items() if not present(proof)]


def install_packages(packages: list[str], *, optional: bool = False) -> None:
    """Install by name with apt-get, as root or through sudo; a failure ends it, if not optional."""
    stop = say if optional else give_up
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        stop(f"please install the equivalents of these Debian packages: {names}")
        return
    prefix: list[str] = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            stop(f"these packages are missing; as root: apt-get install {names}")
            return
        prefix = ["sudo", "env"]
    else:
        prefix = ["env"]
    apt = [*prefix, "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    install = [*apt, "install", "-y", "-q", "--no-install-recommends", *packages]
    say(f"installing {names}")
    if subprocess.run(install, check=False, stdout=sys.stderr).returncode == 0:
        return
    say("refreshing the package lists and trying again")
    subprocess.run([*apt, "update", "-q"], check=False, stdout=sys.stderr)
    if subprocess.run(install, check=False, stdout=sys.stderr).returncode != 0:
        stop(f"apt-get could not install: {names}")


def pick_python() -> str:
    """Return an interpreter that the packages support: this one, or a newer one on PATH."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    give_up(f"Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} is needed")
    raise SystemExit(1)


def make_venv(venv: Path, python: str) -> Path:
    """Create or refresh an environment from the locked requirements; return its interpreter.

    A stamp keyed on the lock file makes later runs free.
    """
    interpreter = venv / "bin/python"
    version = subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout
    projects = [REPO / "pkgs/agent-box", REPO / "harness"]
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + version.encode() + str(REPO).encode())
    for project in projects:
        digest.update((project / "pyproject.toml").read_bytes())
    stamp = venv / ".stamp"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return interpreter
    say(f"making {venv} ({version.strip()}, packages locked by hash)")
    shutil.rmtree(venv, ignore_errors=True)
    if subprocess.run([python, "-m", "venv", str(venv)], check=False).returncode != 0:
        if shutil.which("apt-get") is None:
            give_up(f"{python} cannot make virtual environments: its venv module is missing")
        shutil.rmtree(venv, ignore_errors=True)
        install_packages(["python3-venv"])
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
    pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "-qq"]
    subprocess.run(
        [*pip, "install", "--require-hashes", "-r", str(REQUIREMENTS)],
        check=True,
        stdout=sys.stderr,
    )
    editable = [word for project in projects for word in ("-e", str(project))]
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-build-isolation", *editable],
        check=True,
        stdout=sys.stderr,
    )
    stamp.write_text(digest.hexdigest())
    return interpreter


def install_node_modules(folder: Path) -> None:
    """Install what package-lock.json in `folder` pins, by integrity, with npm; a failure is told.

    A stamp keyed on the lock file makes later runs free.
    """
    modules = folder / "node_modules"
    stamp = modules / ".stamp"
    digest = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    say(f"making {modules} (packages locked by integrity)")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    npm = ["npm", "ci", "--prefix", str(folder), *quiet]
    if not present("npm") or subprocess.run(npm, check=False, stdout=sys.stderr).returncode != 0:
        say("npm could not install axe-core, so that accessibility will not be checked")
        return
    stamp.write_text(digest)


def with_nix(arguments: list[str]) -> list[str] | None:
    """argv that does the same through Nix, or None on a machine without it.

    `AGENT_BOX_NIX=0` chooses the portable way on a machine that has Nix, too.
    """
    if shutil.which("nix") is None or os.environ.get("AGENT_BOX_NIX") == "0":
        return None
    nix = ["nix", "--extra-experimental-features", "nix-command flakes"]
    if arguments == ["test"]:
        return [*nix, "flake", "check", "--print-build-logs", str(REPO)]
    if arguments == ["try"]:
        # Boots hosts/vm.nix itself; the Debian guest needs Debian's tools to build.
        return [*nix, "run", f"{REPO}#try"]
    shell = [*nix, "develop", str(REPO), "--command", "python", "-m", "agent_box_harness.cli"]
    return [*shell, *arguments]


def main(arguments: list[str]) -> None:
    """Prepare what the subcommand needs and become it."""
    os.chdir(REPO)
    if arguments[:1] and "AGENT_BOX_READY" not in os.environ:
        argv = with_nix(arguments)
        if argv:
            os.environ["AGENT_BOX_READY"] = "nix"
            os.execvp(argv[0], argv)  # noqa: S606 - argv, no shell
    missing = missing_packages(packages_for(arguments, root=os.geteuid() == 0))
    needed = [package for package in missing if package not in BROWSER]
    if needed:
        install_packages(needed)
    if len(needed) < len(missing):
        install_packages(list(BROWSER), optional=True)
    interpreter = make_venv(VENV, pick_python())
    if arguments[:1] == ["test"]:
        install_node_modules(NODE)
    argv = [str(interpreter), "-m", "agent_box_harness.cli", *arguments]
    os.execv(argv[0], argv)  # noqa: S606 - argv, no shell


if __name__ == "__main__":
    main(sys.argv[1:])
