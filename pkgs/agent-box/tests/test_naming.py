"""Names: what can be made, what can be removed, what the box picks itself."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box import naming
from agent_box.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

CHARS = string.ascii_letters + string.digits + "-_"
HOME = "/home/alice"


@pytest.mark.parametrize(
    "name", ["main", "a", "9", "A-b_c", "x" * 150, "hook-acme-repo-12ab", "a_"]
)
def test_names_that_can_be_made(name):
    assert naming.check_new(name) == name
    assert naming.is_valid(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        ("-x", "'-'"),
        ("_connect-claude", "reserved"),
        ("x" * 151, "150"),
        ("a b", "letters"),
        ("a.b", "letters"),
        ("a:b", "letters"),
        ("é", "letters"),
        ("٣", "letters"),
        ("main\n", "letters"),
        ("../x", "letters"),
    ],
)
def test_names_that_cannot_be_made(name, says):
    with pytest.raises(UsageError, match=says):
        naming.check_new(name)
    assert not naming.is_valid(name)


def test_hand_made_names_can_still_be_removed():
    for name in ("x" * 151, "_connect-claude", "-x"):
        assert naming.check_existing(name) == name
    with pytest.raises(UsageError):
        naming.check_existing("a b")


@given(st.text())
def test_one_rule_in_both_forms(name):
    try:
        naming.check_new(name)
    except UsageError as error:
        assert not naming.is_valid(name)
        assert str(error).isprintable()
    else:
        assert naming.is_valid(name)
        assert set(name) <= set(CHARS)


def test_derivation_prefers_the_agent_then_the_directory():
    assert naming.derive("codex", HOME, HOME, set()) == "codex"
    assert naming.derive("codex", "/srv/my proj.v2", HOME, {"codex"}) == "my-proj-v2"
    assert naming.derive("codex", "/srv/app", HOME, {"codex", "app"}) == "app-2"
    taken = {"codex", "app", *(f"app-{count}" for count in range(2, 10))}
    name = naming.derive("codex", "/srv/app", HOME, taken)
    assert name.startswith("codex-")
    assert len(name) == len("codex-") + 4


def test_derivation_ignores_the_home_directory_and_useless_names():
    for cwd in (HOME, f"{HOME}/", "/", "/srv/---", "/srv/___", "/srv/" + "x" * 149):
        assert naming.derive("pi", cwd, HOME, {"pi"}).startswith("pi-")
    assert naming.derive("pi", "/srv/_x", HOME, {"pi"}) == "x"


def test_derivation_knows_home_behind_a_link(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    link = tmp_path / "link"
    link.symlink_to(home)
    assert naming.derive("pi", link, home, {"pi"}).startswith("pi-")


@given(
    agent=st.sampled_from(["claude", "codex", "opencode", "pi", "shell"]),
    directory=st.text(
        st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=200
    ),
    taken=st.sets(st.text(CHARS, min_size=1, max_size=6)),
)
def test_derived_names_are_free_and_can_be_made(agent, directory, taken):
    name = naming.derive(agent, f"/srv/{directory}", HOME, taken | {agent})
    assert naming.is_valid(name)
    assert name not in taken | {agent}


def test_agents_are_checked_against_what_is_installed():
    assert naming.check_agent("codex", ["codex"]) == "codex"
    assert naming.check_agent("shell", []) == "shell"
    with pytest.raises(UsageError, match=r"not an agent of this box.*claude, shell"):
        naming.check_agent("codex", ["claude"])
    with pytest.raises(UsageError, match="not an agent"):
        naming.check_agent("emacs", ["claude"])
