"""The JSON API: what it asks the supervisor, what it answers, whom it refuses."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time

import pytest

from agent_box import errors, link


def test_a_session_from_birth_to_removal(web):
    made = web.call("POST", "sessions", {"agent": "codex", "name": "one", "prompt": "a\r\nb"})
    assert made.status_code == 201
    assert made.json()["session"]["name"] == "one"
    asked = web.supervisor.args("add")
    assert asked["prompt"] == "a\nb"
    assert asked["workingDirectory"] == os.path.realpath(web.home)
    assert asked["wait"] is False
    for verb, state in (("stop", "stopped"), ("start", "running"), ("restart", "running")):
        assert web.call("POST", f"sessions/one/{verb}").status_code == 200
        assert web.supervisor.sessions["one"]["state"] == state
    renamed = web.call("POST", "sessions/one/rename", {"newName": "two"})
    assert renamed.json()["session"]["name"] == "two"
    assert web.call("POST", "sessions/two/send", {"text": "hi", "enter": False}).status_code == 200
    assert web.supervisor.args("send") == {"name": "two", "text": "hi", "enter": False}
    assert "basket" in web.get("api/sessions/two/logs?lines=5").json()["text"]
    assert web.get("api/sessions/two").json()["entry"] == {"agent": "codex"}
    assert web.call("POST", "restart-all").json()["errors"] == []
    assert web.call("DELETE", "sessions/two").status_code == 200
    assert web.get("api/sessions").json() == {"sessions": [], "problems": []}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.UsageError("no"), 400, "usage"),
        (errors.NotFoundError("no"), 404, "not_found"),
        (errors.ConflictError("no"), 409, "conflict"),
        (errors.InternalError("no"), 500, "internal"),
    ],
)
def test_refusals_of_the_supervisor_reach_the_page(web, error, status, code):
    web.supervisor.replies["add"] = error
    answer = web.call("POST", "sessions", {})
    assert answer.status_code == status
    assert answer.json() == {"error": {"code": code, "message": "No."}}


def test_calls_wait_for_a_supervisor_that_restarts(web):
    """As long as its service manager takes to start it again; whatever they ask for, once."""
    web.supervisor.stop()
    threading.Timer(1.0, web.supervisor.start).start()
    answer = web.call("POST", "sessions", {"name": "patient"})
    assert answer.status_code == 201
    assert [op for op, _ in web.supervisor.requests].count("add") == 1


def test_a_supervisor_that_stays_away_is_waited_for_once(web, monkeypatch):
    monkeypatch.setattr(link, "PATIENCE", 0.5)
    web.supervisor.stop()
    began = time.monotonic()
    assert web.get("api/sessions").status_code == 503
    waited = time.monotonic() - began
    assert waited >= 0.5
    began = time.monotonic()
    assert web.get("api/sessions").status_code == 503
    assert time.monotonic() - began < 0.4


def test_without_a_supervisor(web, monkeypatch):
    monkeypatch.setattr(link, "PATIENCE", 0.1)
    web.supervisor.stop()
    answer = web.call("POST", "sessions", {})
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "supervisor_down"
    assert "systemctl status" in answer.json()["error"]["message"]
    # What does not need it goes on.
    assert web.call("POST", "env", {"values": {"A": "1"}}).status_code == 200
    assert web.get("api/env").json()["keys"] == ["A"]
    assert "not running" in web.get("api/box").json()["problems"][0]
    web.supervisor.start()
    assert web.get("api/sessions").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "{",
        '{"text": 1}',
        '{"texd": "x"}',
        "[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass"),
    ],
)
def test_bodies_that_make_no_sense(web, body):
    answer = web.call("POST", "sessions/x/send", data=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "usage"
    assert not web.supervisor.requests


def test_names_that_are_none(web):
    assert web.get("api/sessions/a%20b").status_code == 400
    assert web.get("api/sessions/..%2Fx").status_code in (400, 404)
    assert not web.supervisor.requests


def test_the_order_of_the_tabs_is_kept(web):
    for name in ("a", "b", "c"):
        web.supervisor.put(name)
    assert web.call("PUT", "order", {"names": ["c", "a"]}).status_code == 200
    assert [view["name"] for view in web.get("api/sessions").json()["sessions"]] == ["c", "a", "b"]
    web.call("POST", "sessions/c/rename", {"newName": "z"})
    assert [view["name"] for view in web.get("api/sessions").json()["sessions"]] == ["z", "a", "b"]
    assert web.call("PUT", "order", {"names": ["a", "a"]}).status_code == 400
    assert web.call("PUT", "order", {"names": ["../x"]}).status_code == 400


def test_only_its_own_user_is_let_in(web):
    user = web.stand.user
    for forged in ("mallory", ""):
        # The front of the tests replaces the header, so ask behind it.
        status = _behind(web, [(b"x-agent-box-user", forged.encode())])
        assert status == 403
    assert _behind(web, []) == 403
    assert _behind(web, [(b"x-agent-box-user", user.encode())] * 2) == 403
    assert _behind(web, [(b"x-agent-box-user", user.encode())]) == 200


def _behind(web, headers):
    import asyncio

    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/{web.stand.user}/api/agents",
        "raw_path": b"",
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "http_version": "1.1",
        "scheme": "http",
        "server": ("x", 80),
        "client": None,
        "asgi": {"version": "3.0"},
    }
    asyncio.run(web.stand.front.app(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": None, "Origin": None}, 403),
        ({"Sec-Fetch-Site": "none", "Origin": None}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://box.example.evil"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": None}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Sec-Fetch-Site": None}, 200),
        ({"Origin": None}, 200),
    ],
)
def test_changes_come_from_the_own_pages_only(web, headers, status):
    web.supervisor.put("main")
    answer = web.call("POST", "sessions/main/stop", headers=headers)
    assert answer.status_code == status
    assert (web.supervisor.sessions["main"]["state"] == "stopped") is (status == 200)


def test_secrets_are_never_shown(web):
    pem = "-----BEGIN KEY-----\nabc=\n-----END KEY-----\n"
    stored = web.call("POST", "env", {"values": {"KEY": pem, "OTHER": " x "}})
    assert stored.json()["changed"] == ["KEY", "OTHER"]
    answer = web.get("api/env")
    assert answer.json()["keys"] == ["KEY", "OTHER"]
    assert "abc" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    from agent_box import envfile

    assert envfile.read(web.stand.me.env_path) == {"KEY": pem, "OTHER": " x "}
    assert web.call("DELETE", "env/KEY").json()["changed"] == ["KEY"]
    assert web.call("DELETE", "env/KEY").status_code == 404


def test_secrets_pasted_in_bulk(web):
    text = """# mine
export A=1
B="two words"
C='it is' # not a comment inside
D=plain # a comment
PEM="-----BEGIN-----
x=y
-----END-----"
E=
"""
    text = text.replace("C='it is' # not a comment inside\n", "C='it is'\n")
    assert web.call("POST", "env", {"text": text}).status_code == 200
    from agent_box import envfile

    assert envfile.read(web.stand.me.env_path) == {
        "A": "1", "B": "two words", "C": "it is", "D": "plain",
        "PEM": "-----BEGIN-----\nx=y\n-----END-----", "E": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "word"), [("A=1\nnonsense", "line 2"), ('A="never', "never closed"), ("", "no key")]
)
def test_a_bad_line_stores_nothing(web, text, word):
    answer = web.call("POST", "env", {"text": text})
    assert answer.status_code == 400
    assert word in answer.json()["error"]["message"].lower()
    assert not web.stand.me.env_path.exists()


def test_reserved_names_take_a_second_word(web):
    answer = web.call("POST", "env", {"values": {"PATH": "/x", "FINE": "1"}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "reserved")
    assert not web.stand.me.env_path.exists()
    assert web.call("POST", "env", {"values": {"PATH": "/x"}, "force": True}).status_code == 200


def test_sessions_with_old_secrets(web):
    web.supervisor.put("old")  # this process, which runs already
    web.supervisor.put("done", "stopped")
    assert web.call("POST", "env", {"values": {"A": "1"}}).json()["stale"] == ["old"]
    assert web.get("api/env").json()["stale"] == ["old"]
    past = time.time() - 10 * 86400
    os.utime(web.stand.me.env_path, (past, past))
    assert web.get("api/env").json()["stale"] == []


def test_the_box(web):
    facts = web.get("api/box").json()
    assert facts["revision"] == "3f9c1d20ab"
    assert facts["host"] == "box.example"
    assert facts["memory"]["total"] > facts["memory"]["available"] > 0
    assert facts["disk"]["total"] > 0
    assert facts["uptime"] > 0
    assert web.get("api/agents").json() == {
        "agents": ["claude", "codex", "shell"],
        "default": "claude",
    }


def test_secrets_of_one_session(web):
    from agent_box import envfile

    identity = "0f0e0d0c-0000-4000-8000-000000000001"
    me = web.stand.me
    me.registry_path.parent.mkdir(parents=True, exist_ok=True)
    entries = {"main": {"agent": "shell", "boxSessionId": identity}, "other": {"agent": "shell"}}
    me.registry_path.write_text(json.dumps({"version": 1, "sessions": entries}))
    web.supervisor.put("main", id=identity)
    web.supervisor.put("other")
    stored = web.call("POST", "env", {"values": {"KEY": "x"}, "session": "main"})
    assert stored.json() == {"changed": ["KEY"], "stale": ["main"]}
    assert envfile.read(me.session_env_path(identity)) == {"KEY": "x"}
    found = web.get("api/env").json()
    assert (found["keys"], found["own"]) == ([], {"main": ["KEY"]})
    # The test itself is the process of both, and older than the file.
    assert found["stale"] == ["main"]
    assert web.call("DELETE", "env/KEY").status_code == 404
    assert web.call("DELETE", "env/KEY?session=nobody").status_code == 404
    assert web.call("DELETE", "env/KEY?session=main").json()["changed"] == ["KEY"]
    assert web.get("api/env").json()["own"] == {}
    for session, status in (("nobody", 404), ("other", 409), ("../env", 404)):
        answer = web.call("POST", "env", {"values": {"KEY": "x"}, "session": session})
        assert answer.status_code == status, session


def test_transcripts(web):
    identity = "0f0e0d0c-0000-4000-8000-000000000001"
    state = web.stand.me.state_dir / "sessions"
    state.mkdir(parents=True)
    registry = web.stand.me.registry_path
    registry.parent.mkdir(parents=True, exist_ok=True)
    entry = {"agent": "claude", "boxSessionId": identity, "workingDirectory": str(web.home)}
    registry.write_text(json.dumps({"version": 1, "sessions": {"main": entry}}))
    record = {"id": identity, "launchId": identity, "launched": True}
    (state / f"{identity}.json").write_text(json.dumps(record))
    missing = web.get("api/sessions/main/transcript")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "no_transcript")
    folder = web.home / ".claude/projects/-x"
    folder.mkdir(parents=True)
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "hello"}}) + "\n"
    (folder / f"{identity}.jsonl").write_text(line)
    found = web.get("api/sessions/main/transcript")
    assert found.status_code == 200
    assert found.text == line
    assert f"main-{identity}.jsonl" in found.headers["content-disposition"]
    assert web.get("api/sessions/nobody/transcript").status_code == 404


def test_what_a_page_weighs(web):
    weights = {}
    for path in ("", "settings/"):
        page = web.get(path).text
        links = {
            part.split('"')[0] for mark in ('href="', 'src="') for part in page.split(mark)[1:]
        }
        files = {link for link in links if "/assets/" in link}
        bodies = [web.session.get(web.stand.origin + link).content for link in files]
        # The edge compresses, and browsers keep all but the page until the next update.
        weights[path] = sum(len(gzip.compress(body)) for body in (page.encode(), *bodies))
    print(f"bytes on the first visit: {weights}")
    assert weights[""] < 30_000, weights
    assert weights["settings/"] < 40_000, weights
