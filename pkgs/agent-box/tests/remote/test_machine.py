"""The states of a codex pane with remote control, with a world that answers as told."""

from __future__ import annotations

import pytest

from agent_box.remote import machine
from agent_box.remote.machine import Machine

INVALIDATED = (
    "Error: remoteControl/pairing/start failed: HTTP 401 Unauthorized: "
    '{"error":{"message":"Your authentication token has been invalidated. Please try signing in '
    'again.","code":"token_invalidated"}}'
)
ENROL = "Error: remote control pairing is unavailable until enrollment completes\n\nStack:\n 0: x"
NETWORK = "Error: error sending request for url (https://chatgpt.com/backend-api/x)"
OK = "Enter this pairing code on your other device: PAIR-4711"


class World:
    """A port whose answers are lists: the last one is repeated."""

    def __init__(self, *, signed_in=True, pairs=((0, OK),), sign_ins=(None,), up=(True,)):
        self.is_signed_in = signed_in
        self.pairs, self.sign_ins, self.ups = list(pairs), list(sign_ins), list(up)
        self.calls = []
        self.shown = []
        self.lines = []

    def show(self, shown):
        self.shown.append(shown)

    def up(self):
        return self.ups.pop(0) if len(self.ups) > 1 else self.ups[0]

    def signed_in(self):
        self.calls.append("status")
        return self.is_signed_in

    def sign_in(self):
        self.calls.append("sign-in")
        problem = self.sign_ins.pop(0) if len(self.sign_ins) > 1 else self.sign_ins[0]
        self.is_signed_in = self.is_signed_in or problem is None
        return problem

    def renew(self):
        self.calls.append("renew")

    def pair(self):
        self.calls.append("pair")
        return self.pairs.pop(0) if len(self.pairs) > 1 else self.pairs[0]

    def read(self, seconds):
        self.calls.append("read")
        return self.lines.pop(0) if self.lines else None

    def pause(self, seconds):
        self.calls.append("pause")

    def count(self, call):
        return self.calls.count(call)

    @property
    def state(self):
        return self.shown[-1].state


def onboard(world):
    found = Machine(world, "agent-box-codex-alice")
    found.onboard()
    return found


def test_signed_in_comes_to_a_code():
    world = World()
    onboard(world)
    assert world.state == "paired"
    assert world.shown[-1].code == "PAIR-4711"
    assert world.count("sign-in") == 0


def test_signed_out_signs_in_and_pairs_with_a_new_server():
    world = World(signed_in=False)
    onboard(world)
    assert world.calls == ["status", "sign-in", "renew", "pair"]
    assert world.state == "paired"


def test_sign_in_that_fails_is_offered_again():
    world = World(signed_in=False, sign_ins=["the code has expired", None])
    found = onboard(world)
    assert world.state == "signed-out"
    assert "the code has expired" in world.shown[-1].text
    assert world.count("pair") == 0
    world.lines = ["\n"]
    found.step()
    assert world.state == "paired"


def test_invalidated_token_is_answered_by_one_sign_in():
    world = World(pairs=[(1, INVALIDATED), (0, OK)])
    onboard(world)
    assert world.count("pair") == 2
    assert world.count("sign-in") == 1
    assert world.state == "paired"
    text = " ".join(shown.text for shown in world.shown)
    assert "Your authentication token has been invalidated." in text
    assert "401" not in text
    assert "pause" not in world.calls


def test_refused_for_good_is_said_once():
    world = World(pairs=[(1, INVALIDATED)])
    found = onboard(world)
    assert world.count("sign-in") == 1
    assert world.count("pair") == 2
    assert world.state == "refused"
    assert "account" in world.shown[-1].text
    # Enter does not start a second automatic one
    world.lines = ["\n"]
    found.step()
    assert world.count("sign-in") == 1
    assert world.state == "refused"


def test_pairing_opens_the_next_cycle():
    world = World(pairs=[(1, INVALIDATED), (0, OK), (1, INVALIDATED), (0, OK)])
    found = onboard(world)
    world.lines = ["\n"]
    found.step()
    assert world.count("sign-in") == 2
    assert world.state == "paired"


@pytest.mark.parametrize("trouble", [ENROL, NETWORK, "", "Error: timed out waiting for relay"])
def test_other_trouble_never_touches_the_sign_in(trouble):
    world = World(pairs=[(1, trouble)])
    onboard(world)
    assert world.count("pair") == 3
    assert world.count("sign-in") == 0
    assert world.state == "trouble"
    assert "Press Enter" in world.shown[-1].text
    assert "https://" not in world.shown[-1].text


def test_race_just_after_boot_passes():
    world = World(pairs=[(1, ENROL), (1, ENROL), (0, OK)])
    onboard(world)
    assert world.state == "paired"


@pytest.mark.parametrize("word", ["login", "relogin", "LOGOUT "])
def test_typed_word_forces_a_sign_in(word):
    world = World()
    found = onboard(world)
    world.lines = [word + "\n"]
    found.step()
    assert world.count("sign-in") == 1
    assert world.count("renew") == 1
    assert world.state == "paired"


def test_sign_in_from_elsewhere_is_noticed():
    world = World(signed_in=False, sign_ins=["given up"])
    found = onboard(world)
    found.step()
    assert world.state == "signed-out"
    world.is_signed_in = True
    found.step()
    assert world.state == "paired"
    assert world.count("renew") == 1
    before = world.count("status")
    found.step()
    assert world.count("status") == before  # not asked for any more


def test_dead_server_is_told_and_its_return_noticed():
    world = World(up=[True, False, *[False] * 45, True])
    found = Machine(world, "agent-box-codex-alice")
    found.await_server()
    found.step()
    states = [shown.state for shown in world.shown]
    assert states[0] == "down"
    assert "agent-box-codex-alice" in world.shown[0].text
    assert states[-1] == "paired"


def test_reason_is_never_the_transcript():
    assert machine.reason(INVALIDATED).startswith("Your authentication token")
    assert machine.reason("HTTP 401 Unauthorized, secret stuff") == (
        "OpenAI does not take the sign-in of this box any more."
    )
    assert not machine.refused("timed out waiting for the relay after 401 ms")
