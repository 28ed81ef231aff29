"""`agent-box-supervisor`: the service of one user."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time

from agent_box import config, sdnotify
from agent_box.errors import AgentBoxError
from agent_box.subscriptions import receiving
from agent_box.supervisor.control import Control
from agent_box.supervisor.operations import Operations
from agent_box.supervisor.runner import Supervisor

log = logging.getLogger(__name__)

STUCK = 20.0
"""Seconds without a turn of the loop after which the supervisor stops vouching for itself."""


class _Journal(logging.Formatter):
    """Prefixes each line with the syslog level that the journal understands."""

    _LEVELS = {  # noqa: RUF012
        logging.DEBUG: 7,
        logging.INFO: 6,
        logging.WARNING: 4,
        logging.ERROR: 3,
        logging.CRITICAL: 2,
    }

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if "JOURNAL_STREAM" not in os.environ:
            return text
        prefix = f"<{self._LEVELS.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in text.splitlines())


def main() -> None:
    """Run until told to stop."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Journal("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    os.umask(0o077)
    try:
        box = config.load()
        user = config.current_user(box)
    except AgentBoxError as error:
        log.critical("%s", error)
        sys.exit(error.exit_code)
    asyncio.run(serve(box, user))


async def serve(box: config.Box, user: config.User) -> None:
    """Supervise the sessions of `user` until SIGTERM or SIGINT."""
    supervisor = Supervisor(box, user)
    control = Control(supervisor, Operations(supervisor))
    loop = asyncio.get_running_loop()
    runner = asyncio.ensure_future(supervisor.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runner.cancel)
    await control.start()
    # It needs the control socket.
    receiving.resume(box, user)
    sdnotify.notify(f"READY=1\nSTATUS=supervising the sessions of {user.name}")
    watchdog = asyncio.ensure_future(_vouch(supervisor))
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await runner
    finally:
        sdnotify.notify("STOPPING=1")
        watchdog.cancel()
        await control.stop()


async def _vouch(supervisor: Supervisor) -> None:
    """Tell the service manager that the loop turns, for as long as it does."""
    interval = sdnotify.watchdog_interval()
    if interval is None:
        return
    while True:
        # A pass of the loop, so that the sign of life means that the work goes on.
        supervisor.wake()
        await asyncio.sleep(interval)
        if time.monotonic() - supervisor.heartbeat < interval + STUCK:
            sdnotify.notify("WATCHDOG=1")


if __name__ == "__main__":
    main()
