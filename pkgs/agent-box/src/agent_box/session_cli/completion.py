"""Completion scripts, made from the grammar so that they cannot fall behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_box import agents
from agent_box.session_cli import PROGRAM
from agent_box.session_cli import parser as grammar

if TYPE_CHECKING:
    import argparse

    from agent_box.session_cli.context import Context

_TAKES_NAMES = frozenset(
    {"rm", "stop", "start", "restart", "show", "logs", "attach", "send", "wait", "rename"}
)
_FILES = ("--prompt-file", "--file")
_DIRECTORIES = ("--cwd",)


def run(context: Context, arguments: argparse.Namespace) -> int:
    """Print the script for one shell."""
    text = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]()
    if context.json:
        context.print_json({"shell": arguments.shell, "script": text})
    else:
        print(text, end="")
    return 0


def words() -> dict[str, list[str]]:
    """Return what can follow each verb: its options, sub-actions and fixed choices."""
    result = {}
    for name, verb in grammar.subparsers(grammar.build()).items():
        options = grammar.options_of(verb)
        actions = grammar.subparsers(verb)
        for action in actions.values():
            options += [option for option in grammar.options_of(action) if option not in options]
        fixed = {"completion": grammar.SHELLS, "signin": grammar.SIGNINS}
        choices = list(fixed.get(name, actions))
        result[name] = [*choices, *options]
    return result


def bash() -> str:
    """Return the script for bash."""
    cases = "\n".join(
        f"        {name}) words='{' '.join(choices)}' ;;" for name, choices in words().items()
    )
    return f"""\
# bash completion of {PROGRAM}; load it with: source <({PROGRAM} completion bash)
_agent_box_session() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    local verb=${{COMP_WORDS[1]}} words=''
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '{" ".join(words())}' -- "$current")
        return
    fi
    case $previous in
        {"|".join(_DIRECTORIES)}) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        {"|".join(_FILES)}) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        --agent) words='{" ".join(agents.names())}' ;;
        --state) words='{" ".join(grammar.STATES)}' ;;
    esac
    if [ -z "$words" ]; then
        case $verb in
{cases}
        esac
        case $verb in
            {"|".join(sorted(_TAKES_NAMES))})
                words="$words $({PROGRAM} ls --names 2>/dev/null)" ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F _agent_box_session {PROGRAM}
"""


def zsh() -> str:
    """Return the script for zsh."""
    verbs = "\n".join(f"        '{name}:{text}'" for name, text in _helps().items())
    cases = "\n".join(
        f"        {name}) choices=({' '.join(choices)}) ;;" for name, choices in words().items()
    )
    return f"""\
#compdef {PROGRAM}
# zsh completion of {PROGRAM}; load it with: source <({PROGRAM} completion zsh)
_agent_box_session() {{
    local -a verbs choices
    local verb=${{words[2]}} previous=${{words[CURRENT - 1]}}
    verbs=(
{verbs}
    )
    if (( CURRENT == 2 )); then
        _describe -t commands command verbs
        return
    fi
    case $previous in
        {"|".join(_DIRECTORIES)}) _files -/; return ;;
        {"|".join(_FILES)}) _files; return ;;
        --agent) compadd -- {" ".join(agents.names())}; return ;;
        --state) compadd -- {" ".join(grammar.STATES)}; return ;;
    esac
    case $verb in
{cases}
    esac
    case $verb in
        {"|".join(sorted(_TAKES_NAMES))})
            choices+=(${{(f)"$({PROGRAM} ls --names 2>/dev/null)"}}) ;;
    esac
    compadd -- $choices
}}
if [[ $funcstack[1] == _agent* ]]; then  # found by its file name in $fpath
    _agent_box_session "$@"
else
    compdef _agent_box_session {PROGRAM}
fi
"""


def fish() -> str:
    """Return the script for fish."""
    program = f"complete -c {PROGRAM}"
    lines = [
        f"# fish completion of {PROGRAM}; load it with: {PROGRAM} completion fish | source",
        f"{program} -f",
    ]
    for name, text in _helps().items():
        lines.append(f"{program} -n __fish_use_subcommand -a {name} -d '{text}'")
    for name, choices in words().items():
        inside = f"{program} -n '__fish_seen_subcommand_from {name}'"
        for choice in choices:
            extra = ""
            if choice in _FILES:
                extra = " -r -F"
            elif choice in _DIRECTORIES:
                extra = " -x -a '(__fish_complete_directories)'"
            elif choice == "--agent":
                extra = f" -x -a '{' '.join(agents.names())}'"
            elif choice == "--state":
                extra = f" -x -a '{' '.join(grammar.STATES)}'"
            if choice.startswith("--"):
                lines.append(f"{inside} -l {choice[2:]}{extra}")
            elif choice.startswith("-"):
                lines.append(f"{inside} -s {choice[1:]}{extra}")
            else:
                lines.append(f"{inside} -a {choice}")
        if name in _TAKES_NAMES:
            lines.append(f"{inside} -a '({PROGRAM} ls --names 2>/dev/null)'")
    return "\n".join(lines) + "\n"


def _helps() -> dict[str, str]:
    parsers = grammar.subparsers(grammar.build())
    # Quotes and colons mean something to the shells that read this.
    return {
        name: (verb.description or "").translate(str.maketrans("", "", "'`")).replace(":", ",")
        for name, verb in parsers.items()
    }
