"""`agent-box-keep-assets PAGES`: keep the scripts of this version for pages of later days.

A page that stays open over an update goes on with the scripts that it began with, and loads those
that it has not needed yet. The edge finds them here when they are not among the present ones:

    assets/VERSION/NAME       as `agent-box-pages` has written them
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

PLACE = Path("/var/lib/agent-box-assets")
"""Where they are kept; `AGENT_BOX_KEPT_ASSETS` overrides it."""

AGE = 60 * 24 * 3600.0
"""Seconds after which nobody has such a page open any more: logins end before that."""

MOST = 20
"""Versions that are kept, at about 200 KB each."""


def keep(pages: Path, place: Path, now: float) -> None:
    """Add the present version to those kept, and forget the oldest."""
    kept = place / "assets"
    kept.mkdir(parents=True, exist_ok=True)
    for left in kept.glob(".*"):  # by one that was interrupted
        shutil.rmtree(left, ignore_errors=True)
    version = (pages / "assets/current").readlink().name
    target = kept / version
    if not target.is_dir():
        made = Path(tempfile.mkdtemp(prefix=".", dir=kept))
        made.chmod(0o755)
        for source in (pages / "assets" / version).iterdir():
            # Without the mode of the store, so that it can be removed.
            shutil.copyfile(source, made / source.name)
        made.rename(target)
    os.utime(target, (now, now))
    ages = {path: path.stat().st_mtime for path in kept.iterdir()}
    newest = sorted(ages, key=ages.__getitem__, reverse=True)
    for count, path in enumerate(newest):
        if path != target and (count >= MOST or ages[path] < now - AGE):
            shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    """Keep the version of the given directory."""
    os.umask(0o022)
    place = Path(os.environ.get("AGENT_BOX_KEPT_ASSETS") or PLACE)
    if len(sys.argv) != 2:
        sys.exit("usage: agent-box-keep-assets PAGES")
    try:
        keep(Path(sys.argv[1]), place, time.time())
    except OSError as error:
        sys.exit(f"agent-box-keep-assets: {error}")


if __name__ == "__main__":
    main()
