"""Logins: list, revoke, expiry, password change, and root's side of it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from .conftest import (
    FRESH,
    ORIGIN,
    PASSWORDS,
    SRC,
    Make,
    Running,
    basic,
    cookie,
    eventually,
)

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def login_id(gate: Running, token: str, user: str = "alice") -> str:
    return gate.auth(f"/{user}/", cookie(token)).get("x-agent-box-login")


def test_the_account_without_a_login(gate: Running):
    token = "A" * 43
    for method, target in (
        ("GET", "/gate/account"),
        ("GET", "/gate/logins"),
        ("DELETE", "/gate/logins"),
        ("DELETE", "/gate/logins/x"),
        ("POST", "/gate/password"),
        ("POST", "/gate/unban"),
    ):
        answer = gate.call(method, target, token, {"current": "x", "new": FRESH})
        assert answer.status == 401
        assert answer.json["error"]["code"] == "signed_out"
        assert "Basic" not in answer.get("www-authenticate")
    assert gate.failures() == []


def test_changes_from_other_sites_are_refused(gate: Running):
    token = gate.login().token
    for method, target in (
        ("DELETE", "/gate/logins"),
        ("POST", "/gate/password"),
        ("POST", "/gate/unban"),
    ):
        bad = ("Origin", "https://evil.example")
        assert gate.send(method, target, [cookie(token), bad], b"{}").status == 403
        assert gate.send(method, target, [cookie(token)], b"{}").status == 403


def test_logins_are_listed_and_ended(gate: Running):
    one = gate.login(headers=[("User-Agent", FIREFOX)]).token
    two = gate.login(address="2001:db8::5").token
    other = gate.login("bob").token
    listed = gate.call("GET", "/gate/logins", one).json["logins"]
    assert len(listed) == 2
    mine = next(login for login in listed if login["current"])
    assert mine["device"] == "Firefox on Linux"
    assert mine["kind"] == "browser"
    assert mine["ends"] == pytest.approx(time.time() + 7 * 86400, abs=60)
    second = next(login for login in listed if not login["current"])
    assert second["address"] == "2001:db8::5"
    foreign = login_id(gate, other, "bob")
    assert gate.call("DELETE", f"/gate/logins/{foreign}", one).status == 404
    assert gate.call("DELETE", f"/gate/logins/{second['id']}", one).json["ended"] == [second["id"]]
    assert gate.auth("/alice/", cookie(two)).status == 401
    assert gate.live() == {mine["id"], foreign}
    third = gate.login().token
    gate.call("DELETE", "/gate/logins", one)
    assert gate.auth("/alice/", cookie(third)).status == 401
    assert gate.auth("/alice/", cookie(one)).status == 200
    assert gate.auth("/bob/", cookie(other)).status == 200


def test_a_new_password_ends_everything_of_its_user(gate: Running):
    mine, second = gate.login().token, gate.login().token
    other = gate.login("bob").token
    gate.auth("/alice/", basic("alice", PASSWORDS["alice"]))
    before = gate.live()
    assert len(before) == 4
    answer = gate.call(
        "POST", "/gate/password", mine, {"current": PASSWORDS["alice"], "new": FRESH}
    )
    assert answer.status == 200
    fresh = answer.token
    for token in (mine, second):
        assert gate.auth("/alice/", cookie(token)).status == 401
    assert gate.auth("/alice/", cookie(fresh)).status == 200
    assert gate.auth("/bob/", cookie(other)).status == 200
    assert gate.auth("/alice/", basic("alice", PASSWORDS["alice"])).status == 401
    assert gate.auth("/alice/", basic("alice", FRESH)).status == 200
    assert gate.login().status == 401
    assert gate.login(password=FRESH).status == 303
    kept = before & gate.live()
    assert kept == {login_id(gate, other, "bob")}


@pytest.mark.parametrize(
    ("current", "new", "status", "words"),
    [
        ("wrong", FRESH, 403, "current password is wrong"),
        (PASSWORDS["alice"], "short", 422, "at least 16"),
        (PASSWORDS["alice"], "x" * 65, 422, "at most 64"),
        (PASSWORDS["alice"], "passwordpassword", 422, "guessers"),
        (PASSWORDS["alice"], "alice1234567890123", 422, "guessers"),
        (PASSWORDS["alice"], "with a newline\nand more", 422, "typed"),
        (PASSWORDS["alice"], PASSWORDS["alice"], 422, "current one"),
        (None, FRESH, 400, "JSON"),
    ],
)
def test_passwords_that_are_not_taken(gate: Running, current, new, status, words):
    token = gate.login().token
    answer = gate.call("POST", "/gate/password", token, {"current": current, "new": new})
    assert answer.status == status
    assert words in answer.json["error"]["message"]
    assert gate.auth("/alice/", cookie(token)).status == 200
    assert len(gate.failures()) == (1 if status == 403 else 0)


@pytest.mark.parametrize("new", ["ü" * 5 + "€ symbols & 99%", "a:b c%d\"e'f<g>h\\i", "x7Q " * 16])
def test_passwords_with_any_sign_work_everywhere(gate: Running, new: str):
    token = gate.login().token
    body = {"current": PASSWORDS["alice"], "new": new}
    if len(set(new)) < 6:
        assert gate.call("POST", "/gate/password", token, body).status == 422
        return
    assert gate.call("POST", "/gate/password", token, body).status == 200
    assert gate.login(password=new).status == 303
    assert gate.auth("/alice/", basic("alice", new)).status == 200


def test_the_password_form_is_no_oracle(gate: Running):
    token = gate.login().token
    statuses = [
        gate.call("POST", "/gate/password", token, {"current": f"guess {n}", "new": FRESH}).status
        for n in range(7)
    ]
    assert statuses == [403] * 5 + [429] * 2
    assert len(gate.failures()) == 5


def test_logins_survive_a_restart_and_a_crash(gate: Running):
    token = gate.login().token
    name = login_id(gate, token)
    gate.stop()
    assert gate.live() == {name}
    gate.start()
    assert gate.auth("/alice/", cookie(token)).status == 200
    (gate.runtime / "live" / "stray").touch()
    gate.stop(signal.SIGKILL)
    gate.start()
    assert gate.auth("/alice/", cookie(token)).status == 200
    assert gate.live() == {name}


def test_idle_logins_end(make: Make):
    gate = make(idleDays=3 / 86400)
    used, unused = gate.login().token, gate.login().token
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert gate.auth("/alice/", cookie(used)).status == 200
        time.sleep(0.05)
    assert gate.auth("/alice/", cookie(unused)).status == 401
    eventually(lambda: len(gate.live()) == 1)
    eventually(lambda: not gate.live(), 10)
    assert gate.auth("/alice/", cookie(used)).status == 401


def test_logins_end_at_last(make: Make):
    gate = make(absoluteDays=1.5 / 86400)
    answer = gate.login()
    assert "Max-Age=1;" in answer.get("set-cookie")
    end = time.monotonic() + 5
    while gate.auth("/alice/", cookie(answer.token)).status == 200:
        assert time.monotonic() < end
        time.sleep(0.1)
    eventually(lambda: not gate.live())
    assert len(gate.failures()) == 0


def test_terminals_can_watch_their_login(gate: Running):
    token = gate.login().token
    path = gate.runtime / "live/alice" / login_id(gate, token)
    assert path.stat().st_mode & 0o777 == 0o444
    assert path.parent.stat().st_mode & 0o777 == 0o711
    assert path.parent.parent.stat().st_mode & 0o777 == 0o711


def test_a_user_of_the_past_has_no_login(gate: Running):
    token = gate.login().token
    gate.stop()
    document = json.loads(gate.config.read_text())
    del document["web"]["users"]["alice"]
    gate.config.write_text(json.dumps(document))
    gate.start()
    assert gate.auth("/", cookie(token)).status == 401
    assert gate.login().status == 401
    assert gate.live() == set()


def test_a_damaged_store_keeps_everybody_out_and_is_not_overwritten(gate: Running):
    gate.login()
    gate.stop()
    store = gate.state / "gate.json"
    store.write_text(store.read_text()[:-20])
    damaged = store.read_bytes()
    gate.start()
    assert gate.process.wait(10) == 1
    assert "damaged" in gate.log.read_text()
    assert store.read_bytes() == damaged


def full_disk(gate: Running, *, full: bool) -> None:
    """Let the gate write no file any more, as on a full disk."""
    limit = 0 if full else resource.RLIM_INFINITY
    resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def test_a_full_disk_changes_no_password(gate: Running):
    token = gate.login().token
    before = (gate.state / "gate.json").read_bytes()
    body = {"current": PASSWORDS["alice"], "new": FRESH}
    full_disk(gate, full=True)
    answer = gate.call("POST", "/gate/password", token, body)
    assert answer.status == 507
    assert "nothing was changed" in answer.json["error"]["message"]
    assert (gate.state / "gate.json").read_bytes() == before
    assert [path.name for path in gate.state.iterdir() if path.suffix != ".lock"] == ["gate.json"]
    assert gate.auth("/alice/", cookie(token)).status == 200
    full_disk(gate, full=False)
    assert gate.call("POST", "/gate/password", token, body).status == 200


def test_on_a_full_disk_people_come_in_and_out(gate: Running):
    first = gate.login().token
    full_disk(gate, full=True)
    second = gate.login()
    assert second.status == 303
    assert gate.auth("/alice/", cookie(second.token)).status == 200
    out = gate.send("POST", "/logout", [cookie(first), ("Origin", ORIGIN)])
    assert out.status == 507
    assert "may come back" in out.text
    assert gate.auth("/alice/", cookie(first)).status == 401
    full_disk(gate, full=False)
    gate.stop()
    gate.start()
    assert gate.auth("/alice/", cookie(first)).status == 401
    assert gate.auth("/alice/", cookie(second.token)).status == 200


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.04, 0.06, 0.08, 0.1])
def test_a_password_change_cut_off_is_whole_or_not_at_all(gate: Running, moment: float):
    token = gate.login().token
    body = {"current": PASSWORDS["alice"], "new": FRESH}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        change = pool.submit(gate.call, "POST", "/gate/password", token, body)
        time.sleep(moment)
        gate.stop(signal.SIGKILL)
        gate.start()  # a request that had not been accepted yet is carried out now
        with contextlib.suppress(ValueError, IndexError, OSError):
            change.result()
    changed = gate.auth("/alice/", cookie(token)).status == 401
    assert gate.login(password=FRESH if changed else PASSWORDS["alice"]).status == 303
    assert gate.login(password=PASSWORDS["alice"] if changed else FRESH).status == 401


# -- root


def cli(gate: Running, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from agent_box.gate.cli import main; main()", *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SRC), "AGENT_BOX_GATE_ADMIN": str(gate.admin)},
    )


def test_root_sets_passwords_and_ends_logins(gate: Running, hashes):
    token = gate.login().token
    done = cli(gate, "set-password", "alice", text=FRESH + "\n")
    assert done.returncode == 0, done.stderr
    assert "1 logins ended" in done.stdout
    assert gate.auth("/alice/", cookie(token)).status == 401
    assert gate.login(password=FRESH).status == 303
    assert cli(gate, "set-password", "alice", text="short\n").returncode == 2
    assert cli(gate, "set-password", "nobody", text=FRESH + "\n").returncode == 3
    assert cli(gate, "set-password", "--hash", "alice", text="x\n").returncode == 2
    assert cli(gate, "set-password", "--hash", "alice", text=hashes["alice"]).returncode == 0
    token = gate.login().token
    listed = json.loads(cli(gate, "logins", "alice", "--json").stdout)
    assert [login["user"] for login in listed] == ["alice"]
    assert cli(gate, "revoke", listed[0]["id"][:8]).stdout == "1 logins ended\n"
    assert gate.auth("/alice/", cookie(token)).status == 401
    assert "alice: password set, 0 logins" in cli(gate, "status").stdout


def test_root_hands_out_setup_codes(gate: Running):
    done = cli(gate, "setup-code", "carol")
    code = done.stdout.strip().rpartition(" ")[2]
    assert "I have a set-up code" in gate.send("GET", "/login").text
    fields = {"setup": "1", "user": "carol", "code": code, "new": FRESH, "again": FRESH}
    assert gate.form(fields).status == 303
    assert "I have a set-up code" not in gate.send("GET", "/login").text


def test_there_is_one_setup_code_until_it_is_used_or_renewed(gate: Running):
    def code(*words: str) -> str:
        return cli(gate, "setup-code", *words).stdout.strip().rpartition(" ")[2]

    first = code("carol")
    assert code("carol") == first
    assert code("alice") != first
    second = code("carol", "--renew")
    assert second != first
    fields = {"setup": "1", "user": "carol", "new": FRESH, "again": FRESH}
    assert gate.form(fields | {"code": first}).status == 401
    assert gate.form(fields | {"code": second}).status == 303
    assert code("carol") not in (first, second)


def test_unbanning(gate: Running):
    for _ in range(5):
        gate.login(password="wrong")
    assert gate.login().status == 429
    assert cli(gate, "unban", "203.0.113.7").returncode == 0
    token = gate.login().token
    for _ in range(5):
        gate.login(password="wrong")
    assert gate.login().status == 429
    answer = gate.call("POST", "/gate/unban", token, {"address": "203.0.113.7"}, "198.51.100.1")
    assert answer.json == {"address": "203.0.113.7", "failures": 5, "banned": False}
    assert gate.login().status == 303
    bad = gate.call("POST", "/gate/unban", token, {"address": "../../etc"})
    assert bad.status == 400


def test_failures_of_others_are_not_forgiven(gate: Running):
    alice, bob = gate.login().token, gate.login("bob").token
    change = {"current": "wrong", "new": FRESH}
    for _ in range(3):
        gate.login(password="wrong")
    # Of somebody at alice's open browser: not hers to forgive either.
    assert gate.call("POST", "/gate/password", alice, change).status == 403
    gate.login("bob", "wrong")
    assert gate.login("bob").status == 429
    wish = {"address": "203.0.113.7"}
    assert gate.call("POST", "/gate/unban", bob, wish, "198.51.100.1").json["failures"] == 1
    gate.login("bob", "wrong")
    assert gate.login("bob").status == 429
    assert gate.call("POST", "/gate/unban", alice, wish, "198.51.100.1").json["failures"] == 3
    assert gate.login("bob").status == 303


def test_names_that_nobody_has_are_for_everybody_to_forgive(gate: Running):
    token = gate.login().token
    for _ in range(5):
        gate.login("alcie", "wrong")
    wish = {"address": "203.0.113.7"}
    assert gate.call("POST", "/gate/unban", token, wish, "198.51.100.1").json["failures"] == 5
    assert gate.login().status == 303


def test_the_admin_socket_survives_nonsense(gate: Running):
    import socket

    for line in (
        b"\n",
        b"[]\n",
        b'{"op":[]}\n',
        b'{"op":"revoke"}\n',
        b'{"op":"unban","args":1}\n',
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(gate.admin))
            connection.sendall(line)
            assert json.loads(connection.makefile().readline())["ok"] is False


def test_root_is_told_when_the_gate_is_down(gate: Running):
    gate.close()
    done = cli(gate, "status")
    assert done.returncode == 1
    assert "systemctl status" in done.stderr
