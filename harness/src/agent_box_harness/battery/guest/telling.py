"""How a program of the battery hears of its job and tells what came of it."""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any


def job() -> Any:
    """Return what it is to do: JSON in base64 on standard input."""
    return json.loads(base64.b64decode(sys.stdin.read()))


def tell(result: Any) -> None:
    """Print the result as JSON."""
    sys.stdout.write(json.dumps(result))
    sys.stdout.flush()


def go_on_in_background(result: Any) -> None:
    """Tell a result, with the pid under which the program goes on, and let the caller go."""
    child = os.fork()
    if child:
        tell({**result, "pid": child})
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
