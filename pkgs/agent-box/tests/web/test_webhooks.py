"""Subscriptions in the settings: every state, and ending them."""

from __future__ import annotations

import json

import msgspec
import pytest

from agent_box.link import Link
from agent_box.subscriptions import actions
from agent_box.subscriptions.place import DISPATCH, filter_path, key_of, state_dir
from agent_box.web.hooks import Hooks


@pytest.fixture
def place(web):
    directory = state_dir(web.home)
    directory.mkdir(parents=True)
    return directory


def shown(web):
    answer = web.get("api/webhooks")
    assert answer.status_code == 200
    return answer.json()


def end(web, **body):
    return web.call("POST", "webhooks/unsubscribe", body)


def session(web, name):
    return next(each for each in shown(web)["sessions"] if each["name"] == name)


def test_every_state_has_its_word(web, place):
    contents = {
        "listening": '{"topics": [{"topic": "github:a/b"}, "github:*"]}',
        "off": '{"enabled": false, "topics": ["github:a/b"]}',
        "absent": None,
        "invalid": "{",
        "empty": '{"topics": []}',
        "unconfigured": "{}",
    }
    for name, content in contents.items():
        web.supervisor.put(name)
        view = web.supervisor.sessions[name]
        if content is not None:
            filter_path(place, key_of(view["id"])).write_text(content)
    web.supervisor.put("foreign", "unmanaged", id=None)
    found = {each["name"]: each for each in shown(web)["sessions"]}
    assert {name: each["state"] for name, each in found.items()} == {
        **{name: name for name in contents},
        "unconfigured": "empty",
    }
    assert [row["topic"] for row in found["listening"]["topics"]] == ["github:a/b", "github:*"]
    assert found["listening"]["topics"][1]["invalid"]
    assert [each["name"] for each in found.values() if not each["file"]] == ["absent"]


def test_ending_subscriptions(web, place):
    web.supervisor.put("work")
    web.supervisor.put("other")
    keys = {name: key_of(web.supervisor.sessions[name]["id"]) for name in ("work", "other")}
    for key in (*keys.values(), DISPATCH):
        actions.subscribe(place, key, actions.Wish("acme/widgets", note="why"), None)
        actions.subscribe(place, key, actions.Wish("acme/gadgets"), None)
    assert end(web, session="work", topic="github:acme/widgets").status_code == 200
    assert [row["topic"] for row in session(web, "work")["topics"]] == ["github:acme/gadgets"]
    assert end(web, session="work", topic="github:acme/widgets").status_code == 404
    assert len(session(web, "other")["topics"]) == 2
    assert end(web, session="work").json() == {"removed": 1}
    assert session(web, "work")["state"] == "absent"
    assert end(web, session="work").json() == {"removed": 0}
    assert end(web, topic="github:acme/widgets").status_code == 200
    assert [row["topic"] for row in shown(web)["watches"]["topics"]] == ["github:acme/gadgets"]
    # legacy rows that match nothing can go as well
    path = filter_path(place, keys["other"])
    path.write_text('{"topics": ["github:*"]}')
    assert end(web, session="other", topic="github:*").status_code == 200
    path.write_text("broken")
    assert end(web, session="other").json() == {"removed": 1}


@pytest.mark.parametrize(
    "body",
    [{}, {"session": "nobody"}, {"session": "../../dispatch"}, {"session": "", "topic": "a:b"},
     {"session": 1}, {"key": "dispatch"}],
)  # fmt: skip
def test_no_other_name_leads_to_a_file(web, place, body):
    actions.subscribe(place, DISPATCH, actions.Wish("acme/*"), None)
    assert end(web, **body).status_code in (400, 404, 422)
    assert len(shown(web)["watches"]["topics"]) == 1


def test_from_another_site_nothing_changes(web, place):
    actions.subscribe(place, DISPATCH, actions.Wish("acme/*"), None)
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    body = {"topic": "github:acme/*"}
    answer = web.call("POST", "webhooks/unsubscribe", body, headers=foreign)
    assert answer.status_code == 403
    assert len(shown(web)["watches"]["topics"]) == 1


def test_what_a_watch_launches(web, place):
    (place / "sources.json").write_text(json.dumps({"sources": {"github": {"secret": "s" * 32}}}))
    actions.subscribe(place, DISPATCH, actions.Wish("acme/*", note="triage"), None)
    found = shown(web)
    (row,) = found["watches"]["topics"]
    assert row["preview"].startswith("claude --model sonnet\n")
    assert '("triage")' in row["preview"]
    assert "agent-box-session rm hook-<NAME>" in row["preview"]
    assert found["sources"] == ["github"]
    assert "s" * 32 not in json.dumps(found)
    assert found["hooks"] == {"live": 0, "max": 4}


async def test_without_webhooks_there_is_nothing_to_show(web):
    box = msgspec.structs.replace(web.stand.box, webhook=None)
    user = box.user(web.stand.user)
    answer = await Hooks(box, user, Link(user)).show(None)
    assert json.loads(answer.body) == {"enabled": False}
