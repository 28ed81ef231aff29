"""The edge's configuration of sites, from fixed templates.

Nothing that goes in was written by a user as it stands: labels, ports, paths and user names have
passed the patterns of `model` before, which leave no character that means anything here.
"""

from __future__ import annotations

from dataclasses import dataclass

_HEADERS = """\
			-Server
			-Via
			-Alt-Svc
			-Clear-Site-Data
			-Public-Key-Pins*
			-NEL
			-Report-To
			-Sec-Session-*
			-Secure-Session-*
			-Set-Cookie2
			-Set-Login
			Set-Cookie "(?i);[^a-z0-9;]*domain[^;]*" ""
			Strict-Transport-Security max-age=31536000
			X-Content-Type-Options nosniff
			defer
"""
"""Nothing that a site says may matter to other hosts of its domain, the box among them.

An attribute of a cookie is whatever follows a semicolon; each that a browser could take for
`Domain`, however it is spelled, goes. `defer` has this hold for answers before the last one
(103, and 101 of a WebSocket) too, which `header_down` does not see.
"""

HEADER = "# Written by agent-box-sites. Changes are lost; see: agent-box-site --help\n"

_GATE = "unix//run/agent-box-gate/gate.sock"


@dataclass(frozen=True)
class Target:
    """A site that has passed every check."""

    host: str
    user: str
    public: bool
    upstream: str
    """Where Caddy connects to: a socket in a directory of root's, as `unix//…`."""
    folder: str | None = None
    """Path below `~/sites` for the user's file service."""
    port: int | None = None
    """Port of the user that is behind the socket."""


@dataclass(frozen=True)
class Surroundings:
    """What the templates need to know about the box."""

    ports: tuple[str, ...]
    """How the port shows in addresses of the box: "" or ":8443"."""


def render(targets: list[Target], box: Surroundings) -> str:
    """Return the whole file."""
    return HEADER + "".join(_site(target, box) for target in targets)


def _site(target: Target, box: Surroundings) -> str:
    folder = (
        "" if target.folder is None else f"\t\t\theader_up X-Agent-Box-Folder {target.folder}\n"
    )
    return f"""
https://{target.host} {{
	route {{
		request_header -X-Agent-Box-*
		request_header -X_Agent_Box_*
		header {{
{_HEADERS}		}}
{"" if target.public else _login(target, box)}		reverse_proxy {target.upstream} {{
{folder}			stream_close_delay 168h
			transport http {{
				dial_timeout 2s
			}}
		}}
	}}
	handle_errors {{
		header {{
			-Server
			-Via
			Strict-Transport-Security max-age=31536000
			X-Content-Type-Options nosniff
			defer
		}}
		header Content-Type "text/plain; charset=utf-8"
		@down vars_regexp {{http.error.status_code}} ^50[234]$
		handle @down {{
			respond "This site does not answer: nothing listens behind it right now.
" {{http.error.status_code}}
		}}
		handle {{
			respond "{{http.error.status_code}} {{http.error.status_text}}
" {{http.error.status_code}}
		}}
	}}
}}
"""


def _login(target: Target, box: Surroundings) -> str:
    """Ask the gate for the user's password.

    The login's cookie belongs to the box's own name alone, so that it is Basic here. Browsers add
    that to requests from foreign pages too: what comes from another origin is refused first.
    The gate judges addresses of the box, hence it is told of the user's workspace.
    """
    host = target.host.replace(".", "\\.")
    ports = "|".join(box.ports)
    return f"""\
		@origin {{
			header Origin *
			not header_regexp Origin ^https://{host}({ports})$
		}}
		error @origin 403
		@page {{
			header_regexp Sec-Fetch-Site ^(cross-site|same-site)$
			not header Sec-Fetch-Mode navigate
		}}
		error @page 403
		forward_auth {_GATE} {{
			uri /auth
			header_up X-Forwarded-Uri /{target.user}/
			header_up X-Agent-Box-Owner {target.user}
			header_up Accept */*
			header_up -Cookie
			header_up -Origin
			header_up -Sec-Fetch-*
			import gate
		}}
		request_header -Authorization
		request_header -Proxy-Authorization
"""
