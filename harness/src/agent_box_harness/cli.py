"""`agent-box-harness`: the program behind scripts/test, scripts/try and scripts/bench."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from agent_box_harness.errors import HarnessError


def repository() -> Path:
    """The checkout: where this file lies, or the working directory above it."""
    for start in (Path(__file__).resolve().parent, Path.cwd()):
        for folder in (start, *start.parents):
            if (folder / "nixos-tests").is_dir() and (folder / "harness").is_dir():
                return folder
    raise HarnessError("run this inside a checkout of agent-box")


def build_parser() -> argparse.ArgumentParser:
    """The command line. Everything after `test box` is pytest's own."""
    parser = argparse.ArgumentParser(
        prog="agent-box-harness", description="Boots an agent-box and proves what it promises."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    from agent_box_harness import checks, mutations, trial
    from agent_box_harness.bench import run as bench
    from agent_box_harness.pins import command as pins

    test = commands.add_parser("test", help="run the tests", description=checks.__doc__)
    checks.add_arguments(test)
    commands.add_parser("prepare", help="build ahead what scenarios will ask for")
    trial.add_arguments(commands.add_parser("try", help="boot a box and attach to its session"))
    commands.add_parser("stop", help="stop the box that `try` left running")
    bench.add_arguments(commands.add_parser("bench", help="measure speed and cost"))
    mutate = commands.add_parser("mutate", help="break the product, expect scenarios to notice")
    mutations.add_arguments(mutate)
    pins.add_arguments(commands.add_parser("update-pins", help="move what is pinned to the newest"))
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand. What the harness itself complains about is one line, not a trace."""
    options = build_parser().parse_args(argv)
    try:
        repo = repository()
        os.chdir(repo)
        if options.command == "test":
            from agent_box_harness import checks

            return checks.main(options, repo)
        if options.command == "prepare":
            from agent_box_harness import choice

            choice.Guests(repo, "auto", print).prepare("test")
            return 0
        if options.command == "mutate":
            from agent_box_harness import mutations

            return mutations.main(options, repo)
        if options.command == "update-pins":
            from agent_box_harness.pins import command as pins

            return pins.main(options, repo)
        if options.command == "bench":
            from agent_box_harness.bench import run as bench

            return bench.main(options, repo)
        from agent_box_harness import trial

        if options.command == "stop":
            return trial.stop(repo / "build/try")
        return trial.main(options, repo)
    except HarnessError as error:
        sys.stderr.write(f"agent-box: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("agent-box: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
