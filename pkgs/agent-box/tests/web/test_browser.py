"""The pages in a real browser: the whole journey, by mouse, by keyboard, on a phone.

Needs Debian's chromium and playwright. axe-core is used where AXE_CORE names its axe.min.js or
harness/node_modules holds it.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import time
from pathlib import Path

import pytest

from agent_box import errors
from agent_box.subscriptions import actions
from agent_box.subscriptions.place import DISPATCH, filter_path, key_of, state_dir
from agent_box.update import request, status
from agent_box.web import assets

AXE = next(
    (
        path
        for path in (
            Path(os.environ.get("AXE_CORE", "/nowhere")),
            Path(__file__).parents[4] / "harness/node_modules/axe-core/axe.min.js",
        )
        if path.is_file()
    ),
    None,
)


@pytest.fixture
def page(browser, stand):
    stand.fill()
    opened = []

    def go(path: str = "", **options):
        context = browser.new_context(viewport={"width": 1440, "height": 900}, **options)
        made = context.new_page()
        made.set_default_timeout(10_000)
        problems = []
        made.on("pageerror", lambda error: problems.append(str(error)))
        made.on(
            "console",
            lambda message: "Content Security" in message.text and problems.append(message.text),
        )
        opened.append((context, problems))
        made.goto(f"{stand.base}/{path}")
        return made

    yield go
    for context, problems in opened:
        context.close()
        assert problems == []


def tab(page, name):
    return page.locator(f"#tab-{name}")


def violations(page):
    if AXE is None:
        return []
    page.evaluate(AXE.read_text())
    found = page.evaluate(
        "axe.run(document, {iframes: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa',"
        " 'best-practice']})"
    )
    return [(item["id"], item["nodes"][0]["html"]) for item in found["violations"]]


def test_a_journey_by_mouse(page, stand):
    here = page()
    tab(here, "main").wait_for()
    assert here.locator("[role=tab]").count() == 5
    assert tab(here, "shop-tests").inner_text().split("\n") == ["shop-tests", "claude · waiting"]
    assert here.title().startswith("(1) ")
    there = page("?arg=docs")
    tab(there, "docs").wait_for()
    # A failure keeps what was typed and says why.
    here.get_by_role("button", name="New session").click()
    here.get_by_label("First task (optional)").fill("a long thought")
    here.get_by_label("Name (optional)").fill("main")
    here.get_by_role("button", name="Start session").click()
    here.get_by_text("exists already").wait_for()
    assert here.get_by_label("First task (optional)").input_value() == "a long thought"
    here.get_by_label("Name (optional)").fill("fresh")
    field = here.get_by_role("combobox", name="Working directory")
    field.click()
    here.get_by_role("option", name="work/").click()
    here.get_by_role("option", name="shop/").wait_for()
    field.press("ArrowDown")
    field.press("Enter")
    assert field.input_value() == "~/work/shop/"
    here.get_by_role("button", name="Start session").click()
    tab(there, "fresh").wait_for()
    # The other page may hear of it first.
    here.wait_for_function("() => location.search === '?arg=fresh'")
    assert tab(here, "fresh").get_attribute("aria-selected") == "true"
    assert stand.supervisor.args("add")["prompt"] == "a long thought"
    # Typing reaches the terminal, which stays as it is through switching.
    frame = here.frame_locator("#pane-fresh iframe")
    frame.locator("textarea").press("x")
    tab(here, "main").click()
    tab(here, "fresh").click()
    assert "x" in frame.locator("#screen").inner_text().split()
    # Renaming keeps the terminal as well.
    here.locator("#pane-fresh").get_by_role("button", name="Rename or move").click()
    here.get_by_label("Name", exact=True).fill("renamed")
    here.get_by_role("button", name="Rename", exact=True).click()
    tab(there, "renamed").wait_for()
    tab(here, "renamed").wait_for()
    assert "x" in here.frame_locator("#pane-renamed iframe").locator("#screen").inner_text().split()
    # Another one like it: same agent, same place.
    tab(here, "docs").click()
    here.locator("#pane-docs").get_by_role("button", name="Rename or move").click()
    here.get_by_role("button", name="New one like it").click()
    here.get_by_role("heading", name="New session").wait_for()
    assert field.input_value() == "~/work/docs"
    assert here.get_by_role("combobox", name="Agent").input_value() == "codex"
    here.keyboard.press("Escape")
    here.get_by_role("heading", name="New session").wait_for(state="detached")
    tab(here, "renamed").click()
    # Closing takes two steps, on both pages.
    here.locator("#pane-renamed").get_by_role("button", name="Stop or remove").click()
    assert "renamed" in stand.supervisor.sessions
    here.get_by_role("button", name="Remove", exact=True).click()
    tab(there, "renamed").wait_for(state="detached")


def test_states_that_have_no_terminal(page, stand):
    here = page("?arg=import")
    pane = here.locator("#pane-import")
    pane.get_by_text("The working directory is gone").wait_for()
    pane.get_by_label("Last lines of import").wait_for()
    assert pane.locator("iframe").count() == 0
    pane.get_by_role("button", name="Start", exact=True).click()
    pane.locator("iframe").wait_for()
    stand.supervisor.put("import", "crashed", reason="killed by SIGKILL", nextRetry=time.time() + 9)
    pane.get_by_text("The next try is in").wait_for()
    nobody = page("?arg=nobody")
    nobody.get_by_text("no session called “nobody”").wait_for()
    assert nobody.locator("[role=tab][aria-selected=true]").count() == 0


def test_who_is_done(page, stand):
    stand.supervisor.put("docs", agent="codex", idleSince=time.time())
    here = page("?arg=main")
    tab(here, "docs").get_by_text("codex · idle").wait_for()
    here.evaluate("() => { const now = Date.now; window.skew = 0;"
                  " Date.now = () => now() + window.skew; }")  # fmt: skip
    # What was short is no news.
    stand.supervisor.put("docs", agent="codex")
    tab(here, "docs").get_by_text("codex · running").wait_for()
    stand.supervisor.put("docs", agent="codex", idleSince=time.time())
    tab(here, "docs").get_by_text("codex · idle").wait_for()
    stand.supervisor.put("docs", agent="codex")
    tab(here, "docs").get_by_text("codex · running").wait_for()
    here.evaluate("window.skew = 20000")
    stand.supervisor.put("docs", agent="codex", idleSince=time.time())
    tab(here, "docs").get_by_text("codex · done").wait_for()
    # Of a minute of work, people elsewhere hear as well.
    here.evaluate("""() => { window.told = []; window.Notification = class {
        static permission = "granted"; static requestPermission = async () => "granted";
        constructor(title) { window.told.push(title); } close() {} }; }""")
    here.get_by_role("button", name="Notify me when a session needs me").click()
    for session, seconds in (("docs", 30), ("nightly", 90)):
        stand.supervisor.put(session)
        tab(here, session).get_by_text("claude · running").wait_for()
        here.evaluate(f"window.skew += {seconds * 1000}")
        stand.supervisor.put(session, idleSince=time.time())
        tab(here, session).get_by_text("claude · done").wait_for()
    assert here.evaluate("window.told") == ["nightly: done"]
    stand.supervisor.put("docs", agent="codex", idleSince=time.time())
    assert tab(here, "docs").locator("svg.done").count() == 1
    # Who needs somebody comes first, then what is done; once seen it is no news.
    here.keyboard.press("Alt+Shift+KeyA")
    here.wait_for_function("() => location.search === '?arg=shop-tests'")
    stand.supervisor.put("shop-tests")
    tab(here, "shop-tests").get_by_text("claude · running").wait_for()
    stand.supervisor.put("import", "stopped", agent="opencode")
    tab(here, "import").get_by_text("opencode · stopped").wait_for()
    here.keyboard.press("Alt+Shift+KeyA")
    here.wait_for_function("() => location.search === '?arg=docs'")
    tab(here, "docs").get_by_text("codex · idle").wait_for()
    here.keyboard.press("Alt+Shift+KeyA")
    here.wait_for_function("() => location.search === '?arg=nightly'")


def test_two_side_by_side(page, stand):
    here = page("?arg=main")
    tab(here, "docs").click()
    here.get_by_role("button", name="Two sessions side by side").click()
    left, right = here.locator("#pane-docs"), here.locator("#pane-main")
    assert left.bounding_box()["x"] == 0
    assert right.bounding_box()["x"] == left.bounding_box()["width"] == 720
    # What is typed into is what keys and address mean; nothing changes places.
    here.frame_locator("#pane-main iframe").locator("textarea").focus()
    here.wait_for_function("() => location.search === '?arg=main'")
    assert right.bounding_box()["x"] == 720
    here.keyboard.press("x")
    assert here.frame_locator("#pane-main iframe").locator("#screen").inner_text().endswith(" x")
    # Another tab takes the place of the one in use, and a new name keeps it.
    tab(here, "shop-tests").click()
    third = here.locator("#pane-shop-tests")
    assert third.bounding_box()["x"] == 720
    assert right.is_hidden()
    assert left.is_visible()
    docs = stand.supervisor.sessions["docs"]
    stand.supervisor.put("papers", **{key: docs[key] for key in ("agent", "id")})
    stand.supervisor.push({"event": "removed", "name": "docs"})
    here.locator("#pane-papers.left").wait_for()
    here.set_viewport_size({"width": 900, "height": 700})
    assert third.bounding_box()["width"] == 900
    assert here.locator("#pane-papers").is_hidden()
    here.set_viewport_size({"width": 1440, "height": 900})
    here.keyboard.press("Alt+Shift+KeyD")
    here.locator("#pane-papers").wait_for(state="hidden")
    assert third.bounding_box()["width"] == 1440


TRANSCRIPT = (
    {"type": "user", "isMeta": True, "message": {"role": "user", "content": "a caveat"}},
    {"type": "user", "message": {"role": "user", "content": "mend the <b>basket</b>"}},
    {"type": "assistant", "message": {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look first."},
        {"type": "tool_use", "name": "Bash", "input": {"command": "pytest -q"}}]}},
    {"type": "user", "message": {"role": "user", "content": [
        {"type": "tool_result", "content": "41 passed"}]}},
    {"type": "event_msg", "payload": {"type": "user_message", "message": "of codex"}},
    {"type": "event_msg", "payload": {"type": "agent_message", "message": "codex said"}},
    {"type": "response_item", "payload": {"type": "function_call", "name": "shell",
                                          "arguments": "{}"}},
    {"type": "message", "message": {"role": "assistant", "content": [
        {"type": "text", "text": "pi said"},
        {"type": "toolCall", "name": "edit", "arguments": {"path": "x"}}]}},
)  # fmt: skip


def test_reading_a_conversation(page, stand):
    identity = stand.supervisor.sessions["main"]["id"]
    state = stand.me.state_dir / "sessions"
    state.mkdir(parents=True, exist_ok=True)
    entry = {"agent": "claude", "boxSessionId": identity, "workingDirectory": str(stand.home)}
    document = {"version": 1, "sessions": {"main": entry, "docs": entry}}
    stand.me.registry_path.write_text(json.dumps(document))
    record = {"id": identity, "launchId": identity, "launched": True}
    (state / f"{identity}.json").write_text(json.dumps(record))
    here = page("?arg=main")
    tab(here, "main").wait_for()
    here.keyboard.press("Alt+Shift+KeyL")
    here.get_by_role("button", name="Read the conversation").click()
    here.get_by_text("has not stored one").wait_for()
    here.keyboard.press("Escape")
    folder = stand.home / ".claude/projects/-x"
    folder.mkdir(parents=True)
    lines = [json.dumps(line) for line in TRANSCRIPT]
    (folder / f"{identity}.jsonl").write_text("\n".join(["cut off", *lines, "nonsense", "7"]))
    here.get_by_role("button", name="Read the conversation").click()
    region = here.get_by_role("region", name="Conversation of main")
    region.get_by_text("mend the <b>basket</b>").wait_for()
    shown = region.locator("section > *, details > summary").all_inner_texts()
    assert shown == [
        *("You", "mend the <b>basket</b>", "claude", "I look first.", "Bash"),
        *("You", "of codex", "claude", "codex said", "shell", "claude", "pi said", "edit"),
    ]
    assert region.bounding_box()["width"] > 900
    assert region.get_by_text("pytest -q").is_hidden()
    region.get_by_text("Bash").click()
    region.get_by_text("pytest -q").wait_for()
    assert violations(here) == []


def test_dragging_a_tab(page, stand):
    here, there = page("?arg=main"), page("?arg=docs")
    tab(there, "docs").wait_for()
    tab(here, "main").drag_to(tab(here, "docs"), target_position={"x": 90, "y": 10})
    names = "() => [...document.querySelectorAll('[role=tab]')].map((tab) => tab.dataset.name)"
    for each in (here, there):
        each.wait_for_function(f"() => ({names})()[2] === 'main'")
        assert each.evaluate(names)[:3] == ["shop-tests", "docs", "main"]


def test_keyboard_only(page, stand):
    here = page("?arg=main")
    tab(here, "main").wait_for()
    here.frame_locator("#pane-main iframe").locator("textarea").focus()
    here.keyboard.press("Alt+Shift+KeyT")
    here.wait_for_function("() => document.activeElement.id === 'tab-main'")
    here.keyboard.press("ArrowRight")
    here.keyboard.press("Control+Shift+ArrowRight")
    here.wait_for_function(
        "() => document.querySelectorAll('[role=tab]')[2].id === 'tab-shop-tests'"
    )
    assert here.evaluate("document.activeElement.id") == "tab-shop-tests"
    here.keyboard.press("Enter")
    here.wait_for_function("() => location.search === '?arg=shop-tests'")
    here.keyboard.press("Alt+Digit1")
    here.wait_for_function("() => location.search === '?arg=main'")
    here.keyboard.press("Alt+Shift+KeyA")
    here.wait_for_function("() => location.search === '?arg=shop-tests'")
    here.keyboard.press("Alt+Shift+KeyH")
    here.get_by_role("heading", name="Keyboard").wait_for()
    here.keyboard.press("Escape")
    # While it is open, keys belong to the dialog; nobody is as quick as a test.
    here.locator("dialog").wait_for(state="detached")
    here.keyboard.press("Alt+Shift+KeyX")
    here.get_by_role("heading", name="Remove shop-tests?").wait_for()
    here.keyboard.press("Escape")
    assert "shop-tests" in stand.supervisor.sessions


def test_a_phone(page):
    here = page("?arg=main", has_touch=True, is_mobile=True)
    here.set_viewport_size({"width": 390, "height": 844})
    frame = here.frame_locator("#pane-main iframe")
    frame.locator("textarea").focus()
    for name in ("Esc", "Tab", "Shift Tab", "New line", "Up", "Control C"):
        here.get_by_role("button", name=name, exact=True).tap()
    here.get_by_role("button", name="Ctrl", exact=True).tap()
    here.keyboard.press("r")
    screen = frame.locator("#screen").inner_text()
    assert screen.endswith("Escape Tab S-Tab S-Enter ArrowUp C-c C-r")
    assert here.evaluate("document.documentElement.scrollWidth") <= 390
    small = here.evaluate(
        "[...document.querySelectorAll('button, a')].filter((item) => item.checkVisibility())"
        ".map((item) => [item.getAttribute('aria-label') ?? item.textContent,"
        " item.getBoundingClientRect()]).filter(([, box]) => box.height && box.top >= 0"
        " && (box.height < 24 || box.width < 24)).map(([name]) => name)"
    )
    assert small == []


def test_a_login_that_ends_loses_nothing(page, stand):
    here = page("?arg=docs")
    tab(here, "docs").wait_for()
    here.get_by_role("button", name="New session").click()
    here.get_by_label("First task (optional)").fill("a long thought")
    stand.front.signed_in = False
    here.get_by_role("button", name="Start session").click()
    here.get_by_role("heading", name="Your login has ended").wait_for()
    stand.front.signed_in = True
    here.keyboard.press("Escape")
    assert here.get_by_label("First task (optional)").input_value() == "a long thought"
    here.get_by_role("button", name="Start session").click()
    tab(here, "claude").wait_for()
    stand.front.signed_in = False
    here.locator("#pane-claude").get_by_role("button", name="Restart").click()
    here.get_by_role("heading", name="Sign in").wait_for()
    assert here.url.endswith("?arg=claude")


def test_a_page_from_before_an_update_offers_to_reload(page, stand, monkeypatch):
    """Not while only the service behind it has changed, and never at the cost of typed text."""
    card = {
        "id": "claude",
        "label": "Claude",
        "state": "waiting",
        "detail": "",
        "needsCode": True,
        "url": None,
        "code": None,
        "choices": [],
        "providers": [],
        "shadows": [],
        "remote": None,
        "error": None,
    }
    stand.supervisor.replies["connections"] = {"connections": [card]}
    here = page("settings/")
    code = here.get_by_label("Code or key that the vendor gives you")
    code.fill("half of it")
    offer = here.get_by_role("button", name="Reload it")

    def again():
        stand.supervisor.stop()
        here.get_by_text("not running").first.wait_for()
        stand.supervisor.start()
        here.get_by_text("not running").first.wait_for(state="detached")
        here.wait_for_timeout(300)

    version = assets.version()
    with monkeypatch.context() as patch:
        patch.setattr(assets, "version", lambda: "0" * 16)
        patch.setattr(assets, "page", functools.partial(old_page, assets.page, version))
        again()
        assert not offer.is_visible()
    monkeypatch.setattr(assets, "version", lambda: "0" * 16)
    again()
    assert appears(offer)
    here.get_by_text("The box was updated").wait_for()
    offer.click()
    assert appears(here.get_by_role("heading", name="What you typed would be lost"))
    here.get_by_role("button", name="Not yet").click()
    assert code.input_value() == "half of it"
    stand.supervisor.replies["signin"] = errors.UsageError("no such action")
    here.get_by_role("button", name="Send", exact=True).click()
    assert appears(here.get_by_text("This page is from before an update of the box: reload it."))
    code.fill("")
    offer.click()
    here.wait_for_function("() => document.head.innerHTML.includes('/assets/0000000000000000/')")
    code.wait_for()
    assert not offer.is_visible()


def appears(locator):
    end = time.monotonic() + 10
    while time.monotonic() < end and not locator.is_visible():
        time.sleep(0.05)
    return locator.is_visible()


def old_page(page, version, *of):
    return page(*of).replace(b"0" * 16, version.encode())


def test_settings(page, stand):
    here = page("settings/")
    here.get_by_role("button", name="Paste many").click()
    here.locator("[name=text]").fill("A=1\nbroken")
    here.get_by_role("button", name="Store all").click()
    here.get_by_text("Line 2 is not KEY=value").wait_for()
    here.locator("[name=text]").fill('A=1\nPEM="x\ny"')
    here.get_by_role("button", name="Store all").click()
    here.get_by_role("rowheader", name="PEM").wait_for()
    here.get_by_text("Still running with old values").wait_for()
    identity = stand.supervisor.sessions["main"]["id"]
    entry = {"agent": "claude", "boxSessionId": identity}
    stand.me.registry_path.write_text(json.dumps({"version": 1, "sessions": {"main": entry}}))
    here.get_by_role("button", name="Add secret").click()
    here.get_by_label("Name", exact=True).fill("OWN")
    here.get_by_role("combobox", name="For").select_option("main")
    here.get_by_label("Value (several lines are fine)").fill("mine")
    here.get_by_role("button", name="Store", exact=True).click()
    here.get_by_role("button", name="Replace OWN of main").click()
    assert here.get_by_role("combobox", name="For").is_disabled()
    here.get_by_role("button", name="Cancel").click()
    here.get_by_role("button", name="Remove OWN of main").click()
    here.get_by_role("button", name="Remove", exact=True).click()
    here.get_by_role("rowheader", name="OWN", exact=True).wait_for(state="detached")
    here.get_by_role("rowheader", name="PEM").wait_for()
    here.get_by_role("button", name="Change password").click()
    for name, value in (("current", "wrong"), ("new", "x" * 20), ("again", "x" * 20)):
        here.locator(f"[name={name}]").fill(value)
    here.locator("dialog").get_by_role("button", name="Change password").click()
    here.get_by_text("The current password is wrong.").wait_for()
    here.locator("[name=current]").fill("right")
    here.locator("dialog").get_by_role("button", name="Change password").click()
    here.get_by_text("The password was changed.").wait_for()
    here.get_by_role("button", name="End the login of Safari on iPhone").click()
    here.wait_for_function("() => !document.querySelector('[aria-disabled=true]')")
    assert ("DELETE", "/gate/logins/two", {}) in stand.front.gate_requests
    here.get_by_role("button", name="Unban 2001:db8::/64").click()
    here.get_by_text("2001:db8::/64 may sign in again").wait_for()
    assert ("POST", "/gate/unban", {"address": "2001:db8::"}) in stand.front.gate_requests
    here.set_input_files(
        "input[type=file]", {"name": "plan.md", "mimeType": "text/plain", "buffer": b"x" * 99}
    )
    here.get_by_role("rowheader", name="~/uploads/plan.md").wait_for()
    assert (stand.home / "uploads/plan.md").read_bytes() == b"x" * 99
    dropped = here.evaluate_handle(
        "() => { const all = new DataTransfer();"
        " all.items.add(new File(['dropped'], 'dropped.txt')); return all; }"
    )
    here.dispatch_event("body", "drop", {"dataTransfer": dropped})
    here.get_by_role("rowheader", name="~/uploads/dropped.txt").wait_for()
    assert (stand.home / "uploads/dropped.txt").read_bytes() == b"dropped"
    with here.expect_download() as waiting:
        here.get_by_role("link", name="~/downloads/coverage.txt").click()
    assert waiting.value.suggested_filename == "coverage.txt"


def test_downloads(page, stand):
    name = "a <b>bold & é.txt"
    inner = stand.home / "downloads/more"
    inner.mkdir()
    (inner / name).write_text("x" * 3000)
    here = page("downloads/")
    here.get_by_role("rowheader", name="coverage.txt").wait_for()
    assert (
        here.get_by_role("link", name="View coverage.txt").get_attribute("href").endswith("?view")
    )
    here.get_by_role("link", name="more/").click()
    row = here.get_by_role("row").filter(has_text=name)
    row.get_by_text("2.9 KiB").wait_for()
    assert here.get_by_text("~/downloads/more").is_visible()
    with here.expect_download() as waiting:
        row.get_by_role("link", name=name, exact=True).click()
    assert Path(waiting.value.path()).read_text() == "x" * 3000
    here.get_by_role("link", name="Up one directory").click()
    here.get_by_role("rowheader", name="report.pdf").wait_for()
    here = page("downloads/none/")
    here.get_by_role("alert").get_by_text("There is no such file").wait_for()


def test_webhooks(page, stand):
    directory = state_dir(stand.home)
    directory.mkdir(parents=True)
    key = key_of(next(iter(stand.supervisor.sessions.values()))["id"])
    name = next(iter(stand.supervisor.sessions))
    for topic in ("acme/widgets", "acme/gadgets"):
        actions.subscribe(directory, key, actions.Wish(topic, note=f"about {topic}"), None)
    actions.subscribe(directory, DISPATCH, actions.Wish("acme/*", note="<b>triage</b>"), None)
    here = page("settings/")
    card = here.locator("#webhooks")
    row = card.locator(f"[data-fold='subs-{name}']")
    row.get_by_text("2 subscriptions").wait_for()
    row.locator("summary").click()
    row.get_by_text("about acme/widgets").wait_for()
    row.get_by_role("button", name=f"Unsubscribe {name} from github:acme/widgets").click()
    row.get_by_text("1 subscription", exact=True).wait_for()
    assert row.evaluate("fold => fold.open")
    watch = card.locator("[data-fold='watch-github:acme/*']")
    assert watch.get_by_text("triage").is_hidden()
    watch.locator("summary").click()
    watch.get_by_text("claude --model sonnet").wait_for()
    watch.get_by_text('("<b>triage</b>")').wait_for()
    # somebody else's change shows by itself
    actions.subscribe(directory, key, actions.Wish("acme/gizmos"), None)
    row.get_by_text("2 subscriptions").wait_for()
    row.get_by_role("button", name="Unsubscribe all").click()
    here.locator("dialog").get_by_text("github:acme/gadgets, github:acme/gizmos").wait_for()
    here.locator("dialog").get_by_role("button", name="Unsubscribe all").click()
    row.get_by_text("never subscribed").wait_for()
    watch.get_by_role("button", name="Remove watch").click()
    here.locator("dialog").get_by_role("button", name="Remove watch").click()
    card.get_by_text("No standing watches.").wait_for()
    # what is no list of topics has a word of its own, and can be cleared
    assert row.get_by_role("button", name="Clear").count() == 0
    muted = '{"enabled": false, "topics": ["github:acme/x"]}'
    words = {'{"topics": []}': "no subscriptions", "{": "broken", muted: "muted"}
    for content, word in words.items():
        filter_path(directory, key).write_text(content)
        row.get_by_text(word, exact=True).wait_for()
    filter_path(directory, key).write_text("{")
    row.get_by_role("button", name="Clear").click()
    here.locator("dialog").get_by_role("button", name="Clear").click()
    row.get_by_text("never subscribed").wait_for()
    assert not filter_path(directory, key).exists()


def test_update(page, stand, tmp_path, monkeypatch):
    monkeypatch.setattr(status, "STATE", tmp_path)
    monkeypatch.setattr(request, "SOCKETS", tmp_path)
    here = page("settings/")
    card = here.locator("#update")
    card.get_by_text("It was never updated from here.").wait_for()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / f"{stand.user}.sock"))
        listener.listen()
        listener.settimeout(20)
        card.get_by_role("button", name="Update box").click()
        here.locator("dialog").get_by_role("button", name="Update box").click()
        listener.accept()[0].close()
    here.get_by_text("The update was started.").wait_for()
    now = status.Status(phase="building", started=time.time(), message="building the new system",
                        before={"agent-box": "a" * 40}, to={"agent-box": "b" * 40})  # fmt: skip
    status.write(now, tmp_path)
    here.reload()
    card.get_by_text("building the new system …").wait_for()
    assert card.locator("[aria-current=step]").inner_text() == "Build"
    assert card.get_by_role("button", name="Update box").is_disabled()
    # the end shows by itself
    status.write(status.ended(now, "partly", "the new system runs, but look"), tmp_path)
    card.get_by_text("the new system runs, but look.").wait_for()
    card.get_by_text(f"agent-box: {'a' * 12} to {'b' * 12}").wait_for()
    assert card.get_by_role("button", name="Update box").is_enabled()


@pytest.mark.skipif(AXE is None, reason="axe-core is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(page, scheme):
    here = page("?arg=import", color_scheme=scheme)
    here.get_by_label("Last lines of import").wait_for()
    assert violations(here) == []
    here.get_by_role("button", name="New session").click()
    here.get_by_role("combobox", name="Working directory").click()
    here.get_by_role("option", name="work/").wait_for()
    assert violations(here) == []
    for path in ("settings/", "downloads/"):
        here = page(path, color_scheme=scheme)
        here.get_by_text("coverage.txt").first.wait_for()
        assert violations(here) == []


def test_many_sessions_in_many_pages(page, stand):
    for number in range(30):
        stand.supervisor.put(f"s{number}", "stopped")
    pages = [page("?arg=nightly") for _ in range(5)]
    for here in pages:
        tab(here, "s29").wait_for()
        here.evaluate(
            "void (window.seen = new Promise((done) => new MutationObserver(() => {"
            " if (document.querySelector('#tab-s5').dataset.state === 'failed') done(Date.now());"
            "}).observe(document.querySelector('#tabs'), {subtree: true, attributes: true})))"
        )
    before = time.time()
    stand.supervisor.put("s5", "failed", reason="gone")
    delays = sorted(here.evaluate("window.seen") - before * 1000 for here in pages)
    print(f"visible in 5 pages of 30 sessions after {', '.join(f'{d:.0f}' for d in delays)} ms")
    assert delays[2] < 500  # 100 ms on a machine that does nothing else


def test_who_waits_out_of_sight(page, stand):
    for number in range(30):
        stand.supervisor.put(f"s{number}", "stopped")
    here = page("?arg=main")
    tab(here, "s29").wait_for()
    more = here.get_by_role("button", name="more session")
    assert not more.is_visible(), "the tabs of those who wait are in sight"
    stand.supervisor.put("s27", "waiting", reason="claude asks something")
    stand.supervisor.put("s28", "failed", reason="gone")
    here.get_by_role("button", name="2 more sessions need you").wait_for()
    # By the keyboard's way round: those in sight come first.
    for name in ("shop-tests", "import", "s27"):
        more.click()
        here.wait_for_function("name => location.search === `?arg=${name}`", arg=name)
    here.get_by_role("button", name="3 more sessions need you").wait_for()
    assert violations(here) == []
