"""What the edge serves itself, as it is written when the system is built."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from agent_box.web import assets, pages

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
