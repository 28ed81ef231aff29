"""Sessions in the config are seeds: they are sown once, and then the list is the user's."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from agent_box_harness import outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_box_harness.box import Box


SEEDS = "/etc/agent-box/seeds/{}.json"


@pytest.fixture
def _document(box: Box) -> Iterator[None]:
    """The box's documents are what they were before."""
    before = {user: _sown(box, user) for user in box.users}
    yield
    for user, seed in before.items():
        _sow(box, user, seed)


@pytest.mark.renewed
def test_first_boot_sows_the_seed(box: Box) -> None:
    """The first boot lists exactly the sessions of the config, each with an id of its own, and
    they run.
    """
    ids = set()
    for user in box.users:
        seed = _sown(box, user)
        listed = box.registry(user)["sessions"]
        assert listed.keys() == seed.keys()
        for name, wanted in seed.items():
            ids.add(str(uuid.UUID(listed[name].pop("boxSessionId"))))
            given = {key: value for key, value in listed[name].items() if value is not None}
            assert given == {key: value for key, value in wanted.items() if value is not None}
            box.wait_session(user, name, "running")
        owner = box.succeed(f"stat -c '%U %a' {_registry(box, user)}")
        assert owner.strip() == f"{user} 600"
    assert len(ids) == sum(len(_sown(box, user)) for user in box.users)


@pytest.mark.shared
def test_a_seed_is_the_own_users(box: Box) -> None:
    """A user reads the own seed, which may hold prompts, and not that of another user."""
    for user, other in (("alice", "bob"), ("bob", "alice")):
        for run in (box.as_user, box.in_session):
            run(user, f"cat {SEEDS.format(user)}").check()
            assert run(user, f"cat {SEEDS.format(other)}").rc != 0
    assert all("seed" not in told for told in box.document["users"].values())


@pytest.mark.renewed
@pytest.mark.usefixtures("_document")
def test_reactivation_keeps_the_list(box: Box) -> None:
    """A rebuild with other seeds, as it reloads systemd and restarts the supervisors, changes no
    byte of any list, starts nothing and ends nothing.
    """
    box.ctl("alice", "add mine --agent shell").check()
    box.ctl("alice", "rm main").check()
    box.wait_session("bob", "main", "running")
    before = {user: _state(box, user) for user in box.users}
    assert list(before["alice"][1]) == ["mine"]

    _sow(box, "alice", {"main": _seed("claude"), "mine": _seed("claude"), "new": _seed("shell")})
    _sow(box, "bob", {"main": _seed("claude")})
    _reactivate(box)

    for user in box.users:
        _adopted(box, user)
        assert _state(box, user) == before[user]


@pytest.mark.renewed
@pytest.mark.usefixtures("_document")
def test_an_emptied_list_stays_empty(box: Box) -> None:
    """Who removes every session has none after a rebuild either."""
    box.ctl("alice", "rm main").check()
    before = box.read(_registry(box, "alice"))
    _sow(box, "alice", {"main": _seed("shell"), "other": _seed("shell")})
    _reactivate(box)
    # Also what a boot starts anew: the sandbox.
    box.succeed(f"systemctl restart {outside.sandbox('alice')} {outside.supervisor('alice')}")
    box.wait_for("an answer", lambda: box.ctl("alice", "status").rc == 0)
    assert box.sessions("alice") == []
    assert box.read(_registry(box, "alice")) == before


@pytest.mark.needs("reboot")
def test_reboot_keeps_the_list(box: Box) -> None:
    """A reboot changes no byte of the list; what is listed runs again, under the same ids."""
    box.ctl("alice", "add mine --agent shell").check()
    box.ctl("alice", "add parked --agent shell").check()
    box.ctl("alice", "stop parked").check()
    box.ctl("alice", "rm main").check()
    before = box.read(_registry(box, "alice"))
    ids = {view["name"]: view["id"] for view in box.sessions("alice")}
    box.reboot()
    box.wait_ready()
    box.wait_session("alice", "mine", "running")
    assert box.read(_registry(box, "alice")) == before
    assert {view["name"]: view["id"] for view in box.sessions("alice")} == ids
    assert box.session("alice", "parked")["state"] == "stopped"
    assert list(outside.panes(box, "alice")) == ["mine"]


def _registry(box: Box, user: str) -> str:
    return f"{box.home(user)}/.config/agent-box/sessions.json"


def _state(box: Box, user: str) -> tuple[str, dict[str, int]]:
    panes = outside.panes(box, user)
    return box.read(_registry(box, user)), {name: pane.pid for name, pane in panes.items()}


def _adopted(box: Box, user: str) -> None:
    box.wait_for(
        f"the supervisor of {user} to have adopted what runs",
        lambda: "adopted" in outside.journal(box, outside.supervisor(user)),
    )


def _seed(agent: str) -> dict[str, Any]:
    return {"agent": agent, "initialPrompt": None, "workingDirectory": None}


def _sown(box: Box, user: str) -> dict[str, Any]:
    seed: dict[str, Any] = json.loads(box.read(SEEDS.format(user)))
    return seed


def _sow(box: Box, user: str, seed: dict[str, Any]) -> None:
    """Put another seed into the box's document, as a rebuild with other options does."""
    box.write_file(SEEDS.format(user), json.dumps(seed), mode=0o400)
    box.succeed(f"chown {user}: {SEEDS.format(user)}")


def _reactivate(box: Box) -> None:
    """What switching to a new configuration does to our units: it leaves the sandboxes alone."""
    units = " ".join(outside.supervisor(user) for user in box.users)
    box.succeed(f"systemctl daemon-reload; systemctl restart {units}")
