"""Who has the box open in the browser hears of what happens elsewhere, and of who waits."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import browser

if TYPE_CHECKING:
    from agent_box_harness.browser import Visitor

pytestmark = [pytest.mark.limit(180), browser.needed(), pytest.mark.renewed("module")]

SPY = """window.shown = []; window.Notification = class {
  static permission = 'default';
  static async requestPermission() { return Notification.permission = 'granted'; }
  constructor(title, options) { window.shown.push({title, ...options}); window.last = this; }
  close() {}
};"""
"""Stands in for the desktop, which a browser without a screen lacks."""


def test_who_waits(visitor: Visitor) -> None:
    """A session that needs somebody is marked in its tab by shape, word and colour, counted in the
    title, and told as a notification to whoever asked for that; a click on it leads there.
    """
    box = visitor.box
    box.use_stub("claude")
    here = visitor.somebody().new_page()
    here.add_init_script(SPY)
    visitor.sign_in(here, "alice", path="/alice/?arg=main")
    browser.tab(here, "main").wait_for()
    box.stub_on_start("alice", "print Not logged in")
    box.ctl("alice", "add quiet --agent claude").check("add quiet")
    browser.tab(here, "quiet").get_by_text("claude · waiting").wait_for()
    assert here.evaluate("window.shown") == []
    bell = here.get_by_role("button", name="Notify me when a session needs me")
    bell.click()
    bell.and_(here.locator("[aria-pressed=true]")).wait_for()

    box.ctl("alice", "add review --agent claude").check("add review")
    tab = browser.tab(here, "review")
    tab.get_by_text("claude · waiting").wait_for()
    assert tab.locator("svg.waiting").count() == 1
    assert "needy" in str(tab.get_attribute("class")).split()
    here.wait_for_function("() => document.title.startsWith('(2) ')")
    shown = here.evaluate("window.shown")
    assert [each["title"] for each in shown] == ["review: waiting"], shown
    assert "sign" in shown[0]["body"].lower()
    visitor.picture(here, "waiting")
    here.evaluate("window.last.onclick()")
    here.wait_for_function("() => location.search === '?arg=review'")
    bell.click()
    bell.and_(here.locator("[aria-pressed=false]")).wait_for()
    for name in ("quiet", "review"):
        box.ctl("alice", f"rm {name}").check(f"rm {name}")
    box.stub_on_start("alice")


def test_who_is_done(visitor: Visitor) -> None:
    """An agent that has ended longer work while nobody looked is told from one that works and from
    one that is idle, until somebody looks.
    """
    box = visitor.box
    box.use_stub("claude")
    box.stub_on_start("alice")
    here = visitor.somebody().new_page()
    visitor.sign_in(here, "alice", path="/alice/?arg=main")
    box.ctl("alice", "add worker --agent claude").check("add worker")
    tab = browser.tab(here, "worker")
    tab.get_by_text("claude · idle").wait_for()
    work = "!run for n in $(seq 30); do echo step $n; sleep 0.5; done"
    box.ctl("alice", f"send worker {shlex.quote(work)}").check("send")
    tab.get_by_text("claude · running").wait_for()
    done = tab.get_by_text("claude · done")
    box.wait_for("the end of the work to be told", done.is_visible, timeout=60)
    assert tab.locator("svg.done").count() == 1
    visitor.picture(here, "done")
    tab.click()
    tab.get_by_text("claude · idle").wait_for()
    # What was said is there to read, without the terminal.
    box.ctl("alice", "send worker 'mend the basket'").check("send")
    box.wait_for("the prompt", lambda: "basket" in str(box.stub_prompts("alice")))
    here.locator("#pane-worker").get_by_role("button", name="Log", exact=True).click()
    here.get_by_role("button", name="Read the conversation").click()
    region = here.get_by_role("region", name="Conversation of worker")
    box.wait_for("the conversation", region.get_by_text("mend the basket").is_visible)
    visitor.picture(here, "conversation")
    box.ctl("alice", "rm worker").check("rm worker")


def test_what_others_do(visitor: Visitor) -> None:
    """What the command line, an agent in its session, or a hand in the file of sessions does shows
    in an open page at once, without a reload; so does a file that an agent puts into ~/downloads.
    """
    box = visitor.box
    here = visitor.somebody().new_page()
    visitor.sign_in(here, "alice", path="/alice/?arg=main")
    settings = here.context.new_page()
    settings.goto(f"{visitor.origin}/alice/settings/")
    settings.get_by_role("rowheader", name="main").wait_for()
    for page in (here, settings):
        page.evaluate("window.same = true")
    box.in_session("alice", "agent-box-session add sibling --agent shell").check("add")
    browser.tab(here, "sibling").wait_for()
    settings.get_by_role("rowheader", name="sibling").wait_for()
    by_hand = (
        'cd ~/.config/agent-box && jq \'.sessions.byhand = {"agent": "shell"}\' sessions.json'
        " >.new && cat .new >sessions.json && rm .new"
    )
    box.in_session("alice", by_hand).check("edit")
    browser.tab(here, "byhand").wait_for()
    box.ctl("alice", "rename byhand byname").check("rename")
    browser.tab(here, "byname").wait_for()
    browser.tab(here, "byhand").wait_for(state="detached")
    for name in ("sibling", "byname"):
        box.ctl("alice", f"rm {name}").check(f"rm {name}")
        browser.tab(here, name).wait_for(state="detached")
        settings.get_by_role("rowheader", name=name).wait_for(state="detached")
    box.in_session("alice", "echo done >~/downloads/result.txt").check("write")
    settings.get_by_role("rowheader", name="~/downloads/result.txt").wait_for()
    for page in (here, settings):
        assert page.evaluate("window.same")
