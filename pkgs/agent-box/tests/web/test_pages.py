"""What the edge serves itself, as it is written when the system is built."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from agent_box.web import assets, keep, pages

TERMINAL = b"<!DOCTYPE html><title>x</title><script>one()</script><body></body>"


@pytest.fixture
def made(tmp_path):
    pages.build(tmp_path / "out", "box.test", ["alice", "bob"], TERMINAL)
    return tmp_path / "out"


def test_pages_of_each_user(made):
    for user in ("alice", "bob"):
        for name in ("workspace", "settings", "downloads"):
            page = (made / f"pages/{user}/{name}.html").read_text()
            assert f'data-user="{user}" data-host="box.test"' in page
            assert not re.search(r"<script>|style=|\bon[a-z]+=|[$]", page)
            for link in re.findall(r'(?:href|src)="(/[^"]+/assets/[^"]+)"', page):
                assert (made / link.removeprefix(f"/{user}/")).is_file(), link


def test_scripts_lie_under_a_name_of_their_content(made):
    names = {path.name for path in (made / "assets" / assets.version()).iterdir()}
    assert names == {path.name for path in (made / "assets/current").iterdir()}
    assert {"core.js", "app.css", "icon.svg", "box.webmanifest"} <= names
    assert not any(name.endswith(".html") for name in names)


def test_the_terminal_may_run_its_own_script_alone(made):
    rules = (made / "terminal/page.caddy").read_text()
    # printf %s 'one()' | openssl dgst -sha256 -binary | base64
    assert "script-src 'sha256-HR7iaask9daLMRRskMI++QeJtjWDOjyPA6lGzYGzKW4=';" in rules
    assert (made / "terminal/index.html").read_bytes() == TERMINAL


@pytest.mark.parametrize(
    "page", [b"<h1>404</h1>", b'<script src="x.js"></script>', b"<script>a</script><script async>"]
)
def test_a_page_that_is_not_ttyds_is_refused(tmp_path, page):
    with pytest.raises(pages.NotATerminalError):
        pages.build(tmp_path, "box.test", ["alice"], page)


def test_a_program_that_is_not_ttyd_is_refused(tmp_path):
    program = shutil.which("false")
    command = [sys.executable, "-m", "agent_box.web.pages", str(tmp_path), "--host", "x"]
    done = subprocess.run(
        [*command, "--ttyd", program, "alice"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ttyd does not start" in done.stderr


def test_scripts_of_earlier_versions_are_kept_for_open_pages(made, tmp_path):
    place = tmp_path / "kept"
    keep.keep(made, place, now=0.0)
    first = place / "assets" / assets.version()
    assert (first / "core.js").read_bytes() == (made / "assets/current/core.js").read_bytes()
    # An update, and what an interrupted one left.
    later = made / "assets/0123456789abcdef"
    (made / "assets" / assets.version()).rename(later)
    (made / "assets/current").unlink()
    (made / "assets/current").symlink_to(later.name)
    (place / "assets/.half").mkdir()
    keep.keep(made, place, now=100.0)
    names = {path.name for path in (place / "assets").iterdir()}
    assert names == {assets.version(), later.name}
    # Once more at each boot: what is present never grows old.
    keep.keep(made, place, now=keep.AGE + 50)
    assert [path.name for path in (place / "assets").iterdir()] == [later.name]
    for number in range(keep.MOST + 5):
        (place / f"assets/{number}").mkdir()
    keep.keep(made, place, now=keep.AGE + 60)
    assert later.name in {path.name for path in (place / "assets").iterdir()}
    assert len(list((place / "assets").iterdir())) <= keep.MOST + 1


def test_the_edge_can_read_what_is_kept(made, tmp_path):
    keep.keep(made, tmp_path / "kept", now=0.0)
    for path in (tmp_path / "kept").rglob("*"):
        assert path.stat().st_mode & 0o004, path
