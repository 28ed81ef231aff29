"""The rendered config: what the NixOS module makes of a host, as files without store hashes.

`nixos-tests/rendered/<host>/` is committed, reviewed like code, and installed into the portable
guest. It is made by evaluating the module (Nix is needed) and checked by comparing digests (the
standard library is enough). Store paths become `@name@`, where name is the package without
version, so that the tree changes when the config changes and not when a package does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HOSTS = ("bare-metal", "cloud", "test", "vm")
"""Hosts that are rendered, as `nixos-tests/hosts.nix` puts them together."""

TREE = Path("nixos-tests/rendered")
"""Where the rendered hosts are, relative to the repository."""

SOURCES = ("modules/**/*", "hosts/**/*", "nixos-tests/*.nix", "pkgs/agent-box/*.nix")
"""What a rendered host is made from, as globs relative to the repository."""

STORE_PATH = re.compile(r"/nix/store/[0-9a-z]{32}-(?P<name>[0-9A-Za-z+._?=-]+)")
PLACEHOLDER = re.compile(r"@(?P<name>[A-Za-z][0-9A-Za-z+._-]*)@")

# Nix's own rule: the version starts after the first dash that no letter follows.
_VERSION = re.compile(r"-[^A-Za-z].*$", re.DOTALL)


class RenderError(Exception):
    """Nix is missing or refused to evaluate a host; the message says what to do."""


def package_name(store_name: str) -> str:
    """Return the package of a store path's name, without version and output.

    >>> package_name("procps-4.0.4-bin")
    'procps'
    """
    return _VERSION.sub("", store_name)


def fold_store_paths(text: str) -> str:
    """Replace each store path in `text` by the `@name@` of its package."""
    return STORE_PATH.sub(lambda match: f"@{package_name(match['name'])}@", text)


def placeholders(text: str) -> set[str]:
    """Return the names of the packages that folded `text` needs."""
    return {match["name"] for match in PLACEHOLDER.finditer(text)}


def _digest(files: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for path, content in sorted(files):
        total.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def sources_digest(repo: Path) -> str:
    """Return the sha256 over paths and contents of the Nix sources in `repo`."""
    return digest_of(repo, SOURCES)


def digest_of(repo: Path, patterns: Iterable[str]) -> str:
    """Return the sha256 over paths and contents of the files that match any of `patterns`."""
    found = {path for pattern in patterns for path in repo.glob(pattern) if path.is_file()}
    return _digest((path.relative_to(repo).as_posix(), path.read_bytes()) for path in found)


def tree_of(host: str, evaluated: Mapping[str, Any], sources: str) -> dict[str, str]:
    """Return the files of a rendered host, by path below its folder.

    `evaluated` is what `nixos-tests/rendered.nix` yields: `units`, `wants`, `etc` and `accounts`.
    """
    files = {f"units/{name}": text for name, text in evaluated["units"].items()}
    files |= {
        f"units/{unit}.wants": "".join(f"{target}\n" for target in sorted(targets))
        for unit, targets in evaluated["wants"].items()
    }
    for path, text in evaluated["etc"].items():
        files[f"etc/{path}"] = _pretty(json.loads(text)) if path.endswith(".json") else text
    files["accounts.json"] = _pretty(evaluated["accounts"])
    files = {path: fold_store_paths(text) for path, text in files.items()}

    files["manifest.json"] = _pretty(
        {
            "host": host,
            "sources": sources,
            "content": _digest((path, text.encode()) for path, text in files.items()),
            "units": sorted(evaluated["units"]),
            "etc": sorted(evaluated["etc"]),
            "store": sorted(set().union(*(placeholders(text) for text in files.values()))),
        }
    )
    return files


def _pretty(document: object) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_tree(folder: Path, files: Mapping[str, str]) -> None:
    """Make `folder` hold exactly `files`."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def read_tree(folder: Path) -> dict[str, str]:
    """Return the files below `folder`, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def problems(repo: Path, hosts: Sequence[str] = HOSTS) -> list[str]:
    """Say, for each host, why its rendered tree in `repo` cannot be trusted. Empty: all is well."""
    sources = sources_digest(repo)
    found = []
    for host in hosts:
        files = read_tree(repo / TREE / host)
        try:
            manifest = json.loads(files.pop("manifest.json"))
        except (KeyError, ValueError):
            found.append(f"{TREE}/{host} is missing or has no readable manifest.json")
            continue
        if manifest["sources"] != sources:
            found.append(f"{TREE}/{host} is stale: modules or hosts changed after it was rendered")
        if manifest["content"] != _digest((path, text.encode()) for path, text in files.items()):
            found.append(f"{TREE}/{host} was edited by hand: change the module instead")
    return found


def differences(repo: Path, host: str, evaluated: Mapping[str, Any]) -> list[str]:
    """Name the files in which the committed tree of `host` is not what Nix evaluates now."""
    fresh = tree_of(host, evaluated, sources_digest(repo))
    committed = read_tree(repo / TREE / host)
    return sorted(
        path for path in fresh.keys() | committed.keys() if fresh.get(path) != committed.get(path)
    )


def evaluate(
    repo: Path, host: str, nixpkgs: str, modules: Sequence[Path], nix: Sequence[str]
) -> dict[str, Any]:
    """Evaluate `host` with Nix and return its units, files and accounts.

    `nix` is the command line of nix-instantiate, and `modules` are NixOS modules from outside of
    the repository that the host gets on top. Raises `RenderError` with the end of what Nix said.
    """
    arguments = {"host": host, "modules": ":".join(str(path.resolve()) for path in modules)}
    evaluated: dict[str, Any] = _nix_json(
        repo, "render.nix", nix, f"host {host}", nixpkgs=nixpkgs, **arguments
    )
    return evaluated


def evaluate_options(repo: Path, nixpkgs: str, nix: Sequence[str]) -> list[dict[str, Any]]:
    """Evaluate the module's public options with Nix. Raises `RenderError` as `evaluate` does."""
    options: list[dict[str, Any]] = _nix_json(
        repo, "options.nix", nix, "the list of options", nixpkgs=nixpkgs
    )
    return options


def _nix_json(repo: Path, file: str, nix: Sequence[str], what: str, **arguments: str) -> Any:
    command = [*nix, "--eval", "--strict", "--json", "--read-write-mode"]
    command += [f"{repo}/nixos-tests/{file}"]
    for name, value in arguments.items():
        command += ["--argstr", name, value]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repo)
    except FileNotFoundError:
        message = f"{nix[0]} is not there: install Nix, or name the command with --nix."
        raise RenderError(message) from None
    if result.returncode != 0:
        raise RenderError(f"{what} does not evaluate:\n{result.stderr[-4000:]}")
    return json.loads(result.stdout)


def locked_nixpkgs(repo: Path, nix: Sequence[str]) -> str:
    """Fetch the nixpkgs that `flake.lock` pins and return its path."""
    lock = json.loads((repo / "flake.lock").read_text(encoding="utf-8"))
    locked = json.dumps(json.dumps(lock["nodes"]["nixpkgs"]["locked"]))
    expression = f"(builtins.fetchTree (builtins.fromJSON {locked})).outPath"
    command = [*nix, "--eval", "--json", "--extra-experimental-features", "flakes fetch-tree"]
    try:
        result = subprocess.run(
            [*command, "--read-write-mode", "-E", expression],
            capture_output=True,
            text=True,
            check=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        details = getattr(error, "stderr", "") or str(error)
        message = (
            f"the pinned nixpkgs cannot be fetched; name a checkout with --nixpkgs.\n{details}"
        )
        raise RenderError(message) from None
    return str(json.loads(result.stdout))


def main(arguments: Sequence[str] | None = None) -> int:
    """Render the hosts, or check that what is committed is not stale. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/render", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only tell whether it is stale")
    parser.add_argument(
        "--nixpkgs", help="nixpkgs to evaluate with; default: the one in flake.lock"
    )
    parser.add_argument(
        "--module", action="append", type=Path, default=[], help="NixOS module to add, repeatable"
    )
    parser.add_argument("--nix", default="nix-instantiate", help="command line of nix-instantiate")
    parser.add_argument("--repo", type=Path, default=Path.cwd(), help=argparse.SUPPRESS)
    parser.add_argument("--evaluated", nargs=2, metavar=("HOST", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--options", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    repo = options.repo.resolve()

    from agent_box_harness import options_doc
    from agent_box_harness.battery import walls_doc

    if options.check:
        stale_pages = [*options_doc.problems(repo), *walls_doc.problems(repo)]
        return _report([*problems(repo), *stale_pages])
    if options.options:
        fresh = options_doc.text(
            json.loads(options.options.read_text(encoding="utf-8")),
            options_doc.sources_digest(repo),
        )
        stale = (repo / options_doc.PAGE).read_text(encoding="utf-8") != fresh
        return _report([f"{options_doc.PAGE} is not what Nix evaluates"] if stale else [])
    if options.evaluated:
        host, file = options.evaluated
        changed = differences(repo, host, json.loads(Path(file).read_text(encoding="utf-8")))
        return _report([f"{TREE}/{host}/{path} is not what Nix evaluates" for path in changed])

    nix = shlex.split(options.nix)
    try:
        nixpkgs = options.nixpkgs or locked_nixpkgs(repo, nix)
        sources = sources_digest(repo)
        for host in HOSTS:
            evaluated = evaluate(repo, host, nixpkgs, options.module, nix)
            write_tree(repo / TREE / host, tree_of(host, evaluated, sources))
            print(f"rendered {TREE}/{host}")
        page = options_doc.text(
            evaluate_options(repo, nixpkgs, nix), options_doc.sources_digest(repo)
        )
        (repo / options_doc.PAGE).write_text(page, encoding="utf-8")
        print(f"wrote {options_doc.PAGE}")
        walls_doc.write(repo)
        print(f"wrote {walls_doc.PAGE}")
    except RenderError as error:
        print(f"scripts/render: {error}", file=sys.stderr)
        return 1
    return 0


def _report(found: Sequence[str]) -> int:
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print("Remedy: scripts/render --nixpkgs PATH (needs Nix), then commit.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
