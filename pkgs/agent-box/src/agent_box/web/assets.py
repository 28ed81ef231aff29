"""Static files under addresses that change with the content, and the pages that use them.

All files share one directory named after the content of all, so that the modules import each
other by their plain names and browsers may keep them forever.
"""

from __future__ import annotations

import functools
import hashlib
import html
import string
from importlib import resources

_TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}


@functools.cache
def files() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of every static file, by name."""
    found = {}
    for item in sorted(resources.files("agent_box.web").joinpath("static").iterdir(), key=str):
        kind = item.name.rpartition(".")[2]
        if kind in _TYPES:
            found[item.name] = (item.read_bytes(), _TYPES[kind])
    return found


@functools.cache
def version() -> str:
    """Return the name of the directory: a hash of all files."""
    digest = hashlib.sha256()
    for name, (content, _) in files().items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


@functools.cache
def _template(name: str) -> string.Template:
    source = resources.files("agent_box.web").joinpath("static", name)
    return string.Template(source.read_text("utf-8"))


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Return `text` as HTML that shows it."""
    return Markup(html.escape(text))


def fill(name: str, /, **values: str) -> Markup:
    """Fill a template; every value that is no `Markup` is escaped, quotes included."""
    safe = {
        key: value if isinstance(value, Markup) else html.escape(value)
        for key, value in values.items()
    }
    return Markup(_template(name).substitute(safe))


def page(user: str, host: str, title: str, module: str | None, body: Markup) -> bytes:
    """Return a whole page of `user` that runs the script `module`."""
    base = f"/{user}/assets/{version()}"
    head = ""
    if module is not None:
        parts = [name for name in files() if name.endswith(".js") and name in _NEEDED[module]]
        head = "".join(f'<link rel="modulepreload" href="{base}/{name}">\n' for name in parts)
        head += f'<script type="module" src="{base}/{module}"></script>\n'
    return fill(
        "page.html", title=title, host=host, user=user, base=base, head=Markup(head), body=body
    ).encode()


_COMMON = frozenset({"core.js", "live.js", "icons.js", "upload.js", "dialogs.js", "work.js"})
_NEEDED = {
    "workspace.js": _COMMON | {"panes.js", "tabs.js", "keys.js", "terminal.js"},
    "settings.js": _COMMON
    | {"add.js", "cards.js", "tables.js", "connections.js", "sites.js", "updates.js"}
    | {"webhooks.js"},
    "downloads.js": frozenset({"core.js", "icons.js"}),
}
