"""`agent-box-pages DIRECTORY`: writes what the edge serves itself, when the system is built.

No process of a user has a say in what a browser shows or runs below the address of the box, so
pages, scripts and the page of terminals are files of root's:

    pages/USER/NAME.html      the pages of each user
    assets/VERSION/NAME       scripts, styles, icons, under a name that changes with them
    assets/current            leads to VERSION: what a page of before an update gets
    terminal/index.html       the page of ttyd, as ttyd itself would answer
    terminal/page.caddy       for the edge: what this page may do, and a tag of its content
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent_box.web import assets

_PATIENCE = 20.0  # seconds for ttyd to answer
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_ANY_SCRIPT = re.compile(rb"<script\b")


class NotATerminalError(Exception):
    """What is to be the page of terminals is none."""


def build(directory: Path, host: str, users: list[str], terminal: bytes) -> None:
    """Write all files below `directory`."""
    for user in users:
        for name in assets.PAGES:
            _write(directory / "pages" / user / f"{name}.html", assets.page(user, host, name))
    for name, content in assets.files().items():
        _write(directory / "assets" / assets.version() / name, content)
    (directory / "assets/current").symlink_to(assets.version())
    _write(directory / "terminal/index.html", terminal)
    _write(directory / "terminal/page.caddy", rules(terminal).encode())


def rules(page: bytes) -> str:
    """Return what the edge says about the page of terminals.

    It is one file with everything inline. Its own scripts may run, by their hashes, and no others;
    xterm makes style sheets while it runs, and has its cursor and fonts inline.
    """
    scripts = _SCRIPT.findall(page)
    if not scripts or len(scripts) != len(_ANY_SCRIPT.findall(page)):
        raise NotATerminalError("the page of ttyd is not one file with its scripts inline")
    hashes = " ".join(map(script_hash, scripts))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src 'self' data:;"
        " font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'self'"
    )
    tag = hashlib.sha256(page).hexdigest()[:32]
    return f"""\
header Content-Security-Policy "{policy}"
header Cache-Control "private, no-cache"
header ETag "\\"{tag}\\""
"""


def ask(ttyd: str) -> bytes:
    """Return the page that the program `ttyd` answers with."""
    with tempfile.TemporaryDirectory(prefix="ttyd") as folder:
        path = f"{folder}/ttyd.sock"  # by its end ttyd knows it from an interface
        command = [ttyd, "--interface", path, "--debug", "1", "true"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            return _fetched(path, process)
        finally:
            process.terminate()
            process.wait()


def _fetched(path: str, process: subprocess.Popen[bytes]) -> bytes:
    deadline = time.monotonic() + _PATIENCE
    link = http.client.HTTPConnection("localhost")
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.settimeout(_PATIENCE)
    while link.sock.connect_ex(path) != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise NotATerminalError("ttyd does not start")
        time.sleep(0.02)
    link.request("GET", "/")
    answer = link.getresponse()
    content = answer.read()
    link.close()
    if answer.status != 200 or not answer.headers.get("content-type", "").startswith("text/html"):
        raise NotATerminalError(f"ttyd answers {answer.status} instead of its page")
    return content


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def script_hash(script: bytes) -> str:
    """Return how a policy names an inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="agent-box-pages", description="Files for the edge.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--host", required=True, help="name of the box on its pages")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--ttyd", help="program that is asked for its page")
    source.add_argument("--terminal", type=Path, help="file with that page")
    parser.add_argument("users", nargs="+", metavar="user")
    given = parser.parse_args()
    try:
        page = ask(given.ttyd) if given.ttyd else given.terminal.read_bytes()
        build(given.directory, given.host, given.users, page)
    except (NotATerminalError, OSError) as error:
        sys.exit(f"agent-box-pages: {error}")


if __name__ == "__main__":
    main()
