"""Codex remote control: one app-server per user in a unit of its own, and panes that lead to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from agent_box_harness import outside
from agent_box_harness.vendors import Vendors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box

pytestmark = [pytest.mark.limit(180), pytest.mark.renewed("module")]

USER = "alice"
UNIT = f"agent-box-codex-{USER}.service"
PAGE = "https://auth.openai.com/codex/device"


@pytest.fixture
def vendors(box: Box) -> Iterator[Vendors]:
    """A codex that is a stub, nobody signed in, no session that refers to the app-server.

    So are the others, which the card of codex asks as well.
    """
    stopped(box)
    box.succeed(f"cd {box.home(USER)} && rm -rf .vendor .codex")
    found = Vendors(box, USER)
    found.use(*box.document["agents"])
    yield found
    for agent in box.document["agents"]:
        box.use_real(agent)
    for session in box.sessions(USER):
        if session["agent"] == "codex":
            box.ctl(USER, f"rm {session['name']}").check()


def active(box: Box) -> str:
    return str(box.run(f"systemctl is-active {UNIT}").out)


def stopped(box: Box) -> None:
    box.wait_for("the end of the app-server", lambda: active(box) == "inactive")


def shows(box: Box, name: str, text: str) -> None:
    box.wait_for(f"{text!r} in {name}", lambda: text in box.pane_text(USER, name), 40)


def server(box: Box) -> int:
    """The process of the app-server, which is the only child of the unit's program."""
    main = box.succeed(f"systemctl show -P MainPID {UNIT}").strip()
    return int(box.succeed(f"pgrep -P {main}").strip())


def test_from_nothing_to_a_pairing_code(box: Box, vendors: Vendors) -> None:
    """A session on a box where nobody is signed in shows page and code by itself, the card shows
    the same, and when the person is done a pairing code follows. The unit starts with the first
    session that refers to it and ends with the last.
    """
    assert active(box) == "inactive"
    vendors.steer("codex", code="ABCD-12345", until="done")
    box.ctl(USER, "add apps --agent codex").check()
    view = box.wait_session(USER, "apps", "waiting")
    box.wait_for("page and code", lambda: "ABCD-12345" in box.pane_text(USER, "apps"), 40)
    shows(box, "apps", PAGE)
    view = box.session(USER, "apps")
    assert "sign-in needed" in view["reason"]
    card = vendors.until("codex", "waiting", code="ABCD-12345", url=PAGE)
    assert card["remote"]["state"] == "signin"
    assert active(box) == "active"
    # It shares the limits of its user with the sandbox (test_limits.py).
    whole = outside.group(box, f"agent-box-{USER}.slice")
    for unit in (UNIT, outside.sandbox(USER)):
        assert outside.group(box, unit).startswith(f"{whole}/")

    box.as_user(USER, "touch ~/.vendor/done").check()
    shows(box, "apps", "PAIR-4711")
    card = vendors.card("codex")
    assert card["state"] == "connected"
    assert (card["remote"]["state"], card["remote"]["code"]) == ("paired", "PAIR-4711")
    box.wait_session(USER, "apps", "running")

    # a second session is another view of the same app-server
    before = server(box)
    box.ctl(USER, "add more --agent codex").check()
    shows(box, "more", "PAIR-4711")
    box.ctl(USER, "rm apps").check()
    assert server(box) == before
    box.ctl(USER, "rm more").check()
    stopped(box)


def test_apps_see_the_public_name(box: Box, vendors: Vendors) -> None:
    """The app-server runs under the public name of the box, whatever the kernel calls it."""
    label = box.document["box"]["hostLabel"]
    kept = box.succeed("hostname").strip()
    box.succeed("hostname ip-10-0-0-7")
    try:
        box.ctl(USER, "add apps --agent codex").check()
        box.wait_for("the app-server", lambda: active(box) == "active")
        starts = box.wait_for(
            "its start", lambda: [i for i in vendors.log() if i["argv"][:1] == ["app-server"]]
        )
        assert starts[0]["host"] == label
        assert starts[0]["argv"] == ["app-server", "--remote-control", "--listen", "unix://"]
        # one wall around it as around the sessions
        main = box.succeed(f"systemctl show -P MainPID {UNIT}").strip()
        assert box.run(f"nsenter -t {main} -m ls /home").out.split() == [USER]
    finally:
        box.succeed(f"hostname {kept}")


@pytest.mark.usefixtures("vendors")
def test_unit_tells_nothing_of_other_people(box: Box) -> None:
    """systemd looks with the rights of root whether a session refers to the app-server. No link of
    a user's leads its eye into a directory of somebody else: the unit would start if that is not
    empty, and so tell.
    """
    place, runtime = f"/run/agent-box-codex/{USER}", f"/run/agent-box-{USER}"
    box.succeed("install -d -m 0700 -o bob -g bob /home/bob/private && touch /home/bob/private/x")
    try:
        for run in (box.as_user, box.in_session):
            for there in (place, f"{runtime}/codex"):
                run(USER, f"rm -rf {there}; ln -sfnT /home/bob/private {there}")
            assert run(USER, f"test -L {place}").rc != 0
            assert run(USER, f"touch {place}/x && rm -f {place}/x").rc == 0
        time.sleep(2 * box.machine.time_factor)
        assert active(box) == "inactive"
    finally:
        box.succeed(f"rm -rf /home/bob/private {runtime}/codex")


def test_app_server_that_dies_comes_back(box: Box, vendors: Vendors) -> None:
    """The unit brings it back, the pane says so and goes on; the session is not restarted."""
    vendors.credential(".codex/auth.json")
    box.ctl(USER, "add apps --agent codex").check()
    shows(box, "apps", "PAIR-4711")
    view, pid = box.session(USER, "apps"), server(box)
    vendors.steer("codex", pair=["network"])
    box.succeed(f"kill -9 {pid}")
    shows(box, "apps", "No pairing code could be had")
    assert server(box) != pid
    after = box.session(USER, "apps")
    assert (after["pid"], after["restarts"]) == (view["pid"], 0)


def test_invalidated_token_is_replaced_once(box: Box, vendors: Vendors) -> None:
    """The backend refuses the token: one new sign-in happens by itself, the app-server is started
    with it, and a second refusal is said rather than answered. Nobody is signed out meanwhile.
    """
    vendors.credential(".codex/auth.json")
    vendors.steer("codex", code="ABCD-12345", pair=["invalidated", "ok", "invalidated"])
    box.ctl(USER, "add apps --agent codex").check()
    shows(box, "apps", "PAIR-4711")
    logins = [i for i in vendors.log() if "--device-auth" in i["argv"]]
    assert len(logins) == 1
    assert not [i for i in vendors.log() if i["argv"] == ["logout"]]
    box.expect_in(box.read(f"{box.home(USER)}/.codex/auth.json"), "tok-")

    box.tmux(USER, "send-keys -t =apps: Enter").check()
    shows(box, "apps", "it is the account")
    text = box.pane_text(USER, "apps")
    box.expect_in(text, "Your authentication token has been invalidated.")
    box.expect_not_in(text, "401")
    assert len([i for i in vendors.log() if "--device-auth" in i["argv"]]) == 2


def test_kickoff_prompt_is_delivered(box: Box, vendors: Vendors) -> None:
    """A prompt for a codex session is never swallowed by remote control, which takes none: codex
    itself gets it, once, through a restart too.
    """
    assert vendors.log() == []
    box.use_stub("codex")
    box.ctl(USER, "add task --agent codex --prompt 'the first task'").check()
    box.wait_for("the prompt", lambda: box.stub_prompts(USER))
    box.ctl(USER, "restart task").check()
    box.wait_session(USER, "task", "running")
    prompts = [item["prompt"] for item in box.stub_prompts(USER)]
    assert len([text for text in prompts if "the first task" in text]) == 1
    assert active(box) == "inactive"
    assert outside.alive(box, box.session(USER, "task")["pid"])
