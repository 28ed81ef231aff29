"""The API about sites: what makes no sense is refused before anything is written."""

from __future__ import annotations

import json
import threading

import pytest

from agent_box.sites import results


@pytest.fixture
def helper(web, tmp_path, monkeypatch):
    """Play the helper of root: take up the user's list as soon as it changes."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    path = web.home / ".config/agent-box/sites.json"
    ended = threading.Event()

    def follow() -> None:
        import hashlib

        while not ended.wait(0.05):
            data = path.read_bytes() if path.exists() else b""
            sites = json.loads(data)["sites"] if data else {}
            verdicts = [
                {
                    "name": name,
                    "state": "refused" if entry.get("port") == 4000 else "served",
                    "url": f"https://{name}/",
                    "target": "x",
                    "public": entry["public"],
                    "reason": "another user's program" if entry.get("port") == 4000 else None,
                }
                for name, entry in sites.items()
            ]
            digest = hashlib.sha256(data).hexdigest()
            document = {"problem": None, "digest": digest, "sites": verdicts}
            new = tmp_path / "new"
            new.write_text(json.dumps(document))
            new.rename(tmp_path / f"{web.stand.user}.json")

    thread = threading.Thread(target=follow)
    thread.start()
    yield path
    ended.set()
    thread.join()


def test_a_site_is_added_changed_and_removed(web, helper):
    made = web.call("POST", "sites", {"name": "shop", "port": 3000})
    assert (made.status_code, made.json()["public"]) == (201, False)
    assert web.call("POST", "sites", {"name": "shop", "port": 3001}).status_code == 409
    assert web.call("PATCH", "sites/shop", {"public": True}).json()["public"] is True
    assert json.loads(helper.read_text())["sites"]["shop"] == {"public": True, "port": 3000}
    assert [site["name"] for site in web.get("api/sites").json()["sites"]] == ["shop"]
    assert web.call("DELETE", "sites/shop").status_code == 200
    assert json.loads(helper.read_text())["sites"] == {}
    assert web.call("DELETE", "sites/shop").status_code == 404
    assert web.call("PATCH", "sites/shop", {"public": True}).status_code == 404


def test_what_the_box_refuses_is_not_kept(web, helper):
    refused = web.call("POST", "sites", {"name": "spy", "port": 4000})
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == "Another user's program."
    assert json.loads(helper.read_text())["sites"] == {}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "a"},
        {"name": "A b", "port": 3000},
        {"name": "a", "port": 80},
        {"name": "a", "port": 3000, "dir": "x"},
        {"name": "a", "dir": "../.ssh"},
        {"name": "a", "dir": "/etc"},
        {"name": "a", "port": 3000, "host": "evil.example"},
        {"name": "a", "port": 3000, "more": 1},
    ],
)
def test_nonsense(web, body):
    assert web.call("POST", "sites", body).status_code == 400
    assert not (web.home / ".config/agent-box/sites.json").exists()
