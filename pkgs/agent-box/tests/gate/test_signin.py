"""Signing in, out, up; and what an attacker gets from trying."""

from __future__ import annotations

import concurrent.futures
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import bcrypt
import pytest

from .conftest import (
    ADDRESS,
    FRESH,
    HTML,
    ORIGIN,
    PASSWORDS,
    SRC,
    Make,
    Running,
    basic,
    cookie,
    eventually,
)


def work(pid: int) -> int:
    """Return the processor time that a process has used, in ns: unlike time, free of the load."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def peak(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+)", text, re.MULTILINE)[1])


def test_signing_in_sets_a_cookie_that_works(gate: Running):
    answer = gate.login(next="/alice/?arg=main")
    assert answer.status == 303
    assert answer.get("location") == "/alice/?arg=main"
    assert re.fullmatch(
        r"__Host-agent_box=[A-Za-z0-9_-]{43}; Path=/; Max-Age=2592000; Secure; HttpOnly;"
        r" SameSite=Strict",
        answer.get("set-cookie"),
    )
    assert gate.auth("/alice/", cookie(answer.token)).status == 200
    assert gate.login().token != answer.token


@pytest.mark.parametrize(
    ("following", "landing"),
    [
        ("", "/alice/"),
        ("/", "/alice/"),
        ("/alice/settings/", "/alice/settings/"),
        ("/bob/", "/alice/"),
        ("/login", "/alice/"),
        ("/logout", "/alice/"),
        ("//evil.example/", "/alice/"),
        ("/\\evil.example/", "/alice/"),
        ("https://evil.example/", "/alice/"),
        ("/alice/\r\nSet-Cookie: x=y", "/alice/"),
        ("/alice//evil", "/alice/"),
        ("javascript:alert(1)", "/alice/"),
        ("/%2f/evil.example", "/alice/"),
        ("/alice/ü", "/alice/"),
    ],
)
def test_where_signing_in_leads(standing: Running, following: str, landing: str):
    assert standing.login(next=following).get("location") == landing


def test_a_wrong_password_is_a_page_with_what_was_typed(gate: Running):
    answer = gate.login(password="wrong <b>", next="/alice/x")
    assert answer.status == 401
    assert answer.get("set-cookie") is None
    assert "User name or password is wrong." in answer.text
    assert 'value="alice"' in answer.text
    assert 'value="/alice/x"' in answer.text
    assert "wrong &lt;b&gt;" not in answer.text
    assert 'aria-invalid="true"' in answer.text
    assert gate.failures() == [f"agent-box-gate: failed login from {ADDRESS}"]


def test_the_form_suits_phones_and_password_managers(gate: Running):
    page = gate.send("GET", "/login", [HTML]).text
    for part in (
        'name="viewport"',
        'lang="en"',
        '<label for="user">',
        '<label for="password">',
        'autocomplete="username"',
        'autocomplete="current-password"',
        'autocapitalize="none"',
        'method="post" action="/login"',
    ):
        assert part in page
    style = re.search(r'href="(/gate/assets/gate-[0-9a-f]{16}\.css)"', page)[1]
    asset = gate.send("GET", style)
    assert asset.status == 200
    assert asset.get("cache-control") == "public, max-age=31536000, immutable"
    assert "prefers-color-scheme: dark" in asset.text
    assert gate.send("GET", "/gate/assets/..%2fservice.py").status == 404
    assert gate.send("GET", "/gate/assets/gate.css").status == 404


def test_unknown_users_look_like_wrong_passwords(gate: Running):
    times: dict[str, list[int]] = {"alice": [], "carol": [], "nobody": []}
    shapes = set()
    gate.login("bob")
    for round_ in range(6):
        for user in times:
            start = work(gate.process.pid)
            answer = gate.login(user, "wrong password", address=f"198.51.{round_}.{len(user)}")
            times[user].append(work(gate.process.pid) - start)
            shapes.add(
                (
                    answer.status,
                    answer.text.replace(user, "X"),
                    str([h for h in answer.headers if h[0] != "content-length"]),
                )
            )
    assert len(shapes) == 1
    fastest = [min(values) for values in times.values()]
    assert max(fastest) < 1.5 * min(fastest)


def test_unknown_users_take_as_long_as_slow_hashes(make: Make):
    """Where the only hash is an expensive one, every name costs as much."""
    slow = bcrypt.hashpw(PASSWORDS["alice"].encode(), bcrypt.gensalt(11)).decode()
    gate = make({"alice": slow})
    gate.send("GET", "/login")
    fastest = []
    for number, user in enumerate(("alice", "nobody", "carol")):
        times = []
        for _ in range(3):
            start = work(gate.process.pid)
            assert gate.login(user, "wrong one", address=f"198.51.100.{number}").status == 401
            times.append(work(gate.process.pid) - start)
        fastest.append(min(times))
    assert max(fastest) < 1.5 * min(fastest)
    assert gate.login().status == 303


def test_hashes_of_caddy_work_until_the_next_change(make: Make):
    gate = make(
        {
            # caddy hash-password, its own defaults for both algorithms
            "alice": bcrypt.hashpw(PASSWORDS["alice"].encode(), bcrypt.gensalt(8)).decode(),
        }
    )
    token = gate.login().token
    stored = (gate.state / "gate.json").read_text()
    assert "$2b$08$" in stored
    answer = gate.call(
        "POST", "/gate/password", token, {"current": PASSWORDS["alice"], "new": FRESH}
    )
    assert answer.status == 200
    stored = (gate.state / "gate.json").read_text()
    assert "$2b$" not in stored
    assert "$argon2id$v=19$m=19456,t=2,p=1$" in stored


def test_the_hash_file_counts_only_once(make: Make, hashes):
    gate = make()
    token = gate.login().token
    gate.call("POST", "/gate/password", token, {"current": PASSWORDS["alice"], "new": FRESH})
    gate.stop()
    gate.start()
    assert gate.login().status == 401
    assert gate.login(password=FRESH).status == 303


def test_a_broken_hash_file_locks_out_one_user_and_says_so(make: Make, hashes):
    gate = make({"alice": "not a hash", "bob": hashes["bob"]})
    assert gate.login("bob").status == 303
    assert gate.login("alice").status == 401
    assert "the password hash of alice in" in gate.log.read_text()


def test_a_missing_hash_file_locks_out_one_user_and_says_so(make: Make, hashes):
    gate = make({"alice": "missing", "bob": hashes["bob"]})
    assert gate.login("bob").status == 303
    assert gate.login("alice", "missing").status == 401
    assert "the password file of alice is missing" in gate.log.read_text()


def test_basic_is_judged_once_and_remembered(gate: Running):
    credential = basic("alice", PASSWORDS["alice"])
    first = gate.auth("/alice/", credential)
    start = time.perf_counter()
    for _ in range(20):
        again = gate.auth("/alice/", credential)
        assert again.get("x-agent-box-login") == first.get("x-agent-box-login")
    assert (time.perf_counter() - start) / 20 < 0.015
    assert first.get("x-agent-box-login") in gate.live()


def test_many_first_requests_of_one_client_are_one_check(gate: Running):
    credential = basic("alice", PASSWORDS["alice"])
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: gate.auth("/alice/", credential), range(40)))
    assert {answer.status for answer in answers} == {200}


def test_backing_off(gate: Running):
    for _ in range(4):
        assert gate.login(password="wrong").status == 401
    assert gate.login().status == 303, "four wrong ones and a right one are fine"
    assert gate.login(password="wrong").status == 401
    refused = gate.login()
    assert refused.status == 429
    assert int(refused.get("retry-after")) >= 1
    assert gate.auth("/alice/", basic("alice", PASSWORDS["alice"])).status == 429
    assert gate.login(address="203.0.113.8").status == 303, "from elsewhere alice gets in"
    assert len(gate.failures()) == 5
    time.sleep(1.1)
    assert gate.login().status == 303


def test_backing_off_of_a_whole_ipv6_network(gate: Running):
    for number in range(5):
        answer = gate.login(password="wrong", address=f"2001:db8:1:2::{number + 1:x}")
        assert answer.status == 401
    assert gate.login(address="2001:db8:1:2:ffff::9").status == 429
    assert gate.login(address="2001:db8:1:3::1").status == 303
    assert gate.failures()[0] == "agent-box-gate: failed login from 2001:db8:1:2::/64"


def test_nothing_but_the_address_reaches_the_journal(gate: Running):
    forged = "x\nagent-box-gate: failed login from 192.0.2.1"
    gate.login(forged, "wrong one", headers=[("User-Agent", "from 192.0.2.1 " + "\xff" * 9000)])
    gate.login("alice", "wrong two", address="192.0.2.1, 198.51.100.4")
    gate.login("alice", "wrong three", address="192.0.2.1 evil")
    assert gate.failures() == [
        f"agent-box-gate: failed login from {ADDRESS}",
        "agent-box-gate: failed login from 198.51.100.4",
        "agent-box-gate: failed login from an address that the edge did not tell",
    ]


def test_what_carries_no_credential_never_counts(gate: Running):
    for _ in range(20):
        gate.auth("/alice/")
        gate.auth("/alice/", HTML)
        gate.auth("/alice/", cookie("A" * 43))
        gate.send("GET", "/login", [cookie("x")])
    assert gate.failures() == []
    assert gate.login().status == 303


def test_two_hundred_wrong_passwords_at_once(gate: Running):
    gate.login("bob")
    token = gate.login().token
    before = peak(gate.process.pid)
    with concurrent.futures.ThreadPoolExecutor(210) as pool:
        storm = [
            pool.submit(gate.login, "alice", f"wrong {n}", f"198.51.{n // 50}.{n % 50 + 1}")
            for n in range(200)
        ]
        time.sleep(0.02)
        signed_in = gate.login("bob")
        while not all(attempt.done() for attempt in storm):
            assert gate.auth("/alice/", cookie(token)).status == 200
        statuses = {attempt.result().status for attempt in storm}
    assert signed_in.status == 303, "the right password is answered in the middle of it"
    assert statuses <= {401, 503}
    assert peak(gate.process.pid) < 100 * 1024
    assert peak(gate.process.pid) - before < 40 * 1024
    assert gate.login().status == 303


def test_a_storm_from_one_address_leaves_room_for_others(gate: Running):
    with concurrent.futures.ThreadPoolExecutor(210) as pool:
        storm = [pool.submit(gate.login, "alice", f"wrong {n}") for n in range(200)]
        time.sleep(0.05)
        for _ in range(5):
            assert gate.login(address="203.0.113.99").status == 303
        statuses = [attempt.result().status for attempt in storm]
    assert set(statuses) == {401, 429}
    assert statuses.count(401) == len(gate.failures()) == 5


def test_other_sites_cannot_sign_anybody_in_or_out(gate: Running):
    token = gate.login().token
    for headers in (
        [("Origin", "https://evil.example")],
        [("Origin", "null")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-site"), ("Origin", ORIGIN)],
    ):
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        assert gate.send("POST", "/login", [kind, *headers], b"user=a&password=b").status == 403
        assert gate.send("POST", "/logout", [cookie(token), *headers]).status == 403
    assert gate.send("GET", "/logout", [cookie(token)]).status == 405
    assert gate.auth("/alice/", cookie(token)).status == 200
    assert gate.failures() == []


def test_signing_out_ends_the_login(gate: Running):
    answer = gate.login()
    login_id = gate.auth("/alice/", cookie(answer.token)).get("x-agent-box-login")
    assert gate.live() == {login_id}
    out = gate.send("POST", "/logout", [cookie(answer.token), ("Origin", ORIGIN)])
    assert out.status == 303
    assert "Max-Age=0" in out.get("set-cookie")
    assert gate.auth("/alice/", cookie(answer.token)).status == 401
    assert gate.live() == set()
    assert gate.send("POST", "/logout", [("Origin", ORIGIN)]).status == 303


def test_signing_in_again_ends_the_browsers_login_before(gate: Running):
    first = gate.login().token
    second = gate.login("bob", headers=[cookie(first)]).token
    assert gate.auth("/alice/", cookie(first)).status == 401
    assert gate.auth("/bob/", cookie(second)).status == 200
    assert gate.send("GET", "/login?next=/bob/x", [cookie(second)]).get("location") == "/bob/x"


def test_first_password_with_the_code_on_the_console(make: Make):
    gate = make({})
    gate.send("GET", "/login")
    line = gate.console.read_text()
    code = re.search(r"set-up code ((?:[0-9A-Z]{4}-){3}[0-9A-Z]{4})\n", line)[1]
    assert f"https://box.example/login?setup=1#user=alice&code={code} " in line
    assert code not in gate.log.read_text()
    assert code not in (gate.state / "gate.json").read_text()
    page = gate.auth("/", HTML)
    assert page.status == 401
    assert 'name="code"' in page.text
    assert 'autocomplete="new-password"' in page.text
    fields = {"setup": "1", "user": "alice", "code": code, "new": FRESH, "again": FRESH}
    assert gate.form(fields | {"code": "AAAA-AAAA-AAAA-AAAA"}).status == 401
    assert gate.form(fields | {"user": "bob"}).status == 401
    assert len(gate.failures()) == 2
    assert gate.form(fields | {"again": "other"}).status == 422
    assert gate.form(fields | {"new": "short", "again": "short"}).status == 422
    # as somebody types it from a screen
    done = gate.form(fields | {"code": code.lower().replace("-", " ").replace("0", "O")})
    assert done.status == 303
    assert gate.auth("/alice/", cookie(done.token)).status == 200
    assert gate.form(fields).status == 401, "it works once"
    assert 'name="password"' in gate.auth("/", HTML).text


def test_no_password_means_nobody_enters(make: Make):
    gate = make({})
    assert gate.login("alice", "").status == 401
    assert gate.login("alice", "anything at all").status == 401
    assert gate.auth("/alice/", basic("alice", "x")).status == 401
    assert gate.auth("/alice/", cookie("")).status == 401


def test_requests_are_bounded(gate: Running):
    kind = ("Content-Type", "application/x-www-form-urlencoded")
    big = gate.send("POST", "/login", [kind, ("Origin", ORIGIN)], b"a" * 20_000)
    assert big.status == 413
    chunks = b"".join(b"1000\r\n" + b"a" * 0x1000 + b"\r\n" for _ in range(8)) + b"0\r\n\r\n"
    from .conftest import raw

    head = (
        b"POST /login HTTP/1.1\r\nHost: x\r\nOrigin: https://box.example\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert raw(gate.socket, head + chunks).status == 413
    assert gate.send("GET", "/login", [("X-Long", "a" * 70_000)]).status in (400, 431)
    assert gate.send("POST", "/login", [("Origin", ORIGIN)], b"{}").status == 400
    bad = gate.send("POST", "/login", [kind, ("Origin", ORIGIN)], b"user=%ff&password=%ff")
    assert bad.status == 400
    assert gate.failures() == []


def test_no_secret_is_ever_written_down(gate: Running):
    token = gate.login().token
    gate.login(password="a wrong secret")
    gate.auth("/alice/", basic("bob", "another wrong secret"))
    gate.call("POST", "/gate/password", token, {"current": "third wrong", "new": FRESH})
    gate.call("POST", "/gate/password", token, {"current": PASSWORDS["alice"], "new": FRESH})
    gate.stop()
    written = "".join(
        path.read_text() for path in (gate.log, gate.console, gate.state / "gate.json")
    )
    for secret in (token, "wrong", FRESH, *PASSWORDS.values()):
        assert secret not in written
    assert (gate.state / "gate.json").stat().st_mode & 0o777 == 0o600


def test_it_starts_fast_and_stops_at_once(gate: Running):
    eventually(lambda: gate.send("GET", "/login").status == 200)
    start = time.monotonic()
    assert gate.stop() in (0, -15)
    assert time.monotonic() - start < 2


def test_it_tells_its_addresses_and_touches_nothing(gate: Running):
    def kept() -> dict[Path, bytes]:
        folders = (gate.state, gate.runtime)
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files}

    gate.login("alice")
    before = kept()
    assert before
    environment = {**os.environ, "PYTHONPATH": str(SRC), "AGENT_BOX_CONFIG": str(gate.config)}
    command = [sys.executable, "-c", "from agent_box.gate.service import main; main()", "--routes"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "POST /gate/password" in told.stdout.splitlines()
    assert kept() == before
