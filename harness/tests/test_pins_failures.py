"""The pin updater when something goes wrong: the files stay as they are, and it says what to do."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from agent_box_harness.pins import command, files, prefetch

from .test_pins import REPO, checkout, hash_of  # noqa: F401 - the fixture
from .upstreams import Reply, git

ONLY = ("--pin", "local-channels")


def archive_of(**files_: bytes) -> Reply:
    """An archive of one's own making; `link` entries hold their target."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files_.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return Reply(body=buffer.getvalue())


def twisted(match, change):
    """Have every answer whose path holds `match` changed."""

    def twist(path, reply):
        return change(reply) if match in path else reply

    return twist


def rate_limited(_):
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1700003600"}
    return Reply(403, b'{"message": "API rate limit exceeded"}', headers)


def renamed(it):
    it.upstreams.renamed["defangdevs/local-channels"] = "other/name"
    it.upstreams.repositories["other/name"] = it.channels
    it.channels.full_name = "other/name"


def removed(it):
    del it.upstreams.repositories["defangdevs/local-channels"]


def gone_back(it):
    """The pin is ahead of what upstream now calls its newest."""
    it.write_pin(rev=it.channels.head(), hash=hash_of(it.channels))
    git(it.channels.folder, "reset", "-q", "--hard", it.old_channels)


def rewritten(it):
    """Upstream forgot the pinned commit."""
    git(it.channels.folder, "checkout", "-q", "--orphan", "new")
    it.channels.commit("anew", plugin="x")
    git(it.channels.folder, "branch", "-M", "main")
    it.write_pin(rev="1" * 40, hash=hash_of(it.channels))


def diverged(it):
    gone_back(it)
    it.channels.commit("another second", plugin="3")


def moved_tag(it):
    """A tag that the pin follows now names a commit beside the pinned one."""
    it.write_pin(rev=it.channels.head(), hash=hash_of(it.channels), ref="tags/v1")
    git(it.channels.folder, "reset", "-q", "--hard", it.old_channels)
    git(it.channels.folder, "tag", "-f", "v1", it.channels.commit("moved", plugin="evil"))


def shorten(reply):
    return Reply(reply.status, reply.body, reply.headers, cut=len(reply.body) // 2)


def halve(reply):
    """Cut, with a length that agrees."""
    return Reply(reply.status, reply.body[: len(reply.body) // 2], reply.headers)


def other_commit(it):
    def answer(path, reply):
        if "/archive/" not in path:
            return reply
        made = subprocess.run(
            ["git", "archive", "--format=tar.gz", "--prefix=x/", it.old_channels],
            cwd=it.channels.folder, capture_output=True, check=True,
        )  # fmt: skip
        return Reply(body=made.stdout)

    return answer


def answers(match, change):
    def arrange(it):
        it.upstreams.twist = twisted(match, change)

    return arrange


def fixed(**fields):
    return lambda _: Reply(**fields)


def changed(**fields):
    return lambda reply: Reply(body=json.dumps(json.loads(reply.body) | fields).encode())


BROKEN = {
    "rate limit": (answers("/api/", rate_limited), 1, "after 23:13 UTC"),
    "rate limit says how": (answers("/api/", rate_limited), 1, "GITHUB_TOKEN"),
    "second limit": (
        answers("/api/", fixed(status=429, headers={"Retry-After": "90"})), 1, "in 90 s",
    ),
    "removed": (removed, 3, "Check owner, name and revision"),
    "renamed": (renamed, 4, "renamed to other/name"),
    "behind": (gone_back, 4, "is older than what is pinned"),
    "diverged": (diverged, 4, "--allow-downgrade"),
    "history rewritten": (rewritten, 4, "history was rewritten"),
    "moved tag": (moved_tag, 4, "a tag moved"),
    "no archive": (answers("/archive/", fixed(status=404)), 3, "Check owner"),
    "answer cut": (answers("/api/", shorten), 1, "ended early"),
    "answer cut with its length": (answers("/api/", halve), 1, "is no JSON"),
    "archive cut": (answers("/archive/", shorten), 1, "ended early"),
    "archive cut with its length": (answers("/archive/", halve), 1, "ended early"),
    "archive is a page": (answers("/archive/", fixed(body=b"<html>login</html>")), 1, "damaged"),
    "archive of another commit": (
        lambda it: setattr(it.upstreams, "twist", other_commit(it)), 1, "not what its name says",
    ),
    "archive with a path upwards": (
        answers("/archive/", lambda _: archive_of(**{"x__..__evil": b"1"})), 1, "unusual path",
    ),
    "archive of two folders": (
        answers("/archive/", lambda _: archive_of(x__a=b"1", y__b=b"2")), 1, "one folder",
    ),
    "archive with a name twice": (
        answers("/archive/", lambda _: archive_of(x__a=b"1", x__a__b=b"2")), 1, "not a Git tree",
    ),
    "no sha": (answers("/commits/", changed(sha="main")), 1, "names no commit"),
    "sha missing": (answers("/commits/", changed(sha=None)), 1, "no sha"),
    "a list": (answers("/commits/", fixed(body=b"[]")), 1, "has its API changed"),
    "unknown status": (answers("/compare/", changed(status="sideways")), 1, "unknown status"),
    "server error": (answers("/api/", fixed(status=502)), 1, "Try again later"),
    "drip": (answers("/api/", lambda r: Reply(body=r.body, drip=0.3)), 1, "too slowly"),
    "circle": (
        answers("/commits/", fixed(status=302, headers={"Location": "?again=1"})), 1, "in a circle",
    ),
    "refused token": (answers("/api/", fixed(status=401)), 1, "renew or unset"),
    "forbidden": (answers("/api/", fixed(status=403)), 1, "status 403"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_upstream_fails(checkout, name, capsys):  # noqa: F811
    arrange, code, remedy = BROKEN[name]
    checkout.advance()
    arrange(checkout)
    before = checkout.contents()
    began = time.monotonic()
    found = checkout.run(*ONLY, "--deadline", "1.5")
    assert checkout.contents() == before
    said = capsys.readouterr()
    assert remedy in said.out + said.err
    assert found == code
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("arrange", [gone_back, diverged, rewritten])
def test_going_back_on_demand(checkout, arrange):  # noqa: F811
    checkout.advance()
    arrange(checkout)
    assert checkout.run(*ONLY, "--allow-downgrade") == 0
    assert checkout.pinned()[1] == checkout.channels.head()


def test_what_passes_is_tried_again(checkout):  # noqa: F811
    checkout.advance()
    checkout.upstreams.fail("/commits/", Reply(503), Reply(429, headers={"Retry-After": "0.2"}))
    checkout.upstreams.fail("/archive/", Reply(body=b"<html>"), Reply(500))
    checkout.upstreams.fail("/compare/", Reply(body=b"{}", cut=1))
    assert checkout.run(*ONLY) == 0
    assert checkout.pinned()[1] == checkout.channels.head()


def test_nobody_listens(checkout, capsys):  # noqa: F811
    checkout.upstreams.close()
    before = checkout.contents()
    assert checkout.run("--deadline", "0.4") == 1
    assert checkout.contents() == before
    assert "must be reachable" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("release", "revision", "remedy"),
    [
        ("nixos-26.11pre99.ffffffffffff", None, "changing over"),
        ("index.html", None, "changing over"),
        (None, b"<html>", "names no commit"),
    ],
)
def test_channel_is_odd(checkout, release, revision, remedy, capsys):  # noqa: F811
    checkout.advance()
    checkout.upstreams.release = release or checkout.upstreams.release
    if revision:
        checkout.upstreams.twist = twisted("/releases/", fixed(body=revision))
    before = checkout.contents()
    assert checkout.run("--pin", "agent-nixpkgs") == 1
    assert checkout.contents() == before
    assert remedy in capsys.readouterr().out


def test_one_failure_does_not_hold_up_the_other(checkout):  # noqa: F811
    checkout.advance()
    removed(checkout)
    assert checkout.run() == 3
    assert checkout.pinned() == (checkout.nixpkgs.head(), checkout.old_channels)


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (b"", "not the JSON"),
        (b'{"owner": "a"}', "restore it from Git"),
        (b'{"owner": "a", "repo": "b", "rev": "main", "hash": "sha256-"}', "full commit id"),
    ],
)
def test_file_is_broken(checkout, content, remedy, capsys):  # noqa: F811
    checkout.pin.write_bytes(content)
    assert checkout.run(*ONLY) == 1
    assert checkout.pin.read_bytes() == content
    assert remedy in capsys.readouterr().out


def test_lock_file_of_another_hand(checkout, capsys):  # noqa: F811
    checkout.lock.write_text(json.dumps(json.loads(checkout.lock.read_text())))
    assert checkout.run("--check", "--pin", "agent-nixpkgs") == 1
    assert "nix flake lock" in capsys.readouterr().out


def test_disk_is_full(checkout, monkeypatch, capsys):  # noqa: F811
    checkout.advance()
    before = checkout.contents()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    assert checkout.run(*ONLY) == 1
    assert checkout.contents() == before
    assert "No space left" in capsys.readouterr().out


def test_disk_keeps_something_else(checkout, monkeypatch, capsys):  # noqa: F811
    checkout.advance()
    before = checkout.contents()
    sync = files._sync_folder
    spoilt = []

    def spoil(folder):
        sync(folder)
        if not spoilt:
            spoilt.append(checkout.pin.write_bytes(b"{}"))

    monkeypatch.setattr(files, "_sync_folder", spoil)
    assert checkout.run(*ONLY) == 1
    assert checkout.contents() == before
    assert "check the disk" in capsys.readouterr().out


def test_somebody_else_writes_meanwhile(checkout, capsys):  # noqa: F811
    checkout.advance()

    def meddle(path, reply):
        if "/archive/" in path:
            checkout.pin.write_bytes(b"mine\n")
        return reply

    checkout.upstreams.twist = meddle
    assert checkout.run(*ONLY) == 4
    assert checkout.pin.read_bytes() == b"mine\n"
    assert "changed meanwhile" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "remedy"),
    [
        ("echo boom >&2; exit 1", "boom"),
        ("exec sleep 30", "took more than"),
        ("echo Prefetched!", "wording has changed"),
    ],
)
def test_prefetch_fails(checkout, monkeypatch, tmp_path, script, remedy, capsys):  # noqa: F811
    checkout.advance()
    stub = tmp_path / "nix-prefetch-github"
    stub.write_text(f"#!/bin/sh\n{script}\n")
    stub.chmod(0o755)
    monkeypatch.setattr(prefetch, "program", lambda: str(stub))
    monkeypatch.setattr(prefetch, "SECONDS", 0.5)
    before = checkout.contents()
    assert checkout.run(*ONLY) == 1
    assert checkout.contents() == before
    said = capsys.readouterr().out
    assert remedy in said
    assert "--without-nix" in said


@pytest.mark.parametrize(
    "words",
    [("--check", "--commit"), ("--check", "--dry-run"), ("--dry-run", "--commit"),
     ("--pin", "nothing"), ("--deadline", "0")],
)  # fmt: skip
def test_wrong_command_lines(checkout, words):  # noqa: F811
    assert checkout.run(*words) == 2


PROGRAM = """
import argparse, os, pathlib, signal, sys
from agent_box_harness.pins import command, http

left = int(os.environ.get("KILL_AT", "0"))
repo = sys.argv[1]

def hook(event, args):
    global left
    if event in ("os.rename", "os.remove", "os.chmod", "socket.connect", "fcntl.flock") or (
        event == "open" and str(args[0]).startswith(repo)
    ):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

if left:
    sys.addaudithook(hook)
parser = argparse.ArgumentParser()
command.add_arguments(parser)
sys.exit(command.main(parser.parse_args(sys.argv[2:]), pathlib.Path(repo)))
"""


def start(it, *words, kill_at=0):
    """Run the updater as a process of its own, killed before its `kill_at`-th step if not 0.

    A step is an opened, renamed or removed file, a changed mode, a lock or a connection.
    """
    environment = {"PYTHONPATH": str(REPO / "harness/src"), "KILL_AT": str(kill_at)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(it.repo), *it.arguments("--without-nix", *words)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_killed_at_any_step(checkout):  # noqa: F811
    """Old or new, whole, whenever the updater dies; and the next run clears up."""
    checkout.advance()
    before = checkout.contents()
    old = before[str(checkout.pin.relative_to(checkout.repo))]
    killed = moved = 0
    for step in range(1, 100):
        process = start(checkout, *ONLY, kill_at=step)
        process.communicate(timeout=60)
        now = checkout.contents()
        pin = now.pop(str(checkout.pin.relative_to(checkout.repo)))
        left_over = {name for name in now if files.UNFINISHED in name}
        assert len(left_over) <= 1, "each run removes what the one before it left"
        assert {**before, **{k: v for k, v in now.items() if k not in left_over}} == before
        if pin != old:
            moved += 1
            fields = json.loads(pin)
            assert fields["rev"] == checkout.channels.head()
            assert fields["hash"] == hash_of(checkout.channels)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed += 1
        checkout.pin.write_bytes(old)
    else:
        pytest.fail("it never got through")
    assert killed > 10
    assert moved > 1, "some kills come after the rename"
    assert not [name for name in checkout.contents() if files.UNFINISHED in name]


def test_two_at_once(checkout):  # noqa: F811
    """The second one says so and ends; the first one finishes its work."""
    checkout.advance()
    original = checkout.upstreams.twist

    def slow(path, reply):
        if "/archive/" in path:
            second = start(checkout, *ONLY)
            out, err = second.communicate(timeout=60)
            seconds.append((second.returncode, out + err))
        return original(path, reply)

    seconds: list[tuple[int, str]] = []
    checkout.upstreams.twist = slow
    first = start(checkout, *ONLY)
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert [code for code, _ in seconds] == [4]
    assert "another updater is at work" in seconds[0][1]
    assert checkout.pinned()[1] == checkout.channels.head()


def test_a_killed_one_leaves_no_lock(checkout):  # noqa: F811
    """A killed updater takes its lock with it."""
    checkout.advance()
    process = start(checkout, *ONLY, kill_at=3)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert checkout.run("--check") == command.AVAILABLE
