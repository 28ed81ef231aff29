"""`/U/api/update`: how far an update of the box is, and starting one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from agent_box.update import request as asking
from agent_box.update import status
from agent_box.web import answers

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agent_box.config import Box, User


class Updates:
    """Answers the settings about updates of the box."""

    def __init__(self, box: Box, user: User) -> None:
        self._box = box
        self._user = user

    async def show(self, _: Request) -> Response:
        """Tell what runs, and how the last update went or goes."""
        update = self._box.update
        if update is None:
            return answers.data({"enabled": False})
        found = await asyncio.to_thread(status.read)
        return answers.data(
            {
                "enabled": True,
                "may": self._user.name in update.users,
                "revision": self._box.box.revision,
                "phases": status.PHASES,
                "status": {**msgspec.to_builtins(found), "running": found.running},
            }
        )

    async def start(self, _: Request) -> Response:
        """Start an update; how it goes is told by `show` and the event `update`."""
        await asyncio.to_thread(asking.start, self._box, self._user.name)
        return answers.data({})
