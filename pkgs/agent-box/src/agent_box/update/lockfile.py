"""What a flake's lock file pins, and whether another one only goes forward from there."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent_box.errors import ConflictError, InternalError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT = 30.0
LARGEST_ANSWER = 1 << 22
DEEPEST = 4
"""Inputs of inputs further down are not looked at: they move with those above them."""
SHOWN = 12
"""Characters of a revision that people read."""


@dataclass(frozen=True)
class Input:
    """One pinned input of the flake."""

    name: str
    kind: str
    """`github`, `git`, `path`, `tarball`, …"""
    rev: str | None
    modified: int
    """Time of the pinned revision, seconds since 1970; 0 where the lock file has none."""
    owner: str = ""
    repo: str = ""


def parse(content: bytes, path: Path) -> dict[str, Input]:
    """Return every pinned input, by its path from the flake: `agent-box`, `agent-box/nixpkgs`.

    Names of nodes in the file mean nothing: another revision may number them otherwise.
    """
    try:
        document = json.loads(content)
        found: dict[str, Input] = {}
        _collect(document["nodes"], document["root"], document["root"], (), found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InternalError(
            f"{path} is no lock file of a flake: restore it, or write it with `nix flake lock`"
        ) from None
    return found


def _collect(
    nodes: dict[str, Any], root: str, node: str, path: tuple[str, ...], found: dict[str, Input]
) -> None:
    """Add what `node` at `path` takes in. An input that follows another one is that one."""
    if len(path) > DEEPEST:
        return
    for name, target in (nodes[node].get("inputs") or {}).items():
        key = target if isinstance(target, str) else _follow(nodes, root, target)
        here = (*path, name)
        found["/".join(here)] = _input("/".join(here), nodes[key])
        if isinstance(target, str):
            _collect(nodes, root, key, here, found)


def _follow(nodes: dict[str, Any], root: str, path: list[str]) -> str:
    """Return the node at a path of names from the flake."""
    node = root
    for name in path:
        target = nodes[node]["inputs"][name]
        node = target if isinstance(target, str) else _follow(nodes, root, target)
    return node


def _input(name: str, node: dict[str, Any]) -> Input:
    locked = node.get("locked") or {}
    return Input(
        name=name,
        kind=str(locked.get("type", "")),
        rev=locked.get("rev"),
        modified=int(locked.get("lastModified") or 0),
        owner=str(locked.get("owner", "")),
        repo=str(locked.get("repo", "")),
    )


def revisions(inputs: dict[str, Input]) -> dict[str, str]:
    """Return the revision of each input that has one."""
    return {name: found.rev for name, found in sorted(inputs.items()) if found.rev}


def check_forward(old: dict[str, Input], new: dict[str, Input], guarded: str, api: str) -> None:
    """Raise ConflictError unless `new` only goes forward from `old`.

    No input may become older. The `guarded` one, which holds the module and with it everything
    that runs as root, must also descend from the pinned revision and stay in its repository.
    """
    if guarded not in old or guarded not in new:
        raise NotFoundError(
            f"the flake has no input `{guarded}`: name the one that agent-box comes from in "
            "services.agent-box.selfUpdate.input"
        )
    for name, was in old.items():
        now = new.get(name)
        if now is not None and now.modified < was.modified:
            raise ConflictError(
                f"upstream's {name} is older than the pinned one ({short(was.rev)}): nothing was "
                f"changed. If that is right, run `nix flake update {name}` yourself"
            )
    was, now = old[guarded], new[guarded]
    if was.rev == now.rev:
        return
    if (was.kind, was.owner, was.repo) != (now.kind, now.owner, now.repo):
        raise ConflictError(
            f"{guarded} would come from another place ({now.owner}/{now.repo}): nothing was "
            "changed. If that is right, run `nix flake update` yourself"
        )
    if was.kind == "github" and was.rev and now.rev:
        _check_descent(was, now.rev, api)


def _check_descent(was: Input, rev: str, api: str) -> None:
    where = f"{quote(was.owner)}/{quote(was.repo)}"
    url = f"{api}/repos/{where}/compare/{was.rev}...{rev}?per_page=1&page=2"
    status = _get(url).get("status")
    if status not in ("ahead", "identical"):
        raise ConflictError(
            f"{short(rev)} of {was.owner}/{was.repo} is not built on {short(was.rev)}, which runs "
            f"here (GitHub says `{str(status)[:20]}`): nothing was changed. Read what happened "
            "there before you run `nix flake update` yourself"
        )


def _get(url: str) -> dict[str, Any]:
    request = urllib.request.Request(url, headers={"User-Agent": "agent-box-update"})  # noqa: S310 - the module's address
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - likewise
            document = json.loads(answer.read(LARGEST_ANSWER))
    except urllib.error.HTTPError as error:
        limited = error.code in (403, 429)
        reason = "allows no more requests for an hour" if limited else f"answers {error.code}"
        raise InternalError(
            f"GitHub {reason} ({url}): nothing was changed, try again later"
        ) from None
    except (OSError, ValueError) as error:
        raise InternalError(
            f"GitHub cannot be asked ({url}: {error}): nothing was changed, try again later"
        ) from None
    if not isinstance(document, dict):
        raise InternalError(f"GitHub answers something unknown ({url}): nothing was changed")
    return document


def short(rev: str | None) -> str:
    """Return a revision as people read it."""
    return (rev or "unknown")[:SHOWN]
