"""GitHub and the host of channels, played by a local server in front of real Git repositories."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDENTITY = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "c", "GIT_COMMITTER_EMAIL": "c@example.org", "HOME": "/nonexistent",
    "PATH": os.environ["PATH"],
}  # fmt: skip


def git(folder: Path, *arguments: str, at: int | None = None, text: str | None = None) -> str:
    """Run Git, at a given time if it commits."""
    environment = dict(IDENTITY)
    if at is not None:
        environment |= {"GIT_AUTHOR_DATE": f"{at} +0000", "GIT_COMMITTER_DATE": f"{at} +0000"}
    result = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, input=text, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return result.stdout.strip()


class Repository:
    """A real repository, and what an upstream with it would say."""

    def __init__(self, folder: Path, full_name: str) -> None:
        self.folder = folder
        self.full_name = full_name
        self.clock = 1_700_000_000
        folder.mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")

    def commit(self, message: str, **files: str) -> str:
        """Add a commit that writes files; return its id."""
        for name, content in files.items():
            (self.folder / name).write_text(content)
        self.clock += 60
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", message, at=self.clock)
        return self.head()

    def head(self) -> str:
        return git(self.folder, "rev-parse", "HEAD")

    def about(self, rev: str) -> dict[str, Any]:
        date, _, message = git(self.folder, "show", "-s", "--format=%cI\n%B", rev).partition("\n")
        commit = {"message": message, "committer": {"date": date.replace("+00:00", "Z")}}
        return {"sha": git(self.folder, "rev-parse", f"{rev}^{{commit}}"), "commit": commit}

    def compare(self, old: str, new: str, per_page: int, page: int) -> dict[str, Any]:
        ahead = git(self.folder, "rev-list", "--reverse", f"{old}..{new}").split()
        behind = git(self.folder, "rev-list", f"{new}..{old}").split()
        status = {(False, False): "identical", (True, False): "ahead", (False, True): "behind"}
        shown = ahead[(page - 1) * per_page : page * per_page]
        return {
            "status": status.get((bool(ahead), bool(behind)), "diverged"),
            "ahead_by": len(ahead),
            "behind_by": len(behind),
            "commits": [self.about(rev) for rev in shown],
        }


@dataclass
class Reply:
    """One HTTP answer. `cut` bytes at its end are announced and never sent."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    drip: float = 0.0
    """Seconds between single bytes."""


class Upstreams:
    """Both hosts. `faults` maps a pattern of paths to answers that come before the true one."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.renamed: dict[str, str] = {}
        self.release = ""
        self.faults: list[tuple[str, list[Reply]]] = []
        self.twist: Callable[[str, Reply], Reply] = lambda _, reply: reply
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.stopping = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append(self.path)
                outer.headers.append(dict(self.headers))
                reply = outer.answer(self.path)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                body = reply.body[: len(reply.body) - reply.cut]
                if reply.drip:
                    for byte in body:
                        if outer.stopping.wait(reply.drip):
                            break
                        try:
                            self.wfile.write(bytes([byte]))
                        except OSError:
                            break
                else:
                    self.wfile.write(body)
                if reply.cut or reply.drip:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()

    def fail(self, pattern: str, *replies: Reply) -> None:
        """Have the next requests of a path that matches answered so."""
        self.faults.append((pattern, list(replies)))

    def answer(self, path: str) -> Reply:
        for pattern, replies in self.faults:
            if replies and re.search(pattern, path):
                return replies.pop(0)
        try:
            return self.twist(path, self._true_answer(path))
        except subprocess.CalledProcessError:  # Git does not know the revision
            return _json({"message": "Not Found"}, 404)

    def _true_answer(self, path: str) -> Reply:
        path, _, query = path.partition("?")
        options = dict(pair.split("=") for pair in query.split("&") if pair)
        if found := re.fullmatch(r"/channels/([^/]+)/git-revision", path):
            return Reply(302, headers={"Location": f"/releases/{self.release}/git-revision"})
        if path.startswith("/releases/"):
            return Reply(body=self.repositories["NixOS/nixpkgs"].head().encode())
        found = re.fullmatch(r"/(api/repos|web)/([^/]+/[^/]+)(/.*)?", path)
        if not found:
            return _json({"message": "Not Found"}, 404)
        kind, name, rest = found[1], found[2], found[3] or ""
        if name in self.renamed:
            return Reply(301, headers={"Location": f"/{kind}/{self.renamed[name]}{rest}"})
        repository = self.repositories.get(name)
        if repository is None:
            return _json({"message": "Not Found"}, 404)
        if kind == "web":
            rev = rest.removeprefix("/archive/").removesuffix(".tar.gz")
            prefix = f"{name.partition('/')[2]}-{rev}/"
            archive = subprocess.run(
                ["git", "archive", "--format=tar.gz", f"--prefix={prefix}", rev],
                cwd=repository.folder, capture_output=True, check=True,
            )  # fmt: skip
            return Reply(body=archive.stdout, headers={"Content-Type": "application/x-gzip"})
        if not rest:
            return _json({"full_name": repository.full_name, "default_branch": "main"})
        if rest.startswith("/commits/"):
            return _json(repository.about(rest.removeprefix("/commits/")))
        old, _, new = rest.removeprefix("/compare/").partition("...")
        per_page, page = int(options.get("per_page", 30)), int(options.get("page", 1))
        return _json(repository.compare(old, new, per_page, page))


def _json(document: object, status: int = 200) -> Reply:
    headers = {"Content-Type": "application/json; charset=utf-8", "X-RateLimit-Remaining": "41"}
    return Reply(status, json.dumps(document).encode(), headers)
