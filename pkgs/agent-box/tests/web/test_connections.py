"""The Connections card: what it asks the supervisor, what it shows, what it never tells."""

from __future__ import annotations

import logging

from agent_box import errors

URL = "https://claude.ai/oauth/authorize?code=true&state=" + "x" * 400


def card(flow: str = "claude", label: str = "Claude", **more: object) -> dict[str, object]:
    return {
        "id": flow,
        "label": label,
        "state": "idle",
        "detail": "",
        "url": None,
        "code": None,
        "needsCode": False,
        "choices": [],
        "selected": None,
        "providers": [],
        "error": None,
        "shadows": [],
        "remote": None,
        "expires": None,
        **more,
    }


def test_api_hands_on_what_was_asked(web):
    web.supervisor.replies["connections"] = {"connections": [card()]}
    assert web.get("api/connections").json()["connections"][0]["id"] == "claude"
    assert web.supervisor.args("connections") == {"fresh": False}
    web.get("api/connections?fresh=1")
    assert web.supervisor.args("connections") == {"fresh": True}
    web.supervisor.replies["signin"] = {"connection": card(state="exchanging")}
    answer = web.call("POST", "connections/claude", {"action": "code", "text": "a#b\r$(c)"})
    assert answer.json()["connection"]["state"] == "exchanging"
    assert web.supervisor.args("signin") == {
        "flow": "claude",
        "action": "code",
        "text": "a#b\r$(c)",
    }


def test_refusals_say_why_and_never_what_was_entered(web, caplog):
    web.supervisor.replies["signin"] = errors.ConflictError("no sign-in of Claude is under way")
    with caplog.at_level(logging.DEBUG):
        answer = web.call("POST", "connections/claude", {"action": "code", "text": "the-secret"})
        assert answer.status_code == 409
        assert "under way" in answer.json()["error"]["message"]
        for body in (
            b'{"action": "code", "text": ["the-secret"]}',
            b'{"the-secret": 1}',
            b"the-secret",
        ):
            answer = web.call("POST", "connections/claude", data=body)
            assert answer.status_code == 400
            assert "the-secret" not in answer.text
    assert "the-secret" not in caplog.text
    foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.test"}
    answer = web.call("POST", "connections/claude", {"action": "start"}, headers=foreign)
    assert answer.status_code == 403


def test_sign_in_on_the_page(browser, stand):
    now = {"card": card()}
    entered = []

    def signin(args):
        if args["action"] == "start":
            now["card"] = card(state="waiting", url=URL, needsCode=True)
        elif args["action"] == "code":
            entered.append(args["text"])
            now["card"] = card(state="connected", detail="as a@b.test")
        return {"connection": now["card"]}

    codex = card(
        "codex",
        "Codex",
        state="connected",
        remote={"session": "apps", "state": "paired", "text": "Enter it.", "code": "PAIR-1"},
    )
    stand.fill()
    stand.supervisor.replies["connections"] = lambda _: {"connections": [now["card"], codex]}
    stand.supervisor.replies["signin"] = signin
    page = browser.new_page()
    page.set_default_timeout(15_000)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{stand.base}/settings/")
    row = page.locator("[data-flow=claude]")
    row.get_by_text("Not signed in").wait_for()
    page.locator("[data-flow=codex]").get_by_text("PAIR-1").wait_for()
    row.get_by_role("button", name="Sign in").click()
    link = row.get_by_role("link", name="Open the sign-in page of claude.ai")
    link.wait_for()
    assert link.get_attribute("href") == URL
    assert "noopener" in str(link.get_attribute("rel"))
    field = row.get_by_label("Code or key that the vendor gives you")
    field.fill("half of a co")
    page.wait_for_timeout(2500)  # the card looks again meanwhile
    assert field.input_value() == "half of a co"
    field.fill("a#b $(c)")
    row.get_by_role("button", name="Send").click()
    row.get_by_text("as a@b.test").wait_for()
    assert entered == ["a#b $(c)"]
    assert problems == []
    page.close()


def test_sign_in_where_a_session_needs_it(browser, stand):
    """One click on the page of the session: no word of attaching where one is attached."""
    now = {"card": card()}

    def signin(args):
        if args["action"] == "start":
            now["card"] = card(state="waiting", url=URL, needsCode=True)
        elif args["action"] == "code":
            now["card"] = card(state="connected", detail="as a@b.test")
        return {"connection": now["card"]}

    stand.fill()
    needs = "sign-in needed: attach and run /login"
    stand.supervisor.put("main", "waiting", reason=needs)
    others = [now["card"], card("codex", "Codex")]
    stand.supervisor.replies["connections"] = lambda _: {"connections": [now["card"], others[1]]}
    stand.supervisor.replies["signin"] = signin
    page = browser.new_page()
    page.set_default_timeout(15_000)
    page.goto(f"{stand.base}/?arg=main")
    bar = page.locator("#pane-main .panebar")
    bar.get_by_text("sign-in needed: run /login", exact=True).wait_for()
    bar.get_by_role("button", name="Sign in", exact=True).click()
    dialog = page.get_by_role("dialog", name="Sign in for main")
    link = dialog.get_by_role("link", name="Open the sign-in page of claude.ai")
    link.wait_for()
    assert stand.supervisor.args("signin")["flow"] == "claude"
    assert dialog.locator("[data-flow=codex]").count() == 0
    again = dialog.get_by_role("button", name="Restart main with it")
    assert again.is_hidden()
    dialog.get_by_label("Code or key that the vendor gives you").fill("a#b")
    dialog.get_by_role("button", name="Send").click()
    again.click()
    dialog.wait_for(state="detached")
    assert stand.supervisor.args("restart")["name"] == "main"
    bar.get_by_role("button", name="Sign in", exact=True).wait_for(state="hidden")
    page.close()
