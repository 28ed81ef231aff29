"""The directory picker shows the home and nothing else, whatever is asked and linked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_box.web import places
from agent_box.web.answers import Refusal


@pytest.fixture(scope="module")
def home():
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "alice"
        other = Path(directory) / "alice-other/secret"
        for path in (root / "a/b c/.hidden", root / "z", other):
            path.mkdir(parents=True)
        (root / "file").touch()
        (root / "out").symlink_to("/")
        (root / "sibling").symlink_to(other)
        (root / "a/up").symlink_to("../..")
        (root / "a/back").symlink_to(root / "z")
        (root / "loop").symlink_to("loop")
        yield root


_PARTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "~",
        "a",
        "b c",
        "out",
        "up",
        "back",
        "loop",
        "sibling",
        "z",
        "file",
        "etc",
        "\u202e",
        "x" * 300,
    ]
)
_START = st.sampled_from(["", "/", "~/", "//"])
_JOINED = st.builds(
    lambda start, parts: start + "/".join(parts), _START, st.lists(_PARTS, max_size=8)
)
_PATHS = st.one_of(st.text(max_size=60), _JOINED)


@given(text=_PATHS)
@settings(max_examples=400)
def test_nothing_leads_out(home, text):
    root = os.path.realpath(home)
    for wanted in (text, f"{home}/{text}"):
        try:
            found = places.listing(home, wanted)
        except Refusal as error:
            assert error.status in (400, 404)
            continue
        real = os.path.realpath(places.resolve(home, wanted))
        assert real == root or real.startswith(root + "/")
        assert found["path"].startswith("~")
        for name in found["directories"]:
            inner = os.path.realpath(f"{real}/{name}")
            assert inner == root or inner.startswith(root + "/")
            assert Path(inner).is_dir()


def test_what_is_listed(home):
    assert places.listing(home, "") == {"path": "~", "directories": ["a", "z"], "truncated": False}
    assert places.listing(home, "~/a")["directories"] == ["b c", "back"]
    assert places.listing(home, "a/b c")["directories"] == [".hidden"]


def test_over_http(web):
    (web.home / "src").mkdir()
    assert web.get("api/directories").json()["directories"] == ["src"]
    outside = web.get("api/directories?path=/etc")
    assert (outside.status_code, outside.json()["error"]["code"]) == (400, "outside_home")
    assert web.get("api/directories?path=~/none").status_code == 404
    assert web.call("POST", "sessions", {"workingDirectory": "~/../.."}).status_code == 400
    assert web.call("POST", "sessions", {"workingDirectory": "~/src"}).status_code == 201
    assert web.supervisor.args("add")["workingDirectory"] == os.path.realpath(web.home / "src")
