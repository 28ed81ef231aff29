"""What upstreams offer: the newest commit of a GitHub repository, the newest channel release."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from agent_box_harness.pins.errors import ConflictError, NotFoundError, PinError, clean
from agent_box_harness.pins.narhash import Archive, read_archive

if TYPE_CHECKING:
    from agent_box_harness.pins.http import Client

COMMIT = re.compile(r"[0-9a-f]{40}")
RELEASE = re.compile(r"nixos-[0-9]{2}\.[0-9]{2}[0-9a-z.]*?\.?(?P<short>[0-9a-f]{7,40})")
"""Name of a channel release, for example `nixos-26.11pre1043021.7578a0a0536b`."""
SHOWN_COMMITS = 20


@dataclass(frozen=True)
class Target:
    """What a pin could move to."""

    rev: str
    label: str
    """How people call it: a release of the channel, or the first line of the commit."""


@dataclass(frozen=True)
class Log:
    """How the pinned revision and another one are related."""

    status: str
    """`ahead`: the other one descends from the pinned one; `identical`, `behind`, `diverged`."""
    ahead: int
    subjects: tuple[str, ...]
    """First lines of the newest commits, the newest first, safe to print."""


@dataclass(frozen=True)
class GitHub:
    """The parts of GitHub that a pin needs."""

    client: Client
    api: str = "https://api.github.com"
    web: str = "https://github.com"

    def newest(self, owner: str, repo: str, ref: str | None) -> Target:
        """Return the commit that `ref` (default: the default branch) points at now."""
        about = self.client.json(f"{self.api}/repos/{owner}/{repo}")
        name = _text(about, "full_name")
        if name.lower() != f"{owner}/{repo}".lower():
            raise ConflictError(
                f"{owner}/{repo} was renamed to {clean(name)}: make sure that it is still the "
                "same project, then write the new owner and name into the pin"
            )
        wanted = ref or f"heads/{_text(about, 'default_branch')}"
        url = f"{self.api}/repos/{owner}/{repo}/commits/{quote(wanted)}"
        commit = self.client.json(url)
        rev = _text(commit, "sha")
        if not COMMIT.fullmatch(rev):
            raise PinError(f"{url} names no commit but {clean(rev)!r}: try again later")
        return Target(rev, clean(_text(commit, "commit", "message").split("\n")[0]))

    def committed(self, owner: str, repo: str, rev: str) -> int:
        """Return when a commit was made, in seconds since 1970."""
        url = f"{self.api}/repos/{owner}/{repo}/commits/{rev}"
        stamp = _text(self.client.json(url), "commit", "committer", "date")
        try:
            return int(datetime.fromisoformat(stamp).timestamp())
        except ValueError:
            raise PinError(f"{url} has the odd date {clean(stamp)!r}: try again later") from None

    def log(self, owner: str, repo: str, old: str, new: str) -> Log:
        """Compare two commits. Raises ConflictError when upstream no longer knows the old one."""
        url = f"{self.api}/repos/{owner}/{repo}/compare/{old}...{new}"
        try:
            # The list of commits is paged, oldest first; the first page also holds all files.
            answer = self.client.json(f"{url}?per_page=1&page=2")
            ahead = _number(answer, "ahead_by")
            if ahead > 1:
                pages = -(-ahead // SHOWN_COMMITS)
                newest = self.client.json(f"{url}?per_page={SHOWN_COMMITS}&page={pages}")
            else:
                newest = self.client.json(f"{url}?per_page={SHOWN_COMMITS}")
        except NotFoundError:
            raise ConflictError(
                f"{owner}/{repo} no longer knows {old[:12]}, the pinned commit: its history was "
                f"rewritten. Read what is there now ({self.web}/{owner}/{repo}/commits/{new}), "
                "then say --allow-downgrade"
            ) from None
        status = _text(answer, "status")
        if status not in ("ahead", "identical", "behind", "diverged"):
            raise PinError(f"{url} answers with the unknown status {clean(status)!r}")
        commits = newest.get("commits") if isinstance(newest, dict) else None
        subjects = [
            clean(_text(commit, "commit", "message").split("\n")[0])
            for commit in (commits if isinstance(commits, list) else [])
        ]
        return Log(status, ahead, tuple(reversed(subjects)))

    def archive(self, owner: str, repo: str, rev: str) -> Archive:
        """Fetch what a machine with this pin will fetch, and hash it.

        Raises PinError when the archive says that it was made from another commit.
        """

        def read(file: IO[bytes]) -> Archive:
            return read_archive(file)

        url = f"{self.web}/{owner}/{repo}/archive/{rev}.tar.gz"
        archive = self.client.download(url, read)
        if archive.commit != rev:
            raise PinError(
                f"{url} holds {clean(archive.commit or 'no commit')} and not what its name says: "
                "do not trust it, try again later"
            )
        return archive

    def log_url(self, owner: str, repo: str, old: str, new: str) -> str:
        """Where a person reads what changed."""
        return f"{self.web}/{owner}/{repo}/compare/{old}...{new}"


@dataclass(frozen=True)
class Channels:
    """The host that says which revisions of nixpkgs passed all tests of a channel."""

    client: Client
    address: str = "https://channels.nixos.org"

    def newest(self, channel: str) -> Target:
        """Return the newest release of a channel."""
        url = f"{self.address}/{channel}/git-revision"
        answer = self.client.get(url)
        rev = answer.body.decode("ascii", "replace").strip()
        release = urlsplit(answer.url).path.split("/")[-2]
        found = RELEASE.fullmatch(release)
        if not COMMIT.fullmatch(rev):
            raise PinError(f"{url} names no commit but {clean(rev)!r}: try again later")
        if found is None or not rev.startswith(found["short"]):
            raise PinError(
                f"{url} leads to the release {clean(release)!r}, which is not that of {rev[:12]}: "
                "the host is changing over, try again later"
            )
        return Target(rev, release)


def _text(document: Any, *path: str) -> str:
    """Return the string at `path`, or say that upstream answers something new."""
    value = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, str) or not value:
        raise PinError(f"GitHub's answer has no {'.'.join(path)}: has its API changed?")
    return value


def _number(document: Any, key: str) -> int:
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, int):
        raise PinError(f"GitHub's answer has no {key}: has its API changed?")
    return value
