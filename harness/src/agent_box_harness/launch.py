"""The launch of a box in a cloud, played inside the guest: what it leaves there, what it hears."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agent_box_harness.errors import RequestFailedError

if TYPE_CHECKING:
    from agent_box_harness.box import Box

UNIT = "agent-box-first-boot.service"
FOLDER = "/var/lib/agent-box-launch"
_HEARD = "/run/heard"
_PORT = 8766
_HANDLE = "/handle?Signature=a%2Fb"
_SERVICE = f"""\
import http.server, pathlib
heard = pathlib.Path("{_HEARD}")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with heard.open("a") as file:
            print(self.path, self.headers.get("Content-Type", "-"), text, file=file)
        # The first attempt is lost.
        self.send_response(200 if heard.read_text().count("\\n") > 1 else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", {_PORT}), Handler).serve_forever()
"""


def leave(box: Box, password: str | None = None) -> None:
    """Leave on the box what a launch leaves there, and listen as CloudFormation does.

    A password comes from templates of earlier releases.
    """
    box.succeed(f"install -d -m 0700 {FOLDER}")
    if password is not None:
        box.write_file(f"{FOLDER}/password", password.encode() + b"\n", mode=0o600)
    address = f"http://127.0.0.1:{_PORT}{_HANDLE}"
    box.write_file(f"{FOLDER}/signal", address.encode(), mode=0o600)
    box.write_file("/run/listen.py", _SERVICE.encode())
    box.succeed("setsid -f python3 /run/listen.py </dev/null >/dev/null 2>&1")


def told(box: Box) -> list[dict[str, str]]:
    """Return what the launch has been told, one attempt after another.

    Fails where CloudFormation would not have listened: its address is signed.
    """
    lines = box.run(f"cat {_HEARD}").out.splitlines()
    found = []
    for line in lines:
        path, kind, text = line.split(" ", 2)
        if (path, kind) != (_HANDLE, "-"):
            raise RequestFailedError(f"the signature does not cover {path} with {kind}")
        found.append(json.loads(text))
    return found


def wait_for_end(box: Box) -> None:
    """Wait until the launch has heard how it went."""
    box.wait_for("the end of the launch", lambda: box.run(f"ls {FOLDER}/signal").rc != 0)


def wait_for_word(box: Box, text: str) -> None:
    """Wait until the unit says something in its journal."""
    box.wait_for(
        f"word of {text!r}", lambda: text in box.succeed(f"journalctl -b -u {UNIT} -o cat")
    )
