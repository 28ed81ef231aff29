"""A terminal in the browser is as good as one on the desk, and comes back when the line was cut."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import browser
from agent_box_harness.browser import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from agent_box_harness.browser import Visitor

pytestmark = [pytest.mark.limit(240), browser.needed(), pytest.mark.renewed("module")]

CLIPBOARD = ["clipboard-read", "clipboard-write"]

# A terminal takes 4096 bytes of a line.
PASTED = "".join(f"{number} ä€ 'q' \t{'x' * number}\n" for number in range(95))
"""More than 5 KB in many lines, with what shells and terminals might change."""

BRACKETED = r"""
import os, sys, termios, tty
old = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"\x1b[?2004h=ready=")
data = b""
while not data.endswith(b"\x1b[201~"): data += os.read(0, 65536)
termios.tcsetattr(0, termios.TCSANOW, old)
os.write(1, b"\x1b[?2004l=taken=\n")
open(os.path.expanduser("~/bracketed"), "wb").write(data)
"""
"""A program that asks for pastes to be marked as such."""

LOST = "The connection to the box is lost"
CUT = (
    "nft 'add table inet cut; add chain inet cut in { type filter hook input priority -200; };"
    " add rule inet cut in tcp dport 443 drop'"
)


def open_main(visitor: Visitor) -> tuple[Page, Terminal]:
    """Sign in as alice, with the session `main` in sight and an empty line in it."""
    here = visitor.somebody(permissions=CLIPBOARD).new_page()
    visitor.sign_in(here, "alice", path="/alice/?arg=main")
    terminal = visitor.terminal(here, "main")
    terminal.wait("$")
    terminal.type("clear\n")
    return here, terminal


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_pasting(visitor: Visitor) -> None:
    """A paste of 5 KB from the clipboard reaches the session's program exactly; marked as a paste
    where the program asked for that.
    """
    box = visitor.box
    here, terminal = open_main(visitor)
    assert len(PASTED) > 5000
    size = len(PASTED.encode())
    terminal.type(
        f"stty -echo; echo =$((2*2)); head -c {size} > ~/pasted; stty echo; echo =$((5*5))\n"
    )
    terminal.wait("=4")
    here.evaluate("text => navigator.clipboard.writeText(text)", PASTED)
    terminal.focus()
    here.keyboard.press("Control+Shift+KeyV")
    terminal.wait("=25")
    assert box.read("/home/alice/pasted") == PASTED

    box.as_user("alice", "cat >~/bracketed.py", stdin=BRACKETED).check()
    terminal.type("clear; python3 ~/bracketed.py\n")
    terminal.wait("=ready=")
    here.keyboard.press("Shift+Insert")
    terminal.wait("=taken=")
    # Terminals send what Enter sends for the end of a line.
    wanted = "\x1b[200~" + PASTED.replace("\n", "\r") + "\x1b[201~"
    assert box.machine.read_file("/home/alice/bracketed") == wanted.encode()


KEYS = r"""
import os, sys, termios, tty
old = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, os.fsencode(sys.argv[1]) + b"=ready=")
data = b""
while not data.endswith(b"q"): data += os.read(0, 100)
termios.tcsetattr(0, termios.TCSANOW, old)
os.write(1, b"\x1b[>4;0m=" + data.hex().encode() + b"=\n")
"""
"""A program that tells which bytes keys are."""


def test_new_line(visitor: Visitor) -> None:
    """Shift+Enter is no Enter: a program that asked for such keys gets it as such, any other the
    line feed that agents take for a new line. A phone has keys for it and for Shift+Tab.
    """
    visitor.box.as_user("alice", "cat >~/keys.py", stdin=KEYS).check()
    here, terminal = open_main(visitor)
    terminal.type("clear; python3 ~/keys.py $'\\e[>4;2m'\n")
    terminal.wait("=ready=")
    here.keyboard.press("Shift+Enter")
    terminal.type("q")
    told = visitor.box.wait_for
    told("the key as such", lambda: "=1b5b31333b327571=" in terminal.screen)
    terminal.type("clear; python3 ~/keys.py again\n")
    terminal.wait("again=ready=")
    here.keyboard.press("Shift+Enter")
    # Its row of keys is there for touch screens.
    here.evaluate("document.getElementById('keyrow').style.display = 'flex'")
    for name in ("New line", "Shift Tab"):
        here.get_by_role("button", name=name, exact=True).click()
    terminal.type("q")
    told("line feeds and Shift+Tab", lambda: "=0a0a1b5b5a71=" in terminal.screen)


def test_links(visitor: Visitor) -> None:
    """A link with a text of its own opens at a click and tells before where it leads, a long one
    over several lines, too.
    """
    here, terminal = open_main(visitor)
    target = f"{visitor.origin}/alice/downloads/?report"
    long = f"{visitor.origin}/alice/downloads/?{'0123456789' * 40}"
    link = "\x1b]8;;{}\x1b\\{}\x1b]8;;\x1b\\\n".format
    lines = link(target, "the report") + link(long, f"{long}-the-end")
    visitor.box.machine.write_file(f"{visitor.box.home('alice')}/links", lines)
    terminal.type("clear; cat ~/links\n")
    terminal.wait("the-end")
    for text, address in (("the report", target), ("the-end", long)):
        here.mouse.move(*terminal.point(text))
        here.locator("#pane-main").get_by_text(address).wait_for()
        with here.context.expect_page() as opened:
            here.mouse.click(*terminal.point(text))
        page = opened.value
        page.wait_for_load_state()
        assert page.url == address
        assert page.evaluate("window.opener") is None
        page.close()


def test_clipboard(visitor: Visitor) -> None:
    """What a program puts on the clipboard (OSC 52) and what is marked with the mouse arrive there;
    no program can read it.
    """
    box = visitor.box
    here, terminal = open_main(visitor)
    terminal.type(r"clear; printf '\e]52;c;%s\a' $(printf 'words ä' | base64)" + "\n")
    box.wait_for("a copy", lambda: clipboard(here) == "words ä")
    terminal.type("clear; echo gargoyle=$((3*3))\n")
    terminal.wait("gargoyle=9")
    x, y = terminal.point("gargoyle=9")
    here.mouse.move(x, y)
    here.mouse.down()
    here.mouse.move(x + 50, y)
    here.mouse.move(x + 80, y, steps=4)
    here.mouse.up()
    box.wait_for("the marked text", lambda: clipboard(here).startswith("gargoyle"))
    # tmux answers such a question itself; should it ask further, then in vain.
    asked = terminal.frame.evaluate(
        "() => { let asked = 0; const read = async () => { asked += 1; return ''; };"
        " navigator.clipboard.readText = read; return new Promise((done) =>"
        " window.term.write('\\x1b]52;c;?\\x07', () => setTimeout(() => done(asked), 300))); }"
    )
    assert asked == 0


def test_wheel(visitor: Visitor) -> None:
    """The mouse wheel scrolls the history of a session; typing leads back to the present."""
    here, terminal = open_main(visitor)
    terminal.type("clear; seq 1000 1199; echo =$((7*7))\n")
    terminal.wait("=49")
    assert "1100" not in terminal.screen
    here.mouse.move(*terminal.point("=49"))
    for _ in range(60):
        if "1100" in terminal.screen:
            break
        here.mouse.wheel(0, -120)
        here.wait_for_timeout(100)
    assert "1100" in terminal.screen
    assert "=49" not in terminal.screen
    for _ in range(80):
        if "=49" in terminal.screen:
            break
        here.mouse.wheel(0, 120)
        here.wait_for_timeout(100)
    terminal.type("echo =$((8*8))\n")
    terminal.wait("=64")


def test_lost_network(visitor: Visitor, measured: Callable[[str, float], None]) -> None:
    """When the network goes, the page says so; when it is back, the same page goes on and shows
    what has happened meanwhile. Likewise when packets just vanish.
    """
    box = visitor.box
    here, terminal = open_main(visitor)
    here.evaluate("window.same = true")
    notice = here.locator("#notice").get_by_text(LOST)
    here.context.set_offline(True)
    notice.wait_for()
    visitor.picture(here, "lost")
    box.ctl("alice", "send main 'echo =meanwhile-$((1+1))='").check("send")
    here.context.set_offline(False)
    began = time.monotonic()
    terminal.wait("=meanwhile-2=")
    notice.wait_for(state="detached")
    measured("back after the network was gone", time.monotonic() - began)
    terminal.type("echo =again-$((2+2))=\n")
    terminal.wait("=again-4=")

    began = time.monotonic()
    box.succeed(CUT)
    try:
        notice.wait_for(timeout=box.machine.scaled(60_000))
        measured("until silence is taken for a loss", time.monotonic() - began)
        box.ctl("alice", "send main 'echo =silent-$((3+3))='").check("send")
    finally:
        box.succeed("nft delete table inet cut")
    notice.wait_for(state="detached", timeout=box.machine.scaled(60_000))
    terminal.wait("=silent-6=")
    terminal.type("echo =and-again-$((4+4))=\n")
    terminal.wait("=and-again-8=")
    assert here.evaluate("window.same")


def test_restarted_service(visitor: Visitor) -> None:
    """When the terminal service dies, terminals say that they connect anew, do so, and repaint."""
    box = visitor.box
    here, terminal = open_main(visitor)
    terminal.type("echo =before-$((1+1))=\n")
    terminal.wait("=before-2=")
    terminal.frame.evaluate(
        "() => { window.same = true; window.said = []; new MutationObserver((changes) =>"
        " changes.forEach((change) => change.addedNodes.forEach((node) => window.said.push("
        "node.textContent)))).observe(document.body, {subtree: true, childList: true}); }"
    )
    box.succeed("systemctl kill --signal=KILL agent-box-terminal-alice.service")
    terminal.frame.wait_for_function("() => window.said.includes('Reconnected')")
    assert any("Reconnecting" in text for text in terminal.frame.evaluate("window.said"))
    terminal.wait("=before-2=")
    terminal.type("echo =after-$((2+2))=\n")
    terminal.wait("=after-4=")
    assert terminal.frame.evaluate("window.same")
    assert here.locator("#notice").inner_text() == ""


def test_no_terminal(visitor: Visitor) -> None:
    """Where there is no terminal the page says why and offers to start it, never another one."""
    box = visitor.box
    box.ctl("alice", "add two --agent shell").check("add two")
    box.ctl("alice", "stop two").check("stop two")
    here, _ = open_main(visitor)
    browser.tab(here, "two").click()
    pane = here.locator("#pane-two")
    pane.get_by_role("heading", name="Stopped").wait_for()
    visitor.picture(here, "stopped")
    pane.get_by_role("button", name="Start", exact=True).click()
    visitor.terminal(here, "two").wait("$")

    box.ctl("alice", "stop two").check("stop two")
    there = here.context.new_page()
    there.goto(f"{visitor.origin}/alice/t/two/")
    terminal = Terminal(there, there.main_frame)
    terminal.wait("two is stopped.")
    there.keyboard.press("Enter")
    terminal.wait("[two]")
    assert box.session("alice", "two")["state"] == "running"
    there.close()

    here.goto(f"{visitor.origin}/alice/?arg=three")
    here.get_by_text("There is no session called “three”").wait_for()
    here.get_by_role("button", name="Make three").click()
    here.get_by_role("combobox", name="Agent").select_option("shell")
    here.get_by_role("button", name="Start session").click()
    visitor.terminal(here, "three").wait("$")
    for name in ("two", "three"):
        box.ctl("alice", f"rm {name}").check(f"rm {name}")
