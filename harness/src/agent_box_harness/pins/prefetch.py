"""A second opinion on a hash: what Nix itself computes, by nix-prefetch-github.

Only where Nix is installed. Everywhere else the hash of the archive that we fetched stands
alone (`narhash`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from agent_box_harness.pins.errors import PinError, clean

SRI = re.compile(r"sha256-[A-Za-z0-9+/]{43}=")
SECONDS = 1800.0
PROGRAM = "nix-prefetch-github"


def program() -> str | None:
    """Return nix-prefetch-github if it can work here: it runs Nix's own programs."""
    beside = Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM) or (str(beside) if beside.is_file() else None)
    nix = shutil.which("nix-prefetch-url") or shutil.which("nix-build")
    return found if found and nix and shutil.which("nix") else None


def hash_of(command: str, owner: str, repo: str, rev: str) -> str:
    """Return the SRI hash of a GitHub repository at `rev`, as Nix computes it."""
    argv = [command, owner, repo, "--rev", rev]
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_TOKEN"}
    try:
        result = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        raise PinError(
            f"{PROGRAM} took more than {SECONDS:g} s: try again later, or with --without-nix"
        ) from None
    except OSError as error:
        raise PinError(f"{PROGRAM} does not start ({error}): try --without-nix") from None
    if result.returncode != 0:
        detail = clean(result.stderr[-400:]) or "no reason given"
        raise PinError(f"{PROGRAM} failed: {detail}. Try again later, or with --without-nix")
    return parse(result.stdout, rev)


def parse(output: str, rev: str) -> str:
    """Find the hash in what nix-prefetch-github printed.

    Old versions call it `sha256`, and some print warnings first. What is not understood, or
    belongs to another revision, is refused.
    """
    start, end = output.find("{"), output.rfind("}")
    try:
        answer = json.loads(output[start : end + 1]) if start >= 0 else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise PinError(
            f"{PROGRAM} printed something unknown ({clean(output) or 'nothing'}): "
            "its wording has changed. Try --without-nix"
        )
    found = answer.get("hash") or answer.get("sha256")
    if not isinstance(found, str) or not SRI.fullmatch(found):
        raise PinError(
            f"{PROGRAM} printed no SHA-256 hash as Nix writes it ({clean(str(found))}): "
            "try --without-nix"
        )
    if answer.get("rev") != rev:
        raise PinError(
            f"{PROGRAM} fetched {clean(str(answer.get('rev')))} where {rev[:12]} was asked for: "
            "did a branch or tag of that name appear? Try --without-nix"
        )
    return found
