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

ENDINGS = frozenset({"js", "css", "svg", "webmanifest"})
"""What browsers fetch by itself; the rest are templates of pages."""


@functools.cache
def files() -> dict[str, bytes]:
    """Return the content of every static file, by name."""
    static = resources.files("agent_box.web").joinpath("static")
    return {
        item.name: item.read_bytes()
        for item in sorted(static.iterdir(), key=str)
        if item.name.rpartition(".")[2] in ENDINGS
    }


@functools.cache
def version() -> str:
    """Return the name of the directory: a hash of all files."""
    digest = hashlib.sha256()
    for name, content in files().items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


PAGES = {"workspace": "Workspace", "settings": "Settings", "downloads": "Downloads"}
"""Every page with its title. Its script and its template have its name."""


def page(user: str, host: str, name: str) -> bytes:
    """Return a page of `user` as a whole."""
    base = f"/{user}/assets/{version()}"
    needed = sorted(_NEEDED[name])
    head = "".join(f'<link rel="modulepreload" href="{base}/{each}">\n' for each in needed)
    head += f'<script type="module" src="{base}/{name}.js"></script>\n'
    values = {"user": html.escape(user), "host": html.escape(host), "base": base}
    body = _filled(f"{name}.html", icon=f"{base}/icon.svg", **values)
    return _filled("page.html", title=PAGES[name], head=head, body=body, **values).encode()


def _filled(template: str, /, **values: str) -> str:
    source = resources.files("agent_box.web").joinpath("static", template)
    return string.Template(source.read_text("utf-8")).substitute(values)


_COMMON = frozenset({"core.js", "live.js", "icons.js", "upload.js", "dialogs.js", "work.js"})
_NEEDED = {
    "workspace": _COMMON | {"panes.js", "tabs.js", "keys.js", "terminal.js"},
    "settings": _COMMON
    | {"add.js", "cards.js", "tables.js", "connections.js", "sites.js", "updates.js"}
    | {"webhooks.js"},
    "downloads": frozenset({"core.js", "icons.js"}),
}
