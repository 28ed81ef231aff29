"""The vocabulary of a person at a browser: Debian's chromium, driven through Playwright.

The browser runs beside the guest and reaches it through a forwarded port, by the box's own name
and port, so that origins, cookies and security headers are those of a real visit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from agent_box_harness.edge import PASSWORDS
from agent_box_harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Frame, Locator, Page

    from agent_box_harness.box import Box

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    # No WebGL: drawn by the processor it is dear, and terminals do without it. `Visitor.drawing`
    # has it.
    "--disable-software-rasterizer",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PLAIN = frozenset({"--disable-gpu", "--disable-software-rasterizer"})
"""What keeps a browser from drawing as those of users do."""
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE = 15.0  # seconds at native speed for anything to appear
PROGRAMS = ("chromium-headless-shell", "chromium")
"""The browsers that do, the cheapest first."""

_SCREEN = """() => {
  const buffer = window.term?.buffer.active;
  if (!buffer) return "";
  const lines = [];
  for (let row = 0; row < window.term.rows; row += 1) {
    lines.push(buffer.getLine(buffer.viewportY + row)?.translateToString(true) ?? "");
  }
  return lines.join("\\n").trimEnd();
}"""


def program() -> str | None:
    """Path of the browser to use, if there is one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def missing() -> str | None:
    """Say why there can be no browser here, or None."""
    if program() is None:
        return "chromium is not installed"
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    return None


def needed() -> pytest.MarkDecorator:
    """Mark scenarios that need a browser."""
    reason = missing()
    return pytest.mark.skipif(reason is not None, reason=reason or "")


def tab(page: Page, name: str) -> Locator:
    """Return the tab of a session."""
    return page.locator(f"#tab-{name}")


def axe() -> Path | None:
    """Return axe-core's script, if this machine has one; `AXE_CORE` names it."""
    places = (
        Path(os.environ.get("AXE_CORE", "/nowhere")),
        Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js",
    )
    return next((path for path in places if path.is_file()), None)


class Visitor:
    """People at browsers, each with cookies of their own."""

    def __init__(self, box: Box, browser: Browser, folder: Path) -> None:
        self.box = box
        self.origin: str = box.document["web"]["origins"][0]
        self.patience = PATIENCE * box.machine.time_factor
        self.problems: list[str] = []
        """What pages complained about: exceptions, and breaches of the security policy."""
        self._browser, self._folder = browser, folder

    def somebody(self, **options: Any) -> BrowserContext:
        """Return a browser without cookies; options are Playwright's for a context."""
        given: dict[str, Any] = {"viewport": DESKTOP, "color_scheme": "light", **options}
        context = self._browser.new_context(ignore_https_errors=True, **given)
        context.set_default_timeout(self.patience * 1000)
        context.on("weberror", lambda error: self.problems.append(str(error.error)))
        context.on("console", lambda message: self._heard(message.text))
        return context

    @contextlib.contextmanager
    def trusting(self, key: str, folder: Path) -> Iterator[BrowserContext]:
        """Return a browser that trusts a certificate by the hash of its key, so that pages may do
        all that they may on a box in the world. `folder` is where it keeps what it keeps.
        """
        context = self._browser.browser_type.launch_persistent_context(
            folder,
            executable_path=program(),
            args=[*ARGUMENTS, str(running.rule), f"--ignore-certificate-errors-spki-list={key}"],
        )
        context.set_default_timeout(self.patience * 1000)
        try:
            yield context
        finally:
            context.close()

    @contextlib.contextmanager
    def drawing(self, folder: Path, size: dict[str, int], scale: float) -> Iterator[BrowserContext]:
        """Return a browser that draws as those of users do, with WebGL, on a screen of so many
        pixels for one of the page's: really, since what is emulated canvases do not hear of.
        """
        size_of_window = f"--window-size={size['width']},{size['height']}"
        arguments = [each for each in ARGUMENTS if each not in PLAIN]
        context = self._browser.browser_type.launch_persistent_context(
            folder,
            executable_path=program(),
            args=[
                *arguments, str(running.rule), size_of_window,
                f"--force-device-scale-factor={scale}",
            ],
            ignore_https_errors=True,
            no_viewport=True,
            has_touch=size == PHONE,
        )  # fmt: skip
        context.set_default_timeout(self.patience * 1000)
        context.on("weberror", lambda error: self.problems.append(str(error.error)))
        context.on("console", lambda message: self._heard(message.text))
        try:
            yield context
        finally:
            context.close()

    def sign_in(self, page: Page, user: str, password: str | None = None, path: str = "/") -> None:
        """Open an address and sign in on the page that comes instead."""
        page.goto(self.origin + path)
        page.get_by_label("User").fill(user)
        page.get_by_label("Password").fill(password or PASSWORDS[user])
        page.get_by_role("button", name="Sign in").click()

    def terminal(self, page: Page, name: str) -> Terminal:
        """Return the terminal in the tab of a session, once it shows something."""
        element = page.locator(f"#pane-{name} iframe").element_handle()
        frame = element.content_frame()
        assert frame is not None  # noqa: S101 - an iframe has one
        frame.wait_for_function("() => window.term?.element")
        terminal = Terminal(page, frame)
        terminal.wait("")
        return terminal

    def picture(self, page: Page, name: str) -> Path:
        """Put what a page shows into the evidence of the run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{name}.png"
        page.screenshot(path=path)
        return path

    def slow_down(self, page: Page, upload: int) -> None:
        """Let a page send so many bytes a second and no more."""
        link = page.context.new_cdp_session(page)
        limits = {"offline": False, "latency": 0, "downloadThroughput": -1}
        link.send("Network.emulateNetworkConditions", {**limits, "uploadThroughput": upload})

    def swipe(self, page: Page, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Move a finger over the screen of a phone, from one point of the page to another."""
        link = page.context.new_cdp_session(page)
        steps = [
            tuple(a + (b - a) * step / 10 for a, b in zip(start, end, strict=True))
            for step in range(11)
        ]
        for number, (x, y) in enumerate(steps):
            kind = "touchMove" if number else "touchStart"
            link.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
        link.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        link.detach()
        page.wait_for_timeout(200)

    def violations(self, page: Page) -> list[str]:
        """What axe-core finds wrong with a page for people who need WCAG 2.2 AA."""
        script = axe()
        if script is None:
            return []
        page.evaluate(script.read_text())
        found = page.evaluate(
            "axe.run(document, {iframes: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21a',"
            " 'wcag21aa', 'wcag22aa', 'best-practice']})"
        )
        return [f"{item['id']}: {item['nodes'][0]['html']}" for item in found["violations"]]

    def _heard(self, text: str) -> None:
        if "Content Security" in text or "Content-Security" in text:
            self.problems.append(text)


class Terminal:
    """The real terminal in a page."""

    def __init__(self, page: Page, frame: Frame) -> None:
        self.page, self.frame = page, frame

    @property
    def screen(self) -> str:
        """Text on the screen."""
        return str(self.frame.evaluate(_SCREEN))

    def wait(self, text: str) -> None:
        """Wait until the screen holds a text; with "" until it holds anything."""
        held = (
            f"text => {{ const screen = ({_SCREEN})(); return screen && screen.includes(text); }}"
        )
        self.frame.wait_for_function(held, arg=text)

    def type(self, text: str) -> None:
        """Type with the keyboard, a line end being Enter."""
        self.focus()
        self.page.keyboard.type(text)

    def focus(self) -> None:
        """Have the keyboard write into the terminal."""
        self.frame.locator("textarea.xterm-helper-textarea").focus()

    def point(self, text: str) -> tuple[float, float]:
        """Return where in the page the first character of a text on the screen is, in pixels."""
        lines = self.screen.split("\n")
        row = next(number for number, line in enumerate(lines) if text in line)
        element = self.frame.locator(".xterm-screen")
        box = element.bounding_box()
        assert box is not None  # noqa: S101 - it is on the screen
        rows, columns = self.frame.evaluate("[window.term.rows, window.term.cols]")
        column = lines[row].index(text)
        return (
            box["x"] + (column + 0.5) * box["width"] / columns,
            box["y"] + (row + 0.5) * box["height"] / rows,
        )

    def draw_anew(self) -> None:
        """Make the terminal sharp for a picture.

        A scale that is only emulated is missing from what the browser tells canvases of their size
        in pixels, which a change of the font makes the terminal calculate itself.
        """
        self.frame.evaluate(
            "() => { const size = window.term.options.fontSize;"
            " window.term.options.fontSize = size - 1; window.term.options.fontSize = size;"
            " window.dispatchEvent(new Event('resize')); }"
        )
        self.page.wait_for_timeout(800)

    def echoes(self, presses: int) -> list[float]:
        """Press a key several times; seconds from each to its character on the screen, sorted."""
        self.focus()
        self.frame.evaluate(
            "() => { window.echoes = []; let pressed = 0; const seen = () =>"
            " { if (pressed) window.echoes.push(performance.now() - pressed); pressed = 0; };"
            " window.term.textarea.addEventListener('keydown', () => { pressed ="
            " performance.now(); }, true); window.term.onWriteParsed(seen); }"
        )
        for count in range(presses):
            self.page.keyboard.press("x")
            self.frame.wait_for_function(f"() => window.echoes.length > {count}")
        found = self.frame.evaluate("window.echoes")
        return sorted(milliseconds / 1000 for milliseconds in found)


class Running:
    """The browser that the scenarios of one process use, one after the other.

    To start one takes seconds of processor time. What people in it know of each other, cookies and
    pages, belongs to their contexts, which end with the scenario.
    """

    def __init__(self) -> None:
        self.port = 0
        """Where the box was last reached; it finds the next one there without a new start."""
        self.rule = ""
        self._browser: Browser | None = None
        self._stack = contextlib.ExitStack()

    def at(self, rule: str) -> Browser:
        """Return a browser for which a rule says where the box is, started anew if need be."""
        from playwright.sync_api import sync_playwright

        if self._browser is None or self.rule != rule or not self._browser.is_connected():
            self.close()
            playwright = self._stack.enter_context(sync_playwright())
            self._browser = playwright.chromium.launch(
                executable_path=program(), args=[*ARGUMENTS, rule]
            )
            self.rule = rule
            self._stack.callback(self._browser.close)
        return self._browser

    def close(self) -> None:
        """End the browser, if there is one."""
        self._browser = None
        with contextlib.suppress(Exception):
            self._stack.close()


running = Running()


@contextlib.contextmanager
def visit(box: Box, folder: Path) -> Iterator[Visitor]:
    """Have a browser that finds the box by its own name; pictures go into `folder`."""
    origin = urlsplit(box.document["web"]["origins"][0])
    try:
        port = box.machine.forward_port(running.port, 443)
    except (HarnessError, OSError):  # the box before still stands there
        port = box.machine.forward_port(guest=443)
    running.port = port
    name = f"{origin.hostname}:{origin.port or 443}"
    rule = f"--host-resolver-rules=MAP {name} 127.0.0.1:{port}, MAP *.{name} 127.0.0.1:{port}"
    browser = running.at(rule)
    try:
        yield Visitor(box, browser, folder)
    except BaseException:
        running.close()  # whatever state it is in
        raise
    finally:
        for context in browser.contexts if browser.is_connected() else ():
            context.close()
