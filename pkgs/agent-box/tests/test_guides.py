"""Links to the guide: made where nothing is, never in a checkout."""

from __future__ import annotations

import pytest

from agent_box import guides


@pytest.fixture
def guide(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_BOX_GUIDES", str(tmp_path / "etc"))
    path = guides.path_of("alice")
    path.parent.mkdir()
    path.write_text("welcome\n")
    return path


def test_link_is_made_once(guide, tmp_path):
    place = tmp_path / "home/.claude/CLAUDE.md"
    for _ in range(2):
        guides.link(place, "alice")
        assert place.readlink() == guide
        assert place.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["file", "dangling", "directory"])
def test_what_is_there_stays(guide, tmp_path, kind):
    place = tmp_path / "AGENTS.md"
    if kind == "file":
        place.write_text("mine")
    elif kind == "dangling":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
    guides.link(place, "alice")
    assert (place.read_text() == "mine") if kind == "file" else True
    assert not place.is_symlink() or str(place.readlink()) == "nowhere"


@pytest.mark.parametrize("marker", ["directory", "worktree"])
def test_no_link_in_a_checkout(guide, tmp_path, marker):
    dotfiles = tmp_path / "dotfiles"
    (dotfiles / "claude").mkdir(parents=True)
    if marker == "directory":
        (dotfiles / ".git").mkdir()
    else:
        (dotfiles / ".git").write_text("gitdir: elsewhere\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".claude").symlink_to(dotfiles / "claude")
    guides.link(home / ".claude/CLAUDE.md", "alice")
    assert list((dotfiles / "claude").iterdir()) == []


def test_link_goes_with_the_guide(guide, tmp_path):
    place, other = tmp_path / "ours", tmp_path / "other"
    guides.link(place, "alice")
    other.symlink_to("elsewhere")
    guide.unlink()
    guides.link(place, "alice")
    guides.link(other, "alice")
    assert not place.is_symlink()
    assert other.is_symlink()


def test_a_place_that_cannot_be_written_is_no_error(guide, tmp_path):
    (tmp_path / "file").write_text("")
    guides.link(tmp_path / "file/CLAUDE.md", "alice")
