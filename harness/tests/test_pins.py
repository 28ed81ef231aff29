"""The pin updater against upstreams that behave: real repositories behind a local server."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
from pathlib import Path

import pytest

from agent_box_harness.pins import command, files, prefetch
from agent_box_harness.pins.errors import ConflictError, PinError, clean
from agent_box_harness.pins.kinds import PINS
from agent_box_harness.pins.narhash import read_archive

from .upstreams import Repository, Upstreams, git

REPO = Path(__file__).resolve().parents[2]
CHANNELS_FILE = "pkgs/local-channels/pin.json"


class Checkout:
    """A repository with both pins, and the upstreams that they follow."""

    def __init__(self, folder: Path) -> None:
        self.upstreams = Upstreams()
        self.channels = Repository(folder / "channels", "defangdevs/local-channels")
        self.nixpkgs = Repository(folder / "nixpkgs", "NixOS/nixpkgs")
        self.upstreams.repositories = {
            "defangdevs/local-channels": self.channels,
            "NixOS/nixpkgs": self.nixpkgs,
        }
        self.old_channels = self.channels.commit("first", plugin="1\n")
        self.old_nixpkgs = self.nixpkgs.commit("first", tree="1\n")
        self.release()
        self.repo = folder / "checkout"
        (self.repo / "pkgs/local-channels").mkdir(parents=True)
        self.lock = self.repo / "flake.lock"
        self.pin = self.repo / CHANNELS_FILE
        lock = json.loads((REPO / "flake.lock").read_text())
        node = lock["nodes"]["agent-nixpkgs"]["locked"]
        node |= {"rev": self.old_nixpkgs, "lastModified": self.nixpkgs.clock}
        node["narHash"] = hash_of(self.nixpkgs)
        self.lock.write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n")
        self.write_pin(rev=self.old_channels, hash=hash_of(self.channels))
        git(self.repo, "init", "-q", "-b", "main")
        git(self.repo, "config", "user.name", "t")
        git(self.repo, "config", "user.email", "t@example.org")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "-m", "pins")

    def write_pin(self, **fields: str) -> None:
        about = {"owner": "defangdevs", "repo": "local-channels"}
        self.pin.write_text(json.dumps(about | fields, indent=2) + "\n")

    def release(self) -> None:
        self.upstreams.release = f"nixos-26.11pre{self.nixpkgs.clock}.{self.nixpkgs.head()[:12]}"

    def advance(self) -> None:
        """Both upstreams move on."""
        self.channels.commit("second\n\nwith details", plugin="2\n")
        self.nixpkgs.commit("second", tree="2\n")
        self.release()

    def arguments(self, *words: str) -> list[str]:
        base = self.upstreams.address
        return [
            "--deadline", "5", "--github-api", f"{base}/api", "--github", f"{base}/web",
            "--channels", f"{base}/channels", *words,
        ]  # fmt: skip

    def run(self, *words: str) -> int:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        return command.main(parser.parse_args(self.arguments(*words)), self.repo)

    def pinned(self) -> tuple[str, str]:
        """The revisions in both files."""
        lock = json.loads(self.lock.read_text())
        return lock["nodes"]["agent-nixpkgs"]["locked"]["rev"], json.loads(self.pin.read_text())[
            "rev"
        ]

    def contents(self) -> dict[str, bytes]:
        """Every file of the checkout outside of .git."""
        return {
            str(path.relative_to(self.repo)): path.read_bytes()
            for path in self.repo.rglob("*")
            if path.is_file() and ".git/" not in str(path)
        }


def hash_of(repository: Repository) -> str:
    """What Nix would say of the newest commit, by our own implementation."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar.gz", "--prefix=x/", "HEAD"],
        cwd=repository.folder, capture_output=True, check=True,
    )  # fmt: skip
    return read_archive(io.BytesIO(archive.stdout)).hash


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.setattr(prefetch, "program", lambda: None)
    made = Checkout(tmp_path)
    yield made
    made.upstreams.close()


def test_hash_is_that_of_nix(tmp_path):
    """The expected value is what `nix hash path` of Nix 2.34 printed for this tree."""
    repository = Repository(tmp_path / "r", "x/y")
    tree = repository.folder
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "a.txt").write_text("hello\n")
    (tree / "empty").touch()
    (tree / "sub").mkdir()
    (tree / "sub/b").write_text("x")
    (tree / "sub/link").symlink_to("../a.txt")
    (tree / "a-b").write_text("dot")
    (tree / "a").mkdir()
    (tree / "a/c").write_text("y")
    repository.commit("all")
    assert hash_of(repository) == "sha256-7KsWtglueFWBTiff05Nuo97wFngAPeVtLKjcFv/d50E="


def test_current_pins_are_left_alone(checkout, capsys):
    before = checkout.contents()
    assert checkout.run("--check") == 0
    assert checkout.run() == 0
    assert checkout.contents() == before
    assert capsys.readouterr().out.count("is the newest") == 4


def test_check_tells_and_writes_nothing(checkout, capsys):
    checkout.advance()
    before = checkout.contents()
    assert checkout.run("--check") == command.AVAILABLE
    assert checkout.contents() == before
    assert not any("/archive/" in path for path in checkout.upstreams.requests), "a check is cheap"
    assert "can move from" in capsys.readouterr().out


def test_dry_run_shows_the_change_and_writes_nothing(checkout, capsys):
    checkout.advance()
    before = checkout.contents()
    assert checkout.run("--dry-run") == 0
    assert checkout.contents() == before
    out = capsys.readouterr().out
    assert f'-  "rev": "{checkout.old_channels}"' in out
    assert f'+  "rev": "{checkout.channels.head()}"' in out
    assert f"/compare/{checkout.old_channels}...{checkout.channels.head()}" in out
    assert "    second\n" in out


def test_update_moves_revision_and_hash_together(checkout):
    checkout.advance()
    assert checkout.run() == 0
    assert checkout.pinned() == (checkout.nixpkgs.head(), checkout.channels.head())
    assert json.loads(checkout.pin.read_text())["hash"] == hash_of(checkout.channels)
    locked = json.loads(checkout.lock.read_text())["nodes"]["agent-nixpkgs"]["locked"]
    assert locked["narHash"] == hash_of(checkout.nixpkgs)
    assert locked["lastModified"] == checkout.nixpkgs.clock
    assert checkout.run("--check") == 0, "what was written is what the next run reads"


def test_only_the_lines_of_the_pin_change(checkout):
    checkout.advance()
    before = checkout.lock.read_text().splitlines()
    assert checkout.run("--pin", "agent-nixpkgs") == 0
    after = checkout.lock.read_text().splitlines()
    changed = [old.split('"')[1] for old, new in zip(before, after, strict=True) if old != new]
    assert changed == ["lastModified", "narHash", "rev"]
    assert checkout.pinned()[1] == checkout.old_channels


def test_commit_holds_the_pins_and_nothing_else(checkout):
    checkout.advance()
    (checkout.repo / "work").write_text("in progress\n")
    git(checkout.repo, "add", "work")
    assert checkout.run("--commit") == 0
    changed = git(checkout.repo, "show", "--name-only", "--format=%B", "HEAD")
    assert changed.startswith("Move the pin of agent-nixpkgs and local-channels to the newest\n")
    assert changed.splitlines()[-2:] == ["flake.lock", CHANNELS_FILE]
    assert git(checkout.repo, "status", "--porcelain") == "A  work"


def test_commit_refuses_unfinished_changes(checkout, capsys):
    checkout.advance()
    checkout.write_pin(rev=checkout.old_channels, hash=hash_of(checkout.channels), ref="main")
    before = checkout.contents()
    assert checkout.run("--commit") == 4
    assert checkout.contents() == before
    assert "commit or restore them first" in capsys.readouterr().err


def test_commit_that_a_hook_refuses_undoes_the_change(checkout, capsys):
    checkout.advance()
    hook = checkout.repo / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    before = checkout.contents()
    assert checkout.run("--commit") == 1
    assert checkout.contents() == before
    assert "not today" in capsys.readouterr().err


def test_json_tells_all(checkout, capsys):
    checkout.advance()
    assert checkout.run("--json", "--commit") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["commit"] == git(checkout.repo, "rev-parse", "HEAD")
    (nixpkgs, channels) = document["pins"]
    assert nixpkgs["status"] == channels["status"] == "updated"
    assert channels["from"]["rev"] == checkout.old_channels
    assert channels["to"] | {"owner": "", "repo": ""} == {
        "owner": "", "repo": "", "rev": checkout.channels.head(),
        "hash": hash_of(checkout.channels),
    }  # fmt: skip
    assert nixpkgs["label"] == checkout.upstreams.release


def test_a_pin_may_follow_a_branch_or_a_tag(checkout):
    checkout.advance()
    git(checkout.channels.folder, "tag", "-a", "-m", "release", "v2")
    wanted = checkout.channels.head()
    checkout.channels.commit("third")
    checkout.write_pin(rev=checkout.old_channels, hash=hash_of(checkout.channels), ref="tags/v2")
    assert checkout.run("--pin", "local-channels") == 0
    assert checkout.pinned()[1] == wanted
    assert json.loads(checkout.pin.read_text())["ref"] == "tags/v2"


def test_log_shows_the_newest_of_many_commits(checkout, capsys):
    for number in range(45):
        checkout.channels.commit(f"change {number}")
    assert checkout.run("--check", "--pin", "local-channels") == command.AVAILABLE
    out = capsys.readouterr().out
    assert "45 commits" in out
    assert "    change 44\n" in out
    assert "    …\n" in out


def test_upstream_text_cannot_steer_the_terminal(checkout, capsys):
    checkout.channels.commit("evil \x1b[2J\x07 \u202e\u2066 text", plugin="9")
    assert checkout.run("--check") == command.AVAILABLE
    out = capsys.readouterr().out
    assert "evil [2J text" in out
    assert not set(out) & set("\x1b\x07\u202e\u2066")
    assert clean("x" * 500) == "x" * 199 + "…"


def test_token_goes_to_github_only(checkout, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    checkout.advance()
    assert checkout.run() == 0
    for path, headers in zip(checkout.upstreams.requests, checkout.upstreams.headers, strict=True):
        assert (headers.get("Authorization") == "Bearer secret") == path.startswith("/api/"), path


def test_nix_is_asked_where_it_is(checkout, monkeypatch, tmp_path, capsys):
    checkout.advance()
    stub = tmp_path / "nix-prefetch-github"
    answer = {
        "owner": "o",
        "repo": "r",
        "rev": checkout.channels.head(),
        "hash": hash_of(checkout.channels),
    }
    stub.write_text(f"#!/bin/sh\necho warning: slow >&2\necho '{json.dumps(answer, indent=4)}'\n")
    stub.chmod(0o755)
    monkeypatch.setattr(prefetch, "program", lambda: str(stub))
    assert checkout.run("--pin", "local-channels") == 0
    checkout.channels.commit("third", plugin="3")
    before = checkout.contents()
    assert checkout.run("--pin", "local-channels") == 1, "the stub still answers the old revision"
    assert "was asked for" in capsys.readouterr().out
    answer["rev"] = checkout.channels.head()
    stub.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    assert checkout.run("--pin", "local-channels") == 1, "the stub answers another hash"
    assert "when Nix does" in capsys.readouterr().out
    assert checkout.contents() == before
    assert checkout.run("--pin", "local-channels", "--without-nix") == 0


HASH = "sha256-VW5RYAwa5S1A2zwWqAiUCj2XiOw+RHWIjjhrbFPiIaE="


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (f'{{"rev": "R", "hash": "{HASH}"}}', None),
        (f'warning: x\n{{"rev": "R", "sha256": "{HASH}"}}', None),
        ("", "wording has changed"),
        (f"hash: {HASH}", "wording has changed"),
        ('{"rev": "R", "hash": ""}', "no SHA-256"),
        ('{"rev": "R", "hash": "1b1z"}', "no SHA-256"),
        ('{"rev": "R"}', "no SHA-256"),
        (f'{{"hash": "{HASH}"}}', "was asked for"),
        (f'{{"rev": "main", "hash": "{HASH}"}}', "was asked for"),
        (f'{{"rev": "R", "hash": "{HASH}"', "wording has changed"),
    ],
)
def test_what_prefetch_prints(output, problem):
    if problem is None:
        assert prefetch.parse(output, "R") == HASH
    else:
        with pytest.raises(PinError, match=problem):
            prefetch.parse(output, "R")


def test_the_repository_has_its_pins():
    for pin in PINS:
        pinned = pin.parse((REPO / pin.path).read_bytes())
        assert pin.render((REPO / pin.path).read_bytes(), pinned) == (REPO / pin.path).read_bytes()


def test_lock_is_held_by_one(tmp_path):
    refused = pytest.raises(ConflictError, match="another updater")
    with files.locked(tmp_path), refused, files.locked(tmp_path):
        pass
    with files.locked(tmp_path):
        pass
