"""The grammar of the command line. Completion scripts are made from it too."""

from __future__ import annotations

import argparse
import os
import sys

from agent_box.session_cli import PROGRAM

TYPE_CHECKING = False  # spares each start the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

STATES = ("starting", "running", "waiting", "crashed", "failed", "stopped", "unmanaged")
"""Every state that a session can be in."""

SIGNINS = ("claude", "codex", "github", "opencode", "pi")
"""What can be signed in to: every entry of `agent_box.signin.flows`, which is slow to load."""

SHELLS = ("bash", "zsh", "fish")

_EPILOG = """\
exit status: 0 done, 1 something is broken, 2 wrong usage, 3 no such session, 4 conflict
All commands take --json. Help on one command: agent-box-session COMMAND --help
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations, whose errors name the way out."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", _Formatter)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Print the usage and `message` on stderr and exit with 2."""
        self.print_usage(sys.stderr)
        hint = ""
        if message.startswith("unrecognized arguments: -"):
            hint = " (put -- before a text that starts with '-')"
        self.exit(2, f"{PROGRAM}: {message}{hint}\nhelp: {self.prog} --help\n")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Asks for the terminal's width itself: argparse would load an archive library for that."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except OSError:
            columns = 80
        super().__init__(prog, width=max(columns - 2, 40))


def build() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog=PROGRAM,
        description="Manage the coding-agent sessions of the user you are.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--json", action="store_true", help="print JSON")
    common = Parser(add_help=False)
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", title="commands")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=text, description=text, parents=[common])

    ls = verb("ls", "list the sessions and their states")
    ls.add_argument("--names", action="store_true", help="print only the names, one a line")
    _add_options(verb("add", "add a session and start it"))
    _names(verb("rm", "remove sessions: end them and forget them"))
    _names(verb("stop", "end sessions and keep them listed; `start` resumes them"))
    _names(verb("start", "start stopped, crashed or failed sessions"))
    restart = verb("restart", "end sessions and start them again, resuming their conversation")
    _names(restart, "*")
    restart.add_argument("--all", action="store_true", help="all sessions that are not stopped")
    restart.add_argument(
        "--include-stopped", action="store_true", help="with --all: start the stopped ones as well"
    )
    _name(verb("show", "tell all about one session"))
    logs = verb("logs", "print what a session shows, or showed before it ended")
    _name(logs)
    logs.add_argument(
        "-n", "--lines", type=_positive, metavar="LINES", help="only the last LINES lines"
    )
    logs.add_argument("--run", type=int, metavar="N", help="the N-th run of it that has ended")
    attach = verb("attach", "work in a session; leave it with Ctrl-b d")
    attach.add_argument("name", nargs="?", metavar="NAME", help="default: main, or the only one")
    attach.add_argument("-r", "--read-only", action="store_true", help="look, do not touch")
    send = verb("send", "type a text into a session, then Enter")
    _name(send)
    send.add_argument("text", nargs="?", metavar="TEXT", help="the text, or - for standard input")
    send.add_argument("--file", metavar="FILE", help="take the text from FILE")
    send.add_argument("--no-enter", action="store_true", help="do not press Enter after it")
    wait = verb("wait", "wait until a session reaches a state")
    _name(wait)
    wait.add_argument(
        "--state",
        required=True,
        type=_states,
        metavar="STATE[,STATE]",
        help="one of these states: " + " ".join(STATES),
    )
    wait.add_argument(
        "--timeout",
        type=_seconds,
        default=300.0,
        metavar="SEC",
        help="give up with exit status 4 after SEC seconds (default: 300)",
    )
    rename = verb("rename", "give a session another name; what runs in it goes on")
    rename.add_argument("name", metavar="OLD")
    rename.add_argument("new_name", metavar="NEW")
    _env_options(verb("env", "secrets and settings that every session gets at its start"), common)
    signin = verb("signin", "sign an agent or GitHub in; without WHAT, tell who is signed in")
    signin.add_argument("what", nargs="?", metavar="WHAT", choices=SIGNINS, help=" ".join(SIGNINS))
    signin.add_argument("--provider", metavar="NAME", help="whose models (opencode and pi)")
    signin.add_argument("--cancel", action="store_true", help="give up the one under way")
    signin.add_argument(
        "--no-wait", action="store_true", help="start it and tell how it is, without following it"
    )
    signin.add_argument(
        "--code", action="store_true", help="give it the code from standard input, byte by byte"
    )
    verb("status", "tell whether the supervisor and the terminal server are well")
    completion = verb("completion", "print a completion script for a shell")
    completion.add_argument("shell", choices=SHELLS)
    return parser


def parse(argv: Sequence[str]) -> tuple[Parser, argparse.Namespace]:
    """Parse `argv`; exits with 0 for help and 2 for wrong usage, as argparse does.

    Of the namespace, `extra_args` is what stood after `--` in `add`, or None.
    """
    parser = build()
    words = list(argv)
    extra: list[str] | None = None
    if "add" in words[:2] and "--" in words:  # the verb, perhaps after --json
        cut = words.index("--")
        words, extra = words[:cut], words[cut + 1 :]
    leaf, words = _options_first(parser, words)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        leaf.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.extra_args = extra
    return parser, arguments


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs of `parser` by name, none if it has no verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the option strings of `parser`."""
    return list(parser._option_string_actions)


def _options_first(
    parser: argparse.ArgumentParser, words: list[str]
) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the verb in `words`, and `words` in an order that argparse copes with.

    On its own, argparse takes an optional positional for missing when an option stands before
    it, and the value of an option for another option when it starts with a dash.
    """
    for index, word in enumerate(words):
        below = subparsers(parser).get(word)
        if below is not None:
            leaf, rest = _options_first(below, words[index + 1 :])
            return leaf, [*words[: index + 1], *rest]
        if not word.startswith("-"):
            break
    if subparsers(parser):
        return parser, words
    options: list[str] = []
    positionals: list[str] = []
    following = iter(words)
    for word in following:
        if word == "--":
            positionals += ["--", *following]
        elif _looks_like_text(word):
            positionals.append(word)
        else:
            options += _with_value(parser, word, following)
    if "--" not in positionals and any(_looks_dashed(word) for word in positionals):
        positionals.insert(0, "--")
    elif "--" in positionals:
        positionals.remove("--")
        positionals.insert(0, "--")
    return parser, [*options, *positionals]


def _with_value(parser: argparse.ArgumentParser, option: str, rest: Iterator[str]) -> list[str]:
    """Return `option` with the value that it takes from `rest`, if it takes one."""
    action = parser._option_string_actions.get(option)
    if action is None or action.nargs == 0:
        return [option]
    value = next(rest, None)
    if value is None:
        return [option]
    if value.partition("=")[0] in parser._option_string_actions:
        return [option, value]  # a forgotten value, for argparse to complain about
    return [f"{option}={value}"] if option.startswith("--") else [option, value]


def _looks_like_text(word: str) -> bool:
    # No option contains blanks, but `--option=a value` may.
    return not _looks_dashed(word) or any(char.isspace() for char in word.partition("=")[0])


def _looks_dashed(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the session")


def _names(parser: argparse.ArgumentParser, count: str = "+") -> None:
    parser.add_argument("names", metavar="NAME", nargs=count, help="the sessions")


def _add_options(add: argparse.ArgumentParser) -> None:
    add.usage = (
        f"{PROGRAM} add [NAME] [--agent AGENT] [--cwd DIR] [--mkdir]\n"
        "         [--prompt TEXT | --prompt-file FILE] [options] [-- ARGUMENT ...]"
    )
    add.epilog = "What follows -- goes to the agent as it stands."
    add.add_argument("name", nargs="?", metavar="NAME", help="default: made from agent and DIR")
    add.add_argument("--agent", metavar="AGENT", help="default: the box's default agent")
    add.add_argument("--cwd", metavar="DIR", help="where to work (default: the home directory)")
    add.add_argument("--mkdir", action="store_true", help="make DIR if it does not exist")
    prompts = add.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", metavar="TEXT", help="first task, or - for standard input")
    prompts.add_argument("--prompt-file", metavar="FILE", help="take the first task from FILE")
    add.add_argument("--resume-prompt", metavar="TEXT", help="what to say after each resume")
    add.add_argument(
        "--no-skip-permissions", action="store_true", help="let the agent ask before it acts"
    )
    add.add_argument(
        "--no-remote-control", action="store_true", help="keep it out of the vendor's apps"
    )
    add.add_argument("--remote-control-name", metavar="NAME", help="its name in these apps")
    add.add_argument("--quiet", action="store_true", help="print only the name")
    add.add_argument("--no-wait", action="store_true", help="do not wait until it runs")


def _env_options(env: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = env.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=text, parents=[common])
        made.add_argument("--session", metavar="NAME", help="the variables of this session alone")
        return made

    action("ls", "list the names of the variables, never the values")
    setting = action("set", "set a variable; without VALUE it is read from standard input")
    setting.add_argument("key", metavar="KEY")
    setting.add_argument("value", metavar="VALUE", nargs="?")
    setting.add_argument("--force", action="store_true", help="set a reserved variable")
    setting.add_argument(
        "--raw", action="store_true", help="keep a newline at the end of standard input"
    )
    for name in ("unset", "rm"):
        action(name, "remove variables").add_argument("keys", metavar="KEY", nargs="+")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 10**7:
        raise ValueError
    return value


def _states(text: str) -> list[str]:
    states = [state for state in text.split(",") if state]
    wrong = [state for state in states if state not in STATES]
    if wrong or not states:
        raise argparse.ArgumentTypeError(f"not a state: {text!r}; choose from {', '.join(STATES)}")
    return states


_positive.__name__ = "positive number"
_seconds.__name__ = "number of seconds"
