"""docs/options.md: the reference of the module's options, written from the module itself."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box_harness import rendered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE = Path("docs/options.md")
"""The reference, relative to the repository."""

SOURCES = ("modules/**/*", "nixos-tests/module.nix", "nixos-tests/options.nix")
"""What it is made from, as globs relative to the repository."""

ONE_LINE = 70
"""Characters up to which a value is put on one line; Nix prints lists on several."""

HEAD = """\
# Options

Everything below `services.agent-box`. Written by `scripts/render` from the descriptions in
`modules/`; a test fails when it is older than they are.
"""

SECTIONS = {
    "": "The box",
    "users": "Users",
    "users.sessions": "Sessions of a user",
    "web": "In the browser",
    "webhook": "Webhooks",
    "selfUpdate": "Updates of the box",
    "limits": "Limits",
    "packages": "Packages of the agents",
}
"""Key of `_section` -> heading, in the order of the page; others follow under their own name."""

_FOOT = re.compile(r"\n<!-- sources ([0-9a-f]{64}) content ([0-9a-f]{64}) -->\n$")
_ROLE = re.compile(r"\{(?:option|file|command|env|var|manpage)\}(?=`)")


def text(options: Sequence[Mapping[str, Any]], sources: str) -> str:
    """Return the page for what `nixos-tests/options.nix` evaluates to."""
    sections: dict[str, list[str]] = {key: [] for key in SECTIONS}
    for option in options:
        sections.setdefault(_section(option["name"]), []).append(_entry(option))
    parts = [HEAD]
    for key, entries in sections.items():
        if entries:
            parts += [f"## {SECTIONS.get(key, key)}\n", *entries]
    body = "\n".join(parts)
    return f"{body}\n<!-- sources {sources} content {_digest(body)} -->\n"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _section(name: str) -> str:
    parts = [part for part in name.split(".") if not part.startswith("<")]
    if parts[:2] == ["users", "sessions"] and len(parts) > 2:
        return "users.sessions"
    return parts[0] if len(parts) > 1 or parts[0] == "users" else ""


def _entry(option: Mapping[str, Any]) -> str:
    """Return heading, description, type, default and example of one option."""
    lines = [f"### `{option['name']}`", "", _ROLE.sub("", (option["description"] or "").strip())]
    lines += ["", f"* Type: {_escaped(option['type'])}"]
    lines += _value("Default", option["default"]) if option["default"] else ["* No default"]
    if option["example"] and option["type"] != "boolean":
        lines += _value("Example", option["example"])
    return "\n".join(lines) + "\n"


def _value(label: str, value: str) -> list[str]:
    """Return a list item; a value of several lines goes into a block."""
    value = value.strip()
    one_line = " ".join(value.split())
    if len(one_line) <= ONE_LINE and "''" not in value:
        value = re.sub(r"\s+`$", "`", one_line)
    if "\n" not in value:
        return [f"* {label}: {value}"]
    block = value.strip("`").strip("\n").split("\n")
    return [f"* {label}:", "", "  ```nix", *(f"  {line}".rstrip() for line in block), "  ```"]


def _escaped(prose: str) -> str:
    return re.sub(r"([<>*_\[\]\\])", r"\\\1", prose)


def sources_digest(repo: Path) -> str:
    """Return the sha256 over the Nix sources of the page."""
    return rendered.digest_of(repo, SOURCES)


def problems(repo: Path) -> list[str]:
    """Say why the committed page cannot be trusted. Empty: all is well."""
    try:
        page = (repo / PAGE).read_text(encoding="utf-8")
    except OSError:
        return [f"{PAGE} is missing"]
    foot = _FOOT.search(page)
    if foot is None:
        return [f"{PAGE} does not say what it was made from"]
    found = []
    if foot[1] != sources_digest(repo):
        found.append(f"{PAGE} is stale: modules changed after it was written")
    if foot[2] != _digest(page[: foot.start()]):
        found.append(f"{PAGE} was edited by hand: change the descriptions in modules/ instead")
    return found
