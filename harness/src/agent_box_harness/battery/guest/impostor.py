"""Sits in the place of a user's service, as that user, and answers the edge with what it likes.

Which of its answers a request gets, the request says (`X-Battery: NAME`); `echo` tells what came.
"""

from __future__ import annotations

import base64
import os
import pwd
import signal
import socket
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_box_harness.battery.guest.telling import go_on_in_background, job
else:  # beside it, inside the guest
    from telling import go_on_in_background, job


def bind(path: str, user: str) -> socket.socket:
    """Take the place of a socket, whose owner and modes stay, with the user's credentials."""
    place = Path(path)
    was = place.lstat() if place.exists() else None
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    if was is not None:
        os.chown(path, was.st_uid, was.st_gid)
        place.chmod(stat.S_IMODE(was.st_mode))
    else:
        place.chmod(0o666)
    account = pwd.getpwnam(user)
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    server.listen(512)  # from here on the peer's credentials are the user's
    return server


def serve(client: socket.socket, answers: dict[str, bytes]) -> None:
    """Answer one request."""
    with client:
        client.settimeout(10)
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = client.recv(65536)
            if not chunk:
                return
            head += chunk
        name = "echo"
        for line in head.split(b"\r\n"):
            key, _, value = line.partition(b":")
            if key.lower() == b"x-battery":
                name = value.strip().decode("latin-1")
        if name in answers:
            client.sendall(answers[name])
        else:
            told = head.partition(b"\r\n\r\n")[0]
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (len(told), told))  # fmt: skip


def attempt(client: socket.socket, answers: dict[str, bytes]) -> None:
    """Answer one request, whatever the other side does."""
    try:
        serve(client, answers)
    except OSError:
        return


def main() -> None:
    """Serve until somebody ends it."""
    told = job()
    answers = {name: base64.b64decode(text) for name, text in told["answers"].items()}
    servers = [bind(told["path"], told["user"])]
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    go_on_in_background({})
    while True:
        client, _ = servers[0].accept()
        threading.Thread(target=attempt, args=(client, answers), daemon=True).start()


if __name__ == "__main__":
    main()
