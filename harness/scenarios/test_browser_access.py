"""Everybody can use the pages: by keyboard, on a phone, with large text, with a screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import browser
from agent_box_harness.edge import PASSWORDS

if TYPE_CHECKING:
    from agent_box_harness.browser import Visitor

pytestmark = [pytest.mark.limit(240), browser.needed()]

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


@pytest.mark.shared
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
    keys.press("Alt+Shift+KeyX")
    here.get_by_role("heading", name="Remove quick?").wait_for()
    for _ in range(4):
        if here.evaluate("document.activeElement.textContent") == "Remove":
            break
        keys.press("Tab")
    keys.press("Enter")
    browser.tab(here, "quick").wait_for(state="detached")


@pytest.mark.shared
def test_a_phone(visitor: Visitor) -> None:
    """On a phone everything fits the width, targets are large enough, and a row of keys gives the
    terminal what the screen's keyboard lacks.
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
    for path in ("", "settings/", "downloads/"):
        here.goto(f"{visitor.origin}/alice/{path}")
        here.wait_for_timeout(300)
        assert here.evaluate("document.documentElement.scrollWidth") <= browser.PHONE["width"], path
        assert here.evaluate(SMALL) == [], path
        visitor.picture(here, f"phone-{path.strip('/') or 'workspace'}")


@pytest.mark.shared
@pytest.mark.skipif(browser.axe() is None, reason="axe-core is not installed (AXE_CORE names it)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(visitor: Visitor, scheme: str) -> None:
    """axe-core finds nothing on the login page, the workspace, its dialog, settings, downloads."""
    here = visitor.somebody(color_scheme=scheme, bypass_csp=True).new_page()
    here.goto(visitor.origin)
    found = {"login": visitor.violations(here)}
    visitor.sign_in(here, "alice")
    visitor.terminal(here, "main")
    found["workspace"] = visitor.violations(here)
    here.get_by_role("button", name="New session").first.click()
    here.get_by_role("combobox", name="Working directory").click()
    found["new session"] = visitor.violations(here)
    for path in ("settings", "downloads"):
        here.goto(f"{visitor.origin}/alice/{path}/")
        here.wait_for_timeout(500)
        found[path] = visitor.violations(here)
        visitor.picture(here, f"{path}-{scheme}")
    assert {place: wrong for place, wrong in found.items() if wrong} == {}


@pytest.mark.shared
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
        terminal.wait("OK")
        terminal.draw_anew()
        visitor.picture(here, name)
        context.close()
