"""Updates in the settings: what is told, and who may start one."""

from __future__ import annotations

import socket
import time

import msgspec
import pytest

from agent_box.update import request, status


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(status, "STATE", tmp_path)
    monkeypatch.setattr(request, "SOCKETS", tmp_path)
    return tmp_path


def shown(web):
    answer = web.get("api/update")
    assert answer.status_code == 200
    return answer.json()


def test_a_box_that_was_never_updated(web, place):
    found = shown(web)
    assert found["enabled"]
    assert found["may"]
    assert found["revision"] == "3f9c1d20ab"
    assert found["status"]["running"] is False
    assert found["status"]["result"] is None


def test_progress_and_end(web, place):
    now = status.Status(
        phase="building", started=time.time(), message="building", before={"a": "1"}, to={"a": "2"}
    )
    status.write(now, place)
    assert shown(web)["status"]["running"]
    assert shown(web)["status"]["from"] == {"a": "1"}
    status.write(status.ended(now, "partly", "look", 4), place)
    found = shown(web)["status"]
    assert (found["running"], found["result"], found["exit"]) == (False, "partly", 4)


def test_a_broken_status_is_told(web, place):
    (place / "update.json").write_text("{")
    answer = web.get("api/update")
    assert answer.status_code == 500
    assert "the next update replaces it" in answer.json()["error"]["message"]


def test_start_connects_to_the_users_socket(web, place):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / f"{web.stand.user}.sock"))
        listener.listen()
        assert web.call("POST", "update").status_code == 200
        listener.settimeout(5)
        listener.accept()[0].close()


def test_start_without_the_unit(web, place):
    answer = web.call("POST", "update")
    assert answer.status_code == 500
    assert "agent-box-update-" in answer.json()["error"]["message"]


def test_who_may_not_start_one(web, place):
    box = msgspec.structs.replace(
        web.stand.box, update=msgspec.structs.replace(web.stand.box.update, users=["other"])
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / f"{web.stand.user}.sock"))
        listener.listen()
        listener.settimeout(0.2)
        with pytest.raises(request.ConflictError, match="may not update"):
            request.start(box, web.stand.user)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_another_site_cannot_start_one(web, place):
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    answer = web.session.post(f"{web.stand.base}/api/update", headers=headers, timeout=20)
    assert answer.status_code == 403
