"""Everybody can use the pages: by keyboard, on a phone, with large text, with a screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import browser
from agent_box_harness.edge import PASSWORDS

if TYPE_CHECKING:
    from agent_box_harness.browser import Visitor

pytestmark = [pytest.mark.limit(240), browser.needed(), pytest.mark.renewed("module")]

SMALL = """[...document.querySelectorAll('button, a')].filter(item => item.checkVisibility())
  .map(item => [item.getAttribute('aria-label') ?? item.textContent, item.getBoundingClientRect()])
  .filter(([, box]) => box.height && box.top >= 0 && (box.height < 24 || box.width < 24))
  .map(([name]) => name)"""
"""What is too small to hit, by WCAG 2.2."""

PICTURES: dict[str, dict[str, Any]] = {
    "workspace": {},
    "phone": {"viewport": browser.PHONE, "device_scale_factor": 2, "has_touch": True,
              "is_mobile": True},
}  # fmt: skip

SHOP = r"""
mkdir -p ~/shop/tests && cd ~/shop
cat >cart.py <<'END'
def total(lines, rate=0.19):
    return round(sum(price * count for price, count in lines) * (1 + rate), 2)
END
cat >tests/test_cart.py <<'END'
import unittest
from cart import total

class Total(unittest.TestCase):
    def test_an_empty_cart_costs_nothing(self):
        self.assertEqual(total([]), 0)

    def test_tax_is_added_once(self):
        self.assertEqual(total([(10, 2)]), 23.8)

    def test_cents_are_rounded(self):
        self.assertEqual(total([(0.1, 3)]), 0.36)
END
cat >check <<'END'
#!/bin/sh
python3 -B -m unittest -v 2>&1 | sed -e 's/ok$/\x1b[32m&\x1b[0m/' -e 's/^OK$/\x1b[1;32m&\x1b[0m/'
END
chmod +x check
touch README.md tests/__init__.py
"""
SHOWN = r"""
PS1='\[\e[1;32m\]alice@box\[\e[0m\]:\[\e[1;34m\]\w\[\e[0m\]$ '; cd ~/shop; clear
"""
TYPED = ("ls --color", "grep --color -n 'total\\|rate' cart.py", "./check")
"""What the pictures show somebody do."""


def test_by_keyboard(visitor: Visitor) -> None:
    """The main path needs no mouse: sign in, make a session, work in it, leave it, close it."""
    here = visitor.somebody().new_page()
    here.goto(f"{visitor.origin}/alice/?arg=main")
    keys = here.keyboard
    # The address tells whose page it is, so that the password is all that is missing.
    assert here.get_by_label("User").input_value() == "alice"
    keys.type(PASSWORDS["alice"])
    keys.press("Enter")
    visitor.terminal(here, "main").wait("$")
    here.wait_for_function("() => document.activeElement.title === 'Terminal of main'")
    keys.press("Alt+Shift+KeyN")
    here.wait_for_function("() => document.activeElement.name === 'agent'")
    keys.type("shell")
    keys.press("Tab")
    keys.type("quick")
    keys.press("Enter")
    browser.tab(here, "quick").wait_for()
    terminal = visitor.terminal(here, "quick")
    here.wait_for_function("() => document.activeElement.title === 'Terminal of quick'")
    terminal.wait("$")
    keys.type("echo =$((3*3))=\n")
    terminal.wait("=9=")
    keys.press("Alt+Shift+KeyT")
    here.wait_for_function("() => document.activeElement.id === 'tab-quick'")
    keys.press("ArrowLeft")
    keys.press("Enter")
    here.wait_for_function("() => location.search === '?arg=main'")
    keys.press("Alt+Digit2")
    here.wait_for_function("() => location.search === '?arg=quick'")
    keys.press("Alt+Shift+KeyD")
    sides = [here.locator(f"#pane-{name} iframe") for name in ("quick.left", "main.right")]
    visitor.box.wait_for("both sessions", lambda: all(side.is_visible() for side in sides))
    visitor.picture(here, "side-by-side")
    keys.press("Alt+Shift+KeyD")
    here.locator("#pane-main").wait_for(state="hidden")
    keys.press("Alt+Shift+KeyX")
    here.get_by_role("heading", name="Remove quick?").wait_for()
    for _ in range(4):
        if here.evaluate("document.activeElement.textContent") == "Remove":
            break
        keys.press("Tab")
    keys.press("Enter")
    browser.tab(here, "quick").wait_for(state="detached")


def test_a_phone(visitor: Visitor) -> None:
    """On a phone everything fits the width, targets are large enough, a row of keys gives the
    terminal what the screen's keyboard lacks, and a finger moves its history.
    """
    here = visitor.somebody(viewport=browser.PHONE, has_touch=True, is_mobile=True).new_page()
    visitor.sign_in(here, "alice")
    terminal = visitor.terminal(here, "main")
    terminal.wait("$")
    terminal.type("sleep 600")
    here.keyboard.press("Enter")
    here.get_by_role("button", name="Control C", exact=True).tap()
    terminal.wait("^C")
    terminal.type("echo =$((8*8))=")
    here.keyboard.press("Enter")
    terminal.wait("=64=")
    here.get_by_role("button", name="Up", exact=True).tap()
    here.keyboard.press("Enter")
    terminal.wait("=64=\n")
    terminal.type("clear; seq 1000 1199; echo =$((7*7))")
    here.keyboard.press("Enter")
    terminal.wait("=49")
    assert "1100" not in terminal.screen
    for _ in range(12):
        visitor.swipe(here, (200, 250), (200, 650))
        if "1100" in terminal.screen:
            break
    assert "1100" in terminal.screen
    assert "=49" not in terminal.screen
    visitor.swipe(here, (200, 650), (200, 250))
    terminal.type("q")
    for path in PAGES:
        here.goto(f"{visitor.origin}/alice/{path}")
        here.wait_for_timeout(300)
        assert here.evaluate("document.documentElement.scrollWidth") <= browser.PHONE["width"], path
        assert here.evaluate(SMALL) == [], path
        visitor.picture(here, f"phone-{path.strip('/') or 'workspace'}")


WIDER = """() => [...document.querySelectorAll('body *')].filter((item) => item.checkVisibility()
  && !item.closest('.scroll, .tabs, pre, iframe')
  && item.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map((item) => item.outerHTML.slice(0, 120))"""
"""What sticks out of the page to the right, but for what scrolls by itself."""

SQUEEZED = """() => [...document.querySelectorAll('body *')].filter((item) => item.checkVisibility()
  && !item.closest('pre, iframe, .hidden, thead') && item.children.length === 0
  && item.textContent.trim().length > 6).filter((item) => {
    const box = item.getBoundingClientRect(), size = parseFloat(getComputedStyle(item).fontSize);
    return box.width < 3 * size && box.height > 3 * size;
  }).map((item) => item.outerHTML.slice(0, 120))"""
"""What is broken into columns of single letters."""

PAGES = ("", "settings/", "downloads/")
ZOOMS: dict[str, dict[str, Any]] = {
    "letters twice as large": {"letters": 2.0},
    "a page at 200 percent": {"viewport": {"width": 720, "height": 450}},
    "a page at 400 percent": {"viewport": {"width": 360, "height": 225}},
    "letters twice as large on a phone": {"letters": 2.0, "viewport": browser.PHONE},
}


def fill(visitor: Visitor) -> None:
    """Have something of every kind on the pages, a session that needs somebody among it."""
    box = visitor.box
    box.as_user(
        "alice",
        "mkdir -p ~/downloads/older && seq 9999 >~/downloads/a-rather-long-name-of-a-report.csv &&"
        " echo hello >~/uploads/notes.md && agent-box-session env set TOKEN_OF_ALICE",
        stdin="value",
    ).check("files")
    box.use_stub("claude")
    box.stub_on_start("alice", "print Not logged in")
    if "review" not in {view["name"] for view in box.sessions("alice")}:
        box.ctl("alice", "add review --agent claude").check("add review")
    box.wait_session("alice", "review", "waiting")


@pytest.mark.skipif(browser.axe() is None, reason="axe-core is not installed (AXE_CORE names it)")
@pytest.mark.parametrize("shape", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(visitor: Visitor, scheme: str, shape: str) -> None:
    """axe-core finds nothing on any page and dialog, in light and dark, large and on a phone."""
    fill(visitor)
    phone = {"viewport": browser.PHONE, "has_touch": True, "is_mobile": True}
    here = visitor.somebody(
        color_scheme=scheme, bypass_csp=True, **(phone if shape == "phone" else {})
    ).new_page()
    found: dict[str, list[str]] = {}

    def look(place: str) -> None:
        found[place] = visitor.violations(here)
        visitor.picture(here, f"{place}-{scheme}-{shape}")

    here.goto(visitor.origin)
    look("login")
    visitor.sign_in(here, "alice", "wrong")
    here.get_by_role("alert").wait_for()
    look("wrong password")
    visitor.sign_in(here, "alice", path="/alice/?arg=main")
    visitor.terminal(here, "main")
    look("workspace")
    here.locator("#pane-main").get_by_role("button", name="Log", exact=True).click()
    here.get_by_label("Log of main").get_by_text("$").wait_for()
    look("log")
    here.keyboard.press("Escape")
    if shape == "desktop":
        here.get_by_role("button", name="Two sessions side by side").click()
        visitor.terminal(here, "review")
        look("side by side")
    here.get_by_role("button", name="New session").first.click()
    here.get_by_role("combobox", name="Working directory").click()
    look("new session")
    here.goto(f"{visitor.origin}/alice/?arg=nobody")
    here.get_by_text("There is no session called").wait_for()
    look("no session")
    here.goto(f"{visitor.origin}/alice/settings/")
    here.get_by_role("rowheader", name="TOKEN_OF_ALICE").wait_for()
    here.get_by_role("rowheader", name="~/uploads/notes.md").wait_for()
    here.get_by_role("rowheader", name="caddy.service").wait_for()
    look("settings")
    here.get_by_role("button", name="Add secret").click()
    look("add secret")
    here.keyboard.press("Escape")
    here.get_by_role("button", name="Change password").click()
    look("change password")
    for path in ("downloads/", "downloads/nothing"):
        here.goto(f"{visitor.origin}/alice/{path}")
        look(path.replace("/", " ").strip())
    assert {place: wrong for place, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("zoom", ZOOMS)
def test_zoom(visitor: Visitor, zoom: str) -> None:
    """With letters twice as large, or the whole page enlarged, nothing sticks out or is cut off."""
    fill(visitor)
    options = {**ZOOMS[zoom]}
    letters = options.pop("letters", None)
    here = visitor.somebody(bypass_csp=True, **options).new_page()

    def look(place: str) -> None:
        if letters is not None:
            here.add_style_tag(content=f"html {{ font-size: {letters * 100:.0f}% }}")
            size = here.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
            assert size >= 14 * letters
        visitor.picture(here, f"{place}-{zoom.replace(' ', '-')}")
        assert here.evaluate(WIDER) == [], place
        assert here.evaluate(SQUEEZED) == [], place

    here.goto(visitor.origin)
    look("login")
    visitor.sign_in(here, "alice", path="/alice/?arg=main")
    visitor.terminal(here, "main").wait("$")
    look("workspace")
    here.get_by_role("button", name="New session").first.click()
    here.get_by_label("First task").wait_for()
    look("new session")
    here.get_by_role("button", name="Start session").scroll_into_view_if_needed()
    for path in PAGES[1:]:
        here.goto(f"{visitor.origin}/alice/{path}")
        here.get_by_text("a-rather-long-name").first.wait_for()
        look(path.strip("/"))


@pytest.mark.renewed
def test_a_picture(visitor: Visitor) -> None:
    """Pictures of sessions at work, large and on a phone."""
    box = visitor.box
    box.as_user("alice", SHOP).check()
    box.as_user("alice", "cat > ~/.shown", stdin=SHOWN).check()
    box.use_stub("claude")
    box.stub_on_start("alice", "print Not logged in")
    for name, agent, state in (
        ("shop", "shell", "running"),
        ("review", "claude", "waiting"),
        ("docs", "shell", "running"),
    ):
        box.ctl("alice", f"add {name} --agent {agent} --cwd ~/shop").check(name)
        box.wait_session("alice", name, state)
    box.ctl("alice", "stop docs").check()
    for name, options in PICTURES.items():
        context = visitor.somebody(**options)
        here = context.new_page()
        visitor.sign_in(here, "alice", path="/alice/?arg=shop")
        terminal = visitor.terminal(here, "shop")
        terminal.wait("$")
        here.wait_for_timeout(1000)  # for the size to settle
        terminal.type(" . ~/.shown\n")
        here.wait_for_timeout(1000)
        for line in TYPED:
            terminal.type(f"{line}\n")
            here.wait_for_timeout(400)  # what is typed ahead shows twice
        terminal.wait("OK")
        terminal.draw_anew()
        visitor.picture(here, name)
        context.close()
