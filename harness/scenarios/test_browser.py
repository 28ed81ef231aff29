"""A person at a browser gets through a whole day: signs in, works, is told, and is kept out."""

from __future__ import annotations

import hashlib
import itertools
import os
import statistics
import time
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import browser, expiry, outside
from agent_box_harness.edge import PASSWORDS
from agent_box_harness.sites import network, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from agent_box_harness.browser import Visitor
    from agent_box_harness.edge import Edge

pytestmark = [pytest.mark.limit(240), browser.needed(), pytest.mark.renewed("module")]

NEW_PASSWORD = "cobalt Heron/lantern-wüste-29"


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
    browser.tab(here, "main").wait_for()
    assert here.url.startswith(f"{visitor.origin}/alice/")

    there = context.new_page()
    there.goto(f"{visitor.origin}/alice/?arg=main")
    browser.tab(there, "main").wait_for()
    there.evaluate("window.same = true")
    add_shell(here, "tests")
    browser.tab(there, "tests").wait_for()
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
    browser.tab(there, names[-1]).wait_for(state="detached")
    assert names[-1] not in {view["name"] for view in box.sessions("alice")}
    assert there.evaluate("window.same"), "the other page was loaded anew"


def test_files_and_secrets(visitor: Visitor) -> None:
    """A file goes to the box and one comes from it, byte for byte; a secret reaches the sessions
    that start afterwards, or the one that it is for, and is never shown again.
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
    here.get_by_text("Still running with old values").wait_for()
    assert "two" not in here.locator("#secrets").inner_text()
    visitor.picture(here, "settings")
    here.get_by_role("button", name="Restart them").click()
    here.get_by_text("Still running with old values").wait_for(state="hidden")
    here.goto(f"{visitor.origin}/alice/?arg=main")
    terminal = visitor.terminal(here, "main")
    terminal.type('echo "=$TOKEN_OF_TEST=" | tr "\\n" "+"\n')
    terminal.wait("=one+two=")

    box.ctl("alice", "add other --agent shell").check("add other")
    here.goto(f"{visitor.origin}/alice/settings/")
    here.get_by_role("rowheader", name="other").wait_for()
    here.get_by_role("button", name="Add secret").click()
    here.get_by_label("Name", exact=True).fill("TOKEN_OF_TEST")
    here.get_by_role("combobox", name="For").select_option("other")
    here.get_by_label("Value (several lines are fine)").fill("its own")
    here.get_by_role("button", name="Store", exact=True).click()
    here.get_by_role("button", name="Remove TOKEN_OF_TEST of other").wait_for()
    # It stays with a session that gets another name, and goes with it.
    box.ctl("alice", "rename other renamed").check("rename")
    box.ctl("alice", "restart --all").check("restart")
    for session, value in (("main", "one+two"), ("renamed", "its own")):
        box.ctl("alice", f'send {session} \'echo "=$TOKEN_OF_TEST=" | tr "\\n" +\'').check("send")
        box.wait_for(value, lambda s=session, v=value: f"={v}=" in box.pane_text("alice", s))
    kept = "find /home/alice/.config/agent-box/session-env -type f"
    assert box.succeed(f"{kept} -name '*[0-9a-f]' -printf '%m %u\n'") == "600 alice\n"
    box.ctl("alice", "rm renamed").check("rm")
    assert box.succeed(kept) == ""


def test_a_large_file(visitor: Visitor, tmp_path: Path) -> None:
    """A large file goes on arriving after the network was gone, and after the page was closed half-
    way; it is complete to the byte, and the service never holds it in memory.
    """
    box = visitor.box
    large = tmp_path / "large ä.bin"
    large.write_bytes(os.urandom(1 << 20) * 48)
    context = visitor.somebody()
    here = context.new_page()
    visitor.sign_in(here, "alice", path="/alice/settings/")
    here.get_by_role("rowheader", name="main").wait_for()
    visitor.slow_down(here, 8 << 20)
    here.set_input_files("input[type=file]", large)
    here.wait_for_function("() => document.querySelector('progress')?.value > 5e6")
    box.succeed("systemctl stop caddy.service")
    here.get_by_text("waits for the connection").wait_for()
    visitor.picture(here, "waiting")
    box.succeed("systemctl start caddy.service")
    here.wait_for_function("() => document.querySelector('progress')?.value > 20e6")
    here.close()
    there = context.new_page()
    there.goto(f"{visitor.origin}/alice/settings/")
    there.get_by_role("rowheader", name="main").wait_for()
    begun = box.as_user("alice", "stat -c %s ~/uploads/.*.part-upload").check("half").out
    assert int(begun) > 5e6
    there.set_input_files("input[type=file]", large)
    there.get_by_role("rowheader", name="~/uploads/large ä.bin").wait_for(
        timeout=box.machine.scaled(60_000)
    )
    wanted = hashlib.sha256(large.read_bytes()).hexdigest()
    assert box.as_user("alice", "cat ~/uploads/large* | sha256sum").out.split()[0] == wanted
    pid = outside.main_pid(box, "agent-box-settings-alice.service")
    peak = next(x for x in box.read(f"/proc/{pid}/status").splitlines() if x.startswith("VmHWM"))
    assert int(peak.split()[1]) < 96 * 1024, peak
    box.as_user("alice", "rm ~/uploads/large*").check("rm")


def test_sites_card(visitor: Visitor) -> None:
    """A site is published, opened to everybody, closed again and removed on the settings page; what
    the box refuses is told there, with nothing typed lost.
    """
    box = visitor.box
    for user, port in (("alice", 3200), ("bob", 3300)):
        command = f"python3 -m http.server -d /usr/share -b 127.0.0.1 {port}"
        serve(box, user, f"site-{port}", command, port)

    def status() -> str:
        ask = "curl -sk -o /dev/null -w '%{http_code}' --resolve shop-alice.box.test:443:127.0.0.1"
        return str(box.run(f"{ask} https://shop-alice.box.test/").out.strip())

    here = visitor.somebody().new_page()
    visitor.sign_in(here, "alice", path="/alice/settings/")
    card = here.locator("#sites")
    card.get_by_text("Nothing is published.").wait_for()
    card.get_by_role("button", name="Publish a site").click()
    dialog = here.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("shop")
    if network(box, "alice") is None:
        dialog.get_by_label("Port", exact=True).fill("3300")
        dialog.get_by_role("button", name="Publish").click()
        dialog.get_by_text("another user's program").wait_for(timeout=box.machine.scaled(60_000))
    else:  # No port is another user's.
        dialog.get_by_label("What it shows").select_option("dir")
        dialog.get_by_role("textbox", name="Folder below ~/sites").fill("nothing")
        dialog.get_by_role("button", name="Publish").click()
        dialog.get_by_text("there is no folder").wait_for(timeout=box.machine.scaled(60_000))
        dialog.get_by_label("What it shows").select_option("port")
    dialog.get_by_label("Port", exact=True).fill("3200")
    dialog.get_by_role("button", name="Publish").click()
    card.get_by_role("link", name="shop").wait_for(timeout=box.machine.scaled(60_000))
    visitor.picture(here, "sites")
    assert status() == "401"
    card.get_by_role("button", name="Make public: shop").click()
    dialog.get_by_role("button", name="Open it").click()
    card.get_by_role("button", name="Make private: shop").wait_for(
        timeout=box.machine.scaled(60_000)
    )
    assert status() == "200"
    card.get_by_role("button", name="Make private: shop").click()
    card.get_by_role("button", name="Make public: shop").wait_for(
        timeout=box.machine.scaled(60_000)
    )
    assert status() == "401"
    card.get_by_role("button", name="Remove shop").click()
    dialog.get_by_role("button", name="Remove").click()
    card.get_by_text("Nothing is published.").wait_for(timeout=box.machine.scaled(60_000))


def test_the_end_of_a_login(visitor: Visitor, measured: Callable[[str, float], None]) -> None:
    """A change of password ends the other login: its page leads to the login page, its terminal
    closes; the page that made the change goes on. Signing out does the same to that one.
    """
    box = visitor.box
    here, there = visitor.somebody().new_page(), visitor.somebody().new_page()
    visitor.sign_in(here, "alice")
    browser.tab(here, "main").wait_for()
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


def test_an_expired_login(visitor: Visitor, edge: Edge) -> None:
    """A login that has expired leads to the login page and back to where one was; where something
    is typed, the page waits until one has signed in elsewhere, and nothing is lost.
    """
    second = visitor.box.machine.scaled(1.0)
    path = f"{visitor.origin}/alice/?arg=main"
    with expiry.limits(edge, idle=12 * second):
        idle = visitor.somebody().new_page()
        visitor.sign_in(idle, "alice", path="/alice/?arg=main")
        visitor.terminal(idle, "main")
        busy = visitor.somebody().new_page()
        visitor.sign_in(busy, "alice", path="/alice/?arg=main")
        visitor.terminal(busy, "main")
        busy.get_by_role("button", name="New session").first.click()
        busy.get_by_role("combobox", name="Agent").select_option("shell")
        busy.get_by_label("Name (optional)").fill("kept")
        busy.get_by_label("First task (optional)").fill("a long thought")
        # The page hears of it with the next word of the box.
        idle.get_by_role("heading", name="Sign in").wait_for(timeout=60_000 * second)
        busy.get_by_role("heading", name="Your login has ended").wait_for(timeout=60_000 * second)
        visitor.picture(busy, "expired")
    assert idle.get_by_text("Your login has ended").is_visible()
    idle.get_by_label("Password").fill(PASSWORDS["alice"])
    idle.get_by_role("button", name="Sign in").click()
    visitor.terminal(idle, "main")
    assert idle.url == path

    with busy.context.expect_page() as opened:
        busy.get_by_role("link", name="Sign in in a new tab").click()
    opened.value.get_by_label("Password").fill(PASSWORDS["alice"])
    opened.value.get_by_role("button", name="Sign in").click()
    browser.tab(opened.value, "main").wait_for()
    busy.get_by_role("heading", name="Your login has ended").wait_for(state="detached")
    assert busy.get_by_label("First task (optional)").input_value() == "a long thought"
    # The terminal has ended with the login and is back without a word.
    visitor.terminal(busy, "main").wait("$")
    busy.get_by_label("First task (optional)").fill("")  # a shell takes none
    busy.get_by_role("button", name="Start session").click()
    browser.tab(busy, "kept").wait_for()
    visitor.box.ctl("alice", "rm kept").check("rm kept")


@pytest.mark.renewed
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
        browser.tab(page, "s29").wait_for()
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
