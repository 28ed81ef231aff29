"""When a user's receiver has to run: it starts with the first request, and with the box if needed.

systemd holds the socket. So a user who has set up no sender has no process, and whoever set one up
has a receiver from the start: deliveries that a power cut left behind go out without another one.
"""

from __future__ import annotations

import contextlib
import socket

from agent_box.subscriptions.place import state_dir

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from agent_box.config import Box, User


def wake(path: str) -> None:
    """Have systemd start the receiver behind the socket `path`, if it does not run.

    Nobody waits for it, and a socket that is not there is told by those who need it.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
        link.setblocking(False)
        link.connect(path)


def resume(box: Box, user: User) -> None:
    """Wake the receiver of a user who has set up senders."""
    mine = box.webhook.users.get(user.name) if box.webhook else None
    if mine is not None and (state_dir(user.home) / "sources.json").exists():
        wake(mine.socket)
