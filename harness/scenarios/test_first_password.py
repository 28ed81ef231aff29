"""The first password: from the console of the box, or from a file that its owner has put there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from agent_box_harness import browser
from agent_box_harness.edge import PASSWORDS, Ask, Edge, with_cookie
from agent_box_harness.plugin import run_key

if TYPE_CHECKING:
    from agent_box_harness.box import Box

pytestmark = pytest.mark.limit(180)

GATE = "agent-box-gate.service"
NEW = "cobalt Heron/lantern-wüste-29"
HASH_FILE = "/etc/agent-box-secrets/bob"  # as hosts/test.nix names it


def announced(box: Box) -> list[str]:
    """Return the codes that the gate has printed, the last one last."""
    said = box.succeed(f"journalctl -b -u {GATE} -o cat --no-pager")
    return re.findall(r"set-up code ((?:[0-9A-Z]{4}-){3}[0-9A-Z]{4})$", said, re.MULTILINE)


@pytest.mark.skipif(browser.missing() is not None, reason=browser.missing() or "")
def test_from_the_console(box: Box, request: pytest.FixtureRequest) -> None:
    """A new box prints a code where only who owns it reads. With the code, on a phone and without
    any script, one chooses a password and is in; the code is dead then, users cannot read it, and
    nobody gets in without it. It is the same until then, whoever starts again or asks; the link
    beside it fills it in and leaves it nowhere.
    """
    box.wait_for_unit("caddy.service")
    box.succeed(f"systemctl restart {GATE}")
    box.wait_until_succeeds("agent-box-gate status")
    *before, code = announced(box)
    assert before
    assert set(before) == {code}
    assert box.succeed("agent-box-gate setup-code alice").strip().endswith(code)
    # The console of the machine, and not the journal alone.
    box.wait_for("the code on the console", lambda: code in box.machine.console())
    for user in box.users:
        for where in (box.as_user(user, "journalctl -b -o cat"), box.in_session(user, "dmesg")):
            assert code not in where.out
    edge = Edge(box)
    form = edge.form("alice", "")
    fields = urlencode({"setup": "1", "user": "alice", "new": NEW, "again": NEW}) + "&code="
    guesses = [Ask("/login", "POST", form.headers, fields + each) for each in (code[:-1], "A" * 19)]
    assert {answer.status for answer in edge.ask(guesses)} == {401}
    edge.box.succeed("agent-box-gate unban --all")

    pictures = request.config.stash[run_key].folder / request.node.name
    with browser.visit(box, pictures) as visitor:
        linked = visitor.somebody().new_page()
        linked.goto(f"{visitor.origin}/login?setup=1#user=alice&code={code}")
        linked.wait_for_function("() => document.activeElement.id === 'new'")
        assert linked.get_by_label("User").input_value() == "alice"
        assert linked.get_by_label("Set-up code").input_value() == code
        assert linked.url == f"{visitor.origin}/login?setup=1"
        visitor.picture(linked, "from-the-link")
        phone = {"viewport": browser.PHONE, "has_touch": True, "is_mobile": True}
        here = visitor.somebody(java_script_enabled=False, **phone).new_page()
        here.goto(f"{visitor.origin}/alice/settings/")
        assert here.get_by_label("User").input_value() == "alice"
        here.get_by_label("Set-up code").fill(code.lower().replace("-", " "))
        here.get_by_label("New password", exact=True).fill(NEW)
        here.get_by_label("New password again").fill(NEW[::-1])
        visitor.picture(here, "set-up")
        here.get_by_role("button", name="Set password").click()
        here.get_by_role("alert").wait_for()
        # What is not secret is still there.
        assert here.get_by_label("User").input_value() == "alice"
        here.get_by_label("Set-up code").fill(code)
        here.get_by_label("New password", exact=True).fill(NEW)
        here.get_by_label("New password again").fill(NEW)
        here.get_by_role("button", name="Set password").click()
        here.wait_for_url(f"{visitor.origin}/alice/settings/")

        other = visitor.somebody(java_script_enabled=False).new_page()
        visitor.sign_in(other, "alice", "not the password")
        other.get_by_role("alert").wait_for()
        visitor.picture(other, "no-script")
        visitor.sign_in(other, "alice", NEW)
        other.wait_for_url(f"{visitor.origin}/alice/")
    used = Ask("/login", "POST", form.headers, fields + code)
    assert edge.ask([used])[0].status == 401
    assert edge.ask([edge.form("alice", NEW)])[0].status == 303
    box.succeed(f"systemctl restart {GATE}")
    box.wait_until_succeeds("agent-box-gate status")
    assert announced(box)[-1] == code


def test_from_a_file(box: Box) -> None:
    """The file of a user's hash, which only root reads, is that user's first password and counts
    once; while it is missing, the others get in all the same, and the journal says what is wrong.
    """
    edge = Edge(box)
    box.wait_for_unit("caddy.service")
    said = f"journalctl -b -u {GATE} -o cat --no-pager"
    assert f"the password file of bob is missing: {HASH_FILE}" in box.succeed(said)
    edge.set_password("alice")
    assert edge.ask([edge.form("alice", PASSWORDS["alice"])])[0].status == 303
    assert edge.ask([edge.form("bob", "missing")])[0].status == 401

    # as the README says; the program that is the edge
    caddy = box.succeed("readlink /proc/$(systemctl show -P MainPID caddy.service)/exe").strip()
    box.succeed(f"install -d -m 0700 {HASH_FILE.rpartition('/')[0]}")
    hashing = f"umask 077; {caddy} hash-password --algorithm argon2id >{HASH_FILE}"
    box.run(hashing, stdin=PASSWORDS["bob"] + "\n").check(hashing)
    assert box.succeed(f"stat -c '%a %U' {HASH_FILE}").strip() == "600 root"
    box.succeed(f"systemctl restart {GATE}")
    box.wait_until_succeeds("agent-box-gate status")
    cookie = edge.sign_in("bob")
    edge.box.run("agent-box-gate set-password bob", stdin=NEW + "\n").check("set-password")
    assert edge.ask([Ask("/bob/", headers=with_cookie(cookie))])[0].status == 401
    box.succeed(f"systemctl restart {GATE}")
    box.wait_until_succeeds("agent-box-gate status")
    old, new = edge.ask([edge.form("bob", PASSWORDS["bob"]), edge.form("bob", NEW)])
    assert (old.status, new.status) == (401, 303)
