"""`agent-box-web`: the web service of the user that runs it, on the socket that systemd opened.

`agent-box-web --routes` prints the addresses that it answers instead.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from agent_box import config, httpd
from agent_box.errors import AgentBoxError
from agent_box.web.app import application

if TYPE_CHECKING:
    from starlette.types import Scope

log = logging.getLogger(__name__)

IDLE = 60.0
"""Seconds without a request or an open stream after which the service ends."""

_CALL = httpd.Limits(body=16 * 1024 * 1024, seconds=60.0)
_UPLOAD = httpd.Limits(body=None, seconds=None)


def limits(scope: Scope) -> httpd.Limits:
    """Return what a request may take: uploads count for themselves."""
    parts = scope["path"].split("/")
    upload = (scope["method"], *parts[2:4]) in (
        ("PUT", "api", "uploads"),
        ("PATCH", "api", "partial-uploads"),
    )
    return _UPLOAD if upload else _CALL


def main() -> None:
    """Serve until nobody looks any more."""
    httpd.setup_logging()
    os.umask(0o077)
    try:
        box = config.load()
        app = application(box, config.current_user(box))
        if sys.argv[1:] == ["--routes"]:
            sys.stdout.write(httpd.listed(app.app.routes))
            return
        idle = float(os.environ.get("AGENT_BOX_WEB_IDLE", IDLE))
        httpd.run(app, idle, limits=limits)
    except AgentBoxError as error:
        log.critical("%s", error)
        sys.exit(error.exit_code)
