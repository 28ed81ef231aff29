"""Launch specs on the disk: what the launcher of a session reads.

They lie in the runtime directory of the user, which may be full: what they cannot be written to is
left as it was, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, spec: dict[str, Any]) -> None:
    """Write a spec, for its user alone: whole or not at all."""
    temporary = path.with_suffix(f".{spec['launch']}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
            json.dump(spec, file)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def clear_leftovers(directory: Path) -> None:
    """Remove what was not finished when the supervisor before was killed."""
    for path in directory.glob("*"):
        if path.suffix not in (".json", ".failed"):
            with contextlib.suppress(OSError):
                path.unlink()


def why(error: Exception, runtime_dir: Path) -> str:
    """Return why no spec can be written, with the remedy where that is known."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    where = getattr(error, "filename", None)
    if full and (where is None or str(where).startswith(str(runtime_dir))):
        return f"{runtime_dir} is full: remove what your programs have put there"
    return str(error)
