"""`scripts/update-pins`: the command line of the pin updater."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from agent_box_harness.pins import files
from agent_box_harness.pins.errors import ConflictError, PinError, UsageError, clean
from agent_box_harness.pins.http import Client
from agent_box_harness.pins.kinds import PINS
from agent_box_harness.pins.update import Outcome, Updater, Wish
from agent_box_harness.pins.upstream import Channels, GitHub

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agent_box_harness.pins.kinds import Pin

AVAILABLE = 10
"""Exit code of --check when something newer is there."""

EPILOGUE = """\
Exit codes: 0 done or already current, 10 something newer is there (--check only),
2 wrong command line, 3 upstream does not know it, 4 refused (going back in time, another
updater, changed files), 1 anything else. Nothing is written unless a pin moves, whole.
GITHUB_TOKEN, if set, is sent to GitHub only; it raises the number of requests allowed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the subcommand."""
    parser.epilog = EPILOGUE
    parser.add_argument("--check", action="store_true", help="only tell; exit 10 if newer")
    parser.add_argument("--dry-run", action="store_true", help="do everything but write")
    parser.add_argument(
        "--pin",
        action="append",
        metavar="NAME",
        help=f"only this one, repeatable: {', '.join(pin.name for pin in PINS)}",
    )
    parser.add_argument("--commit", action="store_true", help="commit what changed")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--allow-downgrade", action="store_true", help="also move to what is no descendant"
    )
    parser.add_argument(
        "--without-nix", action="store_true", help="do not ask nix-prefetch-github as well"
    )
    parser.add_argument(
        "--deadline", type=float, default=60.0, metavar="SECONDS", help="for each request (60)"
    )
    github = GitHub(Client())
    parser.add_argument("--github-api", default=github.api, metavar="URL", help="GitHub's API")
    parser.add_argument("--github", default=github.web, metavar="URL", help="GitHub's archives")
    parser.add_argument(
        "--channels", default=Channels(Client()).address, metavar="URL", help="host of channels"
    )


def main(options: argparse.Namespace, repo: Path) -> int:
    """Move the chosen pins; return the exit code."""
    say = _to_nowhere if options.json else _to_stderr
    outcomes: list[Outcome] = []
    commit: str | None = None
    error: PinError | None = None
    try:
        pins = _chosen(options)
        with files.locked(repo):
            outcomes, commit = _run(options, repo, pins, say)
    except PinError as caught:
        error = caught
    if options.json:
        document = {
            "pins": [outcome.document() for outcome in outcomes],
            "commit": commit,
            "error": str(error) if error else None,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        for outcome in outcomes:
            sys.stdout.write(describe(outcome, check=options.check))
        if commit:
            sys.stdout.write(f"committed {commit[:12]}\n")
        if error:
            sys.stderr.write(f"update-pins: {error}\n")
    if error:
        return error.exit_code
    codes = [outcome.exit_code for outcome in outcomes if outcome.status == "failed"]
    if codes:
        return codes[0]
    newer = any(outcome.status == "available" for outcome in outcomes)
    return AVAILABLE if options.check and newer else 0


def _chosen(options: argparse.Namespace) -> list[Pin]:
    if options.check and (options.commit or options.dry_run):
        raise UsageError("--check writes nothing: leave out --commit and --dry-run")
    if options.commit and options.dry_run:
        raise UsageError("--dry-run writes nothing: leave out --commit")
    if options.deadline <= 0:
        raise UsageError("--deadline takes a number of seconds above 0")
    names = options.pin or [pin.name for pin in PINS]
    known = {pin.name: pin for pin in PINS}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no pin {clean(name)!r}: choose from {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _run(
    options: argparse.Namespace, repo: Path, pins: list[Pin], say: Callable[[str], None]
) -> tuple[list[Outcome], str | None]:
    """Move pins under the lock."""
    token = os.environ.get("GITHUB_TOKEN", "")
    client = Client(
        seconds=options.deadline,
        download_seconds=options.deadline * 15,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        headers_for=f"{options.github_api}/",
        note=say,
    )
    updater = Updater(
        repo,
        GitHub(client, options.github_api.rstrip("/"), options.github.rstrip("/")),
        Channels(client, options.channels.rstrip("/")),
        say,
    )
    wish = Wish(
        check=options.check,
        dry_run=options.dry_run,
        allow_downgrade=options.allow_downgrade,
        with_nix=not options.without_nix,
    )
    if options.commit:
        _refuse_dirty(repo, pins)
    if not options.check and not options.dry_run:
        for pin in pins:
            files.remove_unfinished(repo / pin.path)
    outcomes = [updater.update(pin, wish) for pin in pins]
    updated = [outcome for outcome in outcomes if outcome.status == "updated"]
    if not options.commit or not updated:
        return outcomes, None
    try:
        return outcomes, commit(repo, updated)
    except PinError:
        for outcome in updated:
            files.put_back(repo / outcome.path, outcome.before)
        raise


def describe(outcome: Outcome, *, check: bool) -> str:
    """Return what a person reads about one pin."""
    if outcome.status == "failed":
        return f"{outcome.name}: not moved. {outcome.message}.\n"
    old = outcome.old
    assert old is not None  # noqa: S101 - set whenever it did not fail
    if outcome.status == "current":
        return f"{outcome.name}: {old.rev[:12]} is the newest ({outcome.label})\n"
    new = outcome.new
    assert new is not None  # noqa: S101 - likewise
    verb = {"updated": "moved", "available": "can move"}[outcome.status]
    lines = [
        f"{outcome.name}: {verb} from {old.rev[:12]} to {new.rev[:12]} ({outcome.label})",
        f"  {outcome.ahead} commits: {outcome.log}",
        *(f"    {subject}" for subject in outcome.subjects),
    ]
    if outcome.ahead > len(outcome.subjects) > 0:
        lines.append("    …")
    return "\n".join(lines) + "\n" + ("" if check else outcome.diff)


def message(updated: Sequence[Outcome]) -> str:
    """Return the message of the commit that moves pins."""
    names = " and ".join(outcome.name for outcome in updated)
    parts = [f"Move the pin of {names} to the newest"]
    for outcome in updated:
        assert outcome.old is not None  # noqa: S101 - it was updated
        assert outcome.new is not None  # noqa: S101 - likewise
        parts.append(
            f"{outcome.name}: {outcome.old.rev[:12]} -> {outcome.new.rev[:12]} "
            f"({outcome.label})\n{outcome.log}"
        )
    return "\n\n".join(parts) + "\n"


def commit(repo: Path, updated: Sequence[Outcome]) -> str:
    """Commit exactly the files of the pins that moved; return the commit."""
    paths = [outcome.path for outcome in updated]
    result = _git(
        repo, "commit", "--quiet", "--only", "--file=-", "--", *paths, text=message(updated)
    )
    if result.returncode != 0:
        detail = clean(result.stderr or result.stdout, 400)
        raise PinError(f"git does not commit ({detail}): mend that, then run this again")
    return _git(repo, "rev-parse", "HEAD").stdout.strip()


def _refuse_dirty(repo: Path, pins: Sequence[Pin]) -> None:
    """Refuse to mix somebody's unfinished change into a commit of ours."""
    paths = [str(pin.path) for pin in pins]
    result = _git(repo, "status", "--porcelain", "--", *paths)
    if result.returncode != 0:
        raise PinError(f"git cannot tell what changed ({clean(result.stderr)}): leave out --commit")
    if result.stdout:
        raise ConflictError(
            f"uncommitted changes in {clean(result.stdout)}: commit or restore them first"
        )


def _git(repo: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=repo, input=text, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise PinError(f"git does not start ({error}): install it or leave out --commit") from None


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"update-pins: {text}\n")
    sys.stderr.flush()


def _to_nowhere(_: str) -> None:
    pass
