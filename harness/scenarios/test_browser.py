"""A person at a browser gets through a whole day: signs in, works, is told, and is kept out."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import browser, outside
from agent_box_harness.edge import PASSWORDS, Edge
from agent_box_harness.plugin import run_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from agent_box_harness.box import Box
    from agent_box_harness.browser import Visitor

pytestmark = [
    pytest.mark.limit(240),
    pytest.mark.skipif(browser.missing() is not None, reason=browser.missing() or ""),
]

NEW_PASSWORD = "cobalt Heron/lantern-wüste-29"


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


@pytest.fixture
def visitor(box: Box, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    for unit in ("caddy", "agent-box-gate", *(f"agent-box-terminal-{user}" for user in box.users)):
        box.wait_for_unit(f"{unit}.service")
    edge = Edge(box)
    for user in box.users:
        edge.set_password(user)
        box.wait_session(user, "main", ("running", "waiting"))
    folder = request.config.stash[run_key].folder / request.node.name
    with browser.visit(box, folder) as visitor:
        yield visitor
        assert visitor.problems == []


def tab(page: Page, name: str) -> Any:
    return page.locator(f"#tab-{name}")


def add_shell(page: Page, name: str) -> None:
    page.get_by_role("button", name="New session").first.click()
    page.get_by_role("combobox", name="Agent").select_option("shell")
    page.get_by_label("Name (optional)").fill(name)
    page.get_by_role("button", name="Start session").click()


def rename(here: Page, others: list[Page], old: str, new: str) -> list[float]:
    """Rename a session from one page; seconds from the request until each other page shows it."""
    for page in others:
        page.evaluate(
            "name => { window.seen = new Promise(done => { const look = () => {"
            " if (document.getElementById(`tab-${name}`)) done(Date.now()); };"
            " new MutationObserver(look).observe(document.getElementById('tabs'),"
            " {subtree: true, childList: true, attributes: true}); look(); }); }",
            new,
        )
    began = here.evaluate(
        "async ([old, name]) => { const began = Date.now();"
        " const answer = await fetch(`/alice/api/sessions/${old}/rename`, {method: 'POST',"
        " headers: {'Content-Type': 'application/json'}, body: JSON.stringify({newName: name})});"
        " if (!answer.ok) throw new Error(await answer.text()); return began; }",
        [old, new],
    )
    return [float(page.evaluate("window.seen") - began) / 1000 for page in others]


@pytest.mark.shared
def test_a_journey(visitor: Visitor, measured: Callable[[str, float], None]) -> None:
    """Sign in, add a session, type a command and see its answer, see another page follow without a
    reload, close in two steps; a wrong password is told and the name stays.
    """
    box = visitor.box
    context = visitor.somebody()
    here = context.new_page()
    visitor.sign_in(here, "alice", "not the password")
    here.get_by_role("alert").wait_for()
    assert here.get_by_label("User").input_value() == "alice"
    visitor.picture(here, "login")
    visitor.sign_in(here, "alice")
    tab(here, "main").wait_for()
    assert here.url.startswith(f"{visitor.origin}/alice/")

    there = context.new_page()
    there.goto(f"{visitor.origin}/alice/?arg=main")
    tab(there, "main").wait_for()
    there.evaluate("window.same = true")
    add_shell(here, "tests")
    tab(there, "tests").wait_for()
    terminal = visitor.terminal(here, "tests")
    here.wait_for_function("() => document.activeElement.title === 'Terminal of tests'")
    here.keyboard.type("echo =$((6*7))=\n")
    terminal.wait("=42=")
    assert "=42=" in box.pane_text("alice", "tests")
    visitor.picture(here, "answer")

    echoes = terminal.echoes(30)
    measured("keystroke echo, median", statistics.median(echoes))
    measured("keystroke echo, 95 of 100", echoes[int(len(echoes) * 0.95)])
    assert statistics.median(echoes) < box.machine.scaled(0.2)
    here.keyboard.press("Control+u")

    names = [f"tests{number or ''}" for number in range(8)]
    delays = [rename(here, [there], old, new)[0] for old, new in itertools.pairwise(names)]
    measured("change seen by another page, median", statistics.median(delays))
    assert statistics.median(delays) < box.machine.scaled(0.5)
    here.keyboard.type("echo =still-$((1+1))=\n")
    visitor.terminal(here, names[-1]).wait("=still-2=")

    here.locator(f"#pane-{names[-1]}").get_by_role("button", name="Stop or remove").click()
    here.get_by_role("heading", name=f"Remove {names[-1]}?").wait_for()
    assert names[-1] in {view["name"] for view in box.sessions("alice")}
    here.get_by_role("button", name="Remove", exact=True).click()
    tab(there, names[-1]).wait_for(state="detached")
    assert names[-1] not in {view["name"] for view in box.sessions("alice")}
    assert there.evaluate("window.same"), "the other page was loaded anew"


@pytest.mark.shared
def test_pasting(visitor: Visitor) -> None:
    """A paste of 5 KB with wide characters reaches the session's program exactly, as one paste."""
    here = visitor.somebody().new_page()
    visitor.sign_in(here, "alice")
    terminal = visitor.terminal(here, "main")
    # A terminal takes 4096 bytes of a line.
    lines = [f"{number} ä€ 'q' {'x' * number}" for number in range(95)]
    text = "".join(f"{line}\n" for line in lines)
    assert len(text) > 5000
    size = len(text.encode())
    terminal.type(
        f"stty -echo; echo =$((2*2)); head -c {size} > ~/pasted; stty echo; echo =$((5*5))\n"
    )
    terminal.wait("=4")
    terminal.paste(text)
    terminal.wait("=25")
    assert visitor.box.read("/home/alice/pasted") == text


@pytest.mark.shared
def test_files_and_secrets(visitor: Visitor) -> None:
    """A file goes to the box and one comes from it, byte for byte; a secret reaches the sessions
    that start afterwards and is never shown again.
    """
    box = visitor.box
    content = bytes(range(256)) * 9000
    box.as_user("alice", "mkdir -p ~/downloads; seq 99999 > ~/downloads/numbers.txt").check()
    here = visitor.somebody(accept_downloads=True).new_page()
    visitor.sign_in(here, "alice")
    here.get_by_role("link", name="Settings").click()
    here.get_by_role("rowheader", name="main").wait_for()
    here.set_input_files(
        "input[type=file]",
        {"name": "plan ä.bin", "mimeType": "application/octet-stream", "buffer": content},
    )
    here.get_by_role("rowheader", name="~/uploads/plan ä.bin").wait_for()
    assert box.machine.read_file("/home/alice/uploads/plan ä.bin") == content
    with here.expect_download() as waiting:
        here.get_by_role("link", name="~/downloads/numbers.txt").click()
    assert waiting.value.suggested_filename == "numbers.txt"
    assert waiting.value.path().read_bytes() == b"".join(b"%d\n" % n for n in range(1, 100000))

    here.get_by_role("button", name="Add secret").click()
    here.get_by_label("Name", exact=True).fill("TOKEN_OF_TEST")
    here.get_by_label("Value (several lines are fine)").fill("one\ntwo")
    here.get_by_role("button", name="Store", exact=True).click()
    here.get_by_role("rowheader", name="TOKEN_OF_TEST").wait_for()
    here.get_by_text("Still running with the values of before").wait_for()
    assert "one" not in here.locator("#secrets").inner_text()
    visitor.picture(here, "settings")
    here.get_by_role("button", name="Restart them").click()
    here.get_by_text("Still running with the values of before").wait_for(state="hidden")
    here.goto(f"{visitor.origin}/alice/?arg=main")
    terminal = visitor.terminal(here, "main")
    terminal.type('echo "=$TOKEN_OF_TEST=" | tr "\\n" "+"\n')
    terminal.wait("=one+two=")


@pytest.mark.shared
def test_the_end_of_a_login(visitor: Visitor, measured: Callable[[str, float], None]) -> None:
    """A change of password ends the other login: its page leads to the login page, its terminal
    closes; the page that made the change goes on. Signing out does the same to that one.
    """
    box = visitor.box
    here, there = visitor.somebody().new_page(), visitor.somebody().new_page()
    visitor.sign_in(here, "alice")
    tab(here, "main").wait_for()
    visitor.sign_in(there, "alice", path="/alice/?arg=main")
    visitor.terminal(there, "main").wait("$")
    here.get_by_role("link", name="Settings").click()
    here.get_by_role("button", name="Change password").click()
    for name, value in (("current", PASSWORDS["alice"]), ("new", NEW_PASSWORD)):
        here.locator(f"[name={name}]").fill(value)
    here.locator("[name=again]").fill(NEW_PASSWORD)
    began = time.monotonic()
    here.locator("dialog").get_by_role("button", name="Change password").click()
    here.get_by_text("The password was changed.").wait_for()
    there.get_by_role("heading", name="Sign in").wait_for()
    measured("other page back at the login", time.monotonic() - began)
    box.wait_for(
        "the terminal to close", lambda: outside.processes(box, "alice", "agent_box/terminal") == []
    )
    there.get_by_label("User").fill("alice")
    there.get_by_label("Password").fill(NEW_PASSWORD)
    there.get_by_role("button", name="Sign in").click()
    visitor.terminal(there, "main").wait("$")
    assert there.url == f"{visitor.origin}/alice/?arg=main"

    here.reload()
    here.get_by_role("button", name="End the login of").click()
    there.get_by_role("heading", name="Sign in").wait_for()
    here.get_by_role("button", name="Sign out").click()
    here.get_by_role("heading", name="Sign in").wait_for()
    here.goto(f"{visitor.origin}/alice/")
    here.get_by_role("heading", name="Sign in").wait_for()


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
    tab(here, "quick").wait_for()
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
    tab(here, "quick").wait_for(state="detached")


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


def test_many_sessions_in_many_pages(
    visitor: Visitor, measured: Callable[[str, float], None]
) -> None:
    """30 sessions in five open pages: each page follows each change, and none is loaded anew."""
    box = visitor.box
    adding = "for n in $(seq 29); do agent-box-session add s$n --agent shell || exit; done"
    box.as_user("alice", adding, timeout=90).check(adding)
    context = visitor.somebody()
    pages = [context.new_page() for _ in range(5)]
    visitor.sign_in(pages[0], "alice", path="/alice/?arg=main")
    for page in pages[1:]:
        page.goto(f"{visitor.origin}/alice/?arg=main")
    for page in pages:
        tab(page, "s29").wait_for()
        page.evaluate("window.same = true")
    names = ["s5", *(f"moved{number}" for number in range(7))]
    delays = [
        delay
        for old, new in itertools.pairwise(names)
        for delay in rename(pages[0], pages, old, new)
    ]
    measured("change seen by five pages of 30 sessions, median", statistics.median(delays))
    assert statistics.median(delays) < box.machine.scaled(0.5)
    assert all(page.evaluate("window.same") for page in pages)
    visitor.picture(pages[0], "many")


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
