"""The web service in this process, over plain HTTP, with a steerable supervisor."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
CHROMIUM_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

_spec = importlib.util.spec_from_file_location("web_stand", Path(__file__).with_name("stand.py"))
assert _spec is not None and _spec.loader is not None
stand_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stand_module)


class Web:
    """A browser without a screen."""

    def __init__(self, stand: Any) -> None:
        self.stand = stand
        self.supervisor = stand.supervisor
        self.home: Path = stand.home
        self.session = requests.Session()
        self.own = {"Sec-Fetch-Site": "same-origin", "Origin": stand.origin}

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.session.get(f"{self.stand.base}/{path}", timeout=20, **options)

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        headers = {**self.own, "Content-Type": "application/json", **options.pop("headers", {})}
        data = options.pop("data", json.dumps(body if body is not None else {}))
        return self.session.request(
            method,
            f"{self.stand.base}/api/{path}",
            headers=headers,
            data=data,
            timeout=30,
            **options,
        )

    def raw(self, target: str, method: str = "GET", headers: str = "", body: bytes = b"") -> bytes:
        """Send exact bytes; returns the whole answer."""
        with socket.create_connection(self.stand.listener.getsockname(), timeout=10) as link:
            head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
            link.sendall(head.encode("latin-1") + body)
            answer = b""
            while part := link.recv(65536):
                answer += part
            return answer


class Stream:
    """An open event stream, read in a thread."""

    def __init__(self, web: Web, last: str | None = None, login: str | None = None) -> None:
        self.events: list[tuple[float, str, Any, str]] = []
        headers = {"Last-Event-ID": last} if last else {}
        if login is not None:
            headers["X-Agent-Box-Login"] = login
        self.ended = False
        self._link = http.client.HTTPConnection(*web.stand.listener.getsockname(), timeout=60)
        self._link.request("GET", f"/{web.stand.user}/events", headers=headers)
        assert self._link.sock is not None
        self._socket = self._link.sock
        self.answer = self._link.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        kind = identity = ""
        try:
            while raw := self.answer.readline():
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name == "id":
                    identity = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    self.events.append((time.monotonic(), kind, json.loads(value), identity))
        except (OSError, http.client.HTTPException, ValueError):
            pass
        self.ended = True

    def wait(
        self, kind: str, check: Callable[[Any], bool] = lambda _: True, seconds: float = 8
    ) -> Any:
        """Return the first event of `kind` that `check` accepts, as (time, content, id)."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for at, found, content, identity in list(self.events):
                if found == kind and check(content):
                    return at, content, identity
            time.sleep(0.002)
        raise AssertionError(f"no {kind} in {self.events}")

    def close(self) -> None:
        # Wakes the reader, which a close alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def stand() -> Iterator[Any]:
    # Short, since a UNIX socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="abw", dir="/tmp") as directory:
        made = stand_module.Stand(Path(directory))
        made.start()
        yield made
        made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by playwright."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    playwright_api = pytest.importorskip("playwright.sync_api")
    with playwright_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def make_stand() -> Iterator[Callable[..., Any]]:
    """Return a maker of stands around a box whose supervisor is somebody else's."""
    opened = []

    def go(root: Path, runtime: Path) -> Any:
        opened.append(stand_module.Stand(root, runtime=runtime, config_name="web.json"))
        opened[-1].start(supervisor=False)
        return opened[-1]

    yield go
    for made in opened:
        made.close()


@pytest.fixture
def web(stand: Any) -> Web:
    return Web(stand)


@pytest.fixture
def stream(web: Web) -> Iterator[Callable[..., Stream]]:
    opened: list[Stream] = []

    def go(last: str | None = None, login: str | None = None) -> Stream:
        opened.append(Stream(web, last, login))
        return opened[-1]

    yield go
    for item in opened:
        item.close()
