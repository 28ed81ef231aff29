"""The gate's pages: plain HTML from templates, with nothing inline.

They work without script. The one that there is takes a set-up code from the address.
"""

from __future__ import annotations

import functools
import hashlib
import html
import string
from importlib import resources

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self';"
    " frame-ancestors 'self'; base-uri 'none'"
)
"""The Content-Security-Policy of the gate's pages."""

ASSETS = "/gate/assets/"

_TYPES = {
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "js": "text/javascript; charset=utf-8",
}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


@functools.cache
def _read(name: str) -> bytes:
    return resources.files("agent_box.gate").joinpath("static", name).read_bytes()


@functools.cache
def asset_path(name: str) -> str:
    """Return the address of a static file; it changes with the content."""
    stem, _, kind = name.rpartition(".")
    return f"{ASSETS}{stem}-{hashlib.sha256(_read(name)).hexdigest()[:16]}.{kind}"


@functools.cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of every static file, by address."""
    return {
        asset_path(name): (_read(name), _TYPES[name.rpartition(".")[2]])
        for name in ("gate.css", "icon.svg", "setup.js")
    }


@functools.cache
def _template(name: str) -> string.Template:
    return string.Template(_read(name).decode())


def _fill(name: str, **values: str) -> Markup:
    """Fill a template; every value that is no `Markup` is escaped, quotes included."""
    safe = {
        key: value if isinstance(value, Markup) else html.escape(value)
        for key, value in values.items()
    }
    return Markup(_template(name).substitute(safe))


def _page(title: str, host: str, body: Markup, head: str = "") -> str:
    return _fill(
        "page.html",
        title=title,
        host=host,
        head=Markup(head),
        style=asset_path("gate.css"),
        icon=asset_path("icon.svg"),
        body=body,
    )


def _message(error: str, note: str) -> Markup:
    if error:
        return Markup(f'<p class="alert" id="error" role="alert">{html.escape(error)}</p>\n')
    return Markup(f'<p class="note" role="status">{html.escape(note)}</p>\n' if note else "")


def _attributes(*, wrong: bool, focus: bool, described: bool = False) -> Markup:
    text = " autofocus" if focus else ""
    if wrong:
        text += ' aria-invalid="true"' + ("" if described else ' aria-describedby="error"')
    return Markup(text)


def login(
    host: str,
    *,
    user: str = "",
    following: str = "",
    error: str = "",
    note: str = "",
    wrong: bool = False,
    offer_setup: bool = False,
) -> str:
    """Return the page that asks for name and password.

    `following` is where to go afterwards; `wrong` marks the fields as the cause of `error`;
    `offer_setup` links to the page for a set-up code.
    """
    more = '<p class="more"><a href="/login?setup=1">I have a set-up code</a></p>'
    body = _fill(
        "login.html",
        message=_message(error, note),
        next=following,
        user=user,
        user_attributes=_attributes(wrong=wrong, focus=not user),
        password_attributes=_attributes(wrong=wrong, focus=bool(user)),
        more=Markup(more if offer_setup else ""),
    )
    return _page("Sign in", host, body)


def set_up(
    host: str,
    *,
    user: str = "",
    following: str = "",
    error: str = "",
    wrong: str = "",
    offer_login: bool = False,
) -> str:
    """Return the page that takes a set-up code; `wrong` names the field at fault, if any."""
    more = '<p class="more"><a href="/login">I have a password</a></p>'
    focus = wrong or ("code" if user else "user")
    fields = {
        f"{name}_attributes": _attributes(
            wrong=name == wrong, focus=name == focus, described=name == "new"
        )
        for name in ("user", "code", "new", "again")
    }
    body = _fill(
        "setup.html",
        message=_message(error, ""),
        next=following,
        user=user,
        new_described=" error" if wrong == "new" else "",
        more=Markup(more if offer_login else ""),
        **fields,
    )
    script = f'<script type="module" src="{asset_path("setup.js")}"></script>\n'
    return _page("Set up", host, body, script)


def other(host: str, user: str) -> str:
    """Return the page for somebody who is signed in, but elsewhere."""
    return _page("Not yours", host, _fill("other.html", user=user))


def returning(host: str, following: str) -> str:
    """Return the page that makes the browser come again with its cookie.

    A link on another site brings the browser here without the cookie (SameSite=Strict); the
    same address asked for by a page of the box brings it along.
    """
    head = f'<meta http-equiv="refresh" content="0; url={html.escape(following)}">\n'
    return _page("Opening", host, _fill("returning.html", next=following), head)


def refused(host: str, title: str, message: str, back: str = "/") -> str:
    """Return a page that says why not."""
    return _page(title, host, _fill("refused.html", message=message, back=back))
