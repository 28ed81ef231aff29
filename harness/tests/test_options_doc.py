"""The reference of the options: as new as the module, and readable."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from agent_box_harness import options_doc, rendered

REPO = Path(__file__).resolve().parents[2]

OPTION = {
    "name": "users.<name>.sessions.<name>.agent",
    "description": "See {option}`agent` and {file}`~/x`.\n",
    "type": 'null or one of "claude", "shell"',
    "readOnly": False,
    "default": "`null`",
    "example": '`"codex"`',
}


def test_committed_page_is_fresh():
    assert options_doc.problems(REPO) == []


def test_every_option_says_what_it_does():
    page = (REPO / options_doc.PAGE).read_text()
    names = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    assert len(names) == len(set(names)) > 40
    for entry in page.split("\n### ")[1:]:
        title, blank, description = entry.split("\n")[:3]
        assert blank == "", title
        assert description and not description.startswith("*"), f"{title} has no description"
        assert "\n* Type: " in entry, title
        assert "\n* Default: " in entry or "\n* Default:\n" in entry or "\n* No default" in entry
    assert not re.search(r"\{(option|file|command)\}`", page)


def test_options_of_the_first_page_are_there():
    """What the README promises, with its defaults."""
    page = (REPO / options_doc.PAGE).read_text()
    for name, default in {
        "enable": "`false`",
        "agent": '`"claude"`',
        "codexFullAccess": "`true`",
        "remoteControlHost": "`config.networking.fqdnOrHostName`",
        "protectMemory": "`true`",
        "sudoAllowlist": "`[ ]`",
        "users.<name>.skipPermissions": "`true`",
        "users.<name>.remoteControl": "`true`",
        "users.<name>.workingDirectory": '`"/home/<name>"`',
        "users.<name>.agentsMd": '`""`',
        "web.fail2ban": "`true`",
    }.items():
        entry = page.split(f"### `{name}`\n")[1].split("\n### ")[0]
        assert f"* Default: {default}" in entry, name


def test_every_refusal_is_tried():
    """Each message of an assertion names a remedy that some case of the negative tests expects.
    With Nix, the flake also checks that each message comes.
    """
    string = r'"((?:[^"\\]|\\.)*)"'
    folder = REPO / "nixos-tests/assertions"
    cases = "".join(path.read_text() for path in sorted(folder.glob("*.nix")))
    remedies = set(re.findall(rf"remedy = {string};", cases))
    assert len(remedies) > 20
    untried = [
        message
        for path in sorted((REPO / "modules").rglob("*.nix"))
        for message in re.findall(rf"\bmessage = {string};", path.read_text())
        if not any(remedy in message for remedy in remedies)
    ]
    assert untried == []


def test_an_entry():
    page = options_doc.text([OPTION], "0" * 64)
    assert "## Sessions of a user\n\n### `users.<name>.sessions.<name>.agent`\n" in page
    assert "See `agent` and `~/x`.\n\n* Type: null or one of" in page
    assert '* Default: `null`\n* Example: `"codex"`\n' in page


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('`[\n  "a"\n]`', '* Default: `[ "a" ]`'),
        ("`" + "[\n" + '  "long enough"\n' * 9 + "]`", "* Default:\n\n  ```nix\n  [\n"),
        (None, "* No default"),
    ],
)
def test_values(value, written):
    assert written in options_doc.text([OPTION | {"default": value}], "0" * 64)


def test_edits_and_changed_modules_are_found(tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "docs").mkdir()
    assert options_doc.problems(tmp_path) == ["docs/options.md is missing"]
    page = tmp_path / options_doc.PAGE
    page.write_text(options_doc.text([OPTION], options_doc.sources_digest(tmp_path)))
    assert options_doc.problems(tmp_path) == []
    (tmp_path / "modules/x.nix").write_text("{ }")
    assert "stale" in options_doc.problems(tmp_path)[0]
    (tmp_path / "modules/x.nix").unlink()
    page.write_text(page.read_text().replace("See", "Look at"))
    assert "edited by hand" in options_doc.problems(tmp_path)[0]
    page.write_text("# Options\n")
    assert "does not say" in options_doc.problems(tmp_path)[0]


NIX = os.environ.get("AGENT_BOX_NIX_INSTANTIATE", "nix-instantiate")


@pytest.mark.skipif(
    shutil.which(shlex.split(NIX)[0]) is None or "AGENT_BOX_NIXPKGS" not in os.environ,
    reason="needs Nix: install it, or set AGENT_BOX_NIX_INSTANTIATE and AGENT_BOX_NIXPKGS",
)
def test_page_is_what_nix_evaluates():
    options = rendered.evaluate_options(REPO, os.environ["AGENT_BOX_NIXPKGS"], shlex.split(NIX))
    page = options_doc.text(options, options_doc.sources_digest(REPO))
    assert page == (REPO / options_doc.PAGE).read_text()
