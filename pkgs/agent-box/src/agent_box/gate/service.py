"""`agent-box-gate-service`: the gate as the edge sees it.

`agent-box-gate-service --routes` prints the addresses that it answers instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route

from agent_box import config, httpd
from agent_box.activation import activated
from agent_box.errors import AgentBoxError, InternalError
from agent_box.gate import passwords, setup
from agent_box.gate.account import Account
from agent_box.gate.admin import Admin
from agent_box.gate.authority import Gate
from agent_box.gate.check import Check
from agent_box.gate.known import Known
from agent_box.gate.live import Live
from agent_box.gate.signin import SignIn
from agent_box.gate.store import DAY, Store
from agent_box.gate.unbans import WISHES, Unbans

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from agent_box.config import Web

log = logging.getLogger(__name__)

RUNTIME_DIRECTORY = Path("/run/agent-box-gate")
MISSING = "missing"
"""Content of a credential whose file systemd did not find (modules/web/gate.nix)."""
LIMITS = httpd.Limits(body=16 * 1024, seconds=20.0)


def routes(gate: Gate, unbans: Unbans) -> list[Route]:
    """Return the addresses of the gate."""
    check, sign_in, account = Check(gate), SignIn(gate), Account(gate, unbans)
    return [
        Route("/auth", check.auth, methods=["GET"]),
        Route("/login", sign_in.form, methods=["GET"]),
        Route("/login", sign_in.submit, methods=["POST"]),
        Route("/logout", sign_in.leave, methods=["POST"]),
        Route("/gate/assets/{name}", sign_in.asset, methods=["GET"]),
        Route("/gate/account", account.show, methods=["GET"]),
        Route("/gate/logins", account.logins, methods=["GET"]),
        Route("/gate/logins", account.end_others, methods=["DELETE"]),
        Route("/gate/logins/{login_id}", account.end, methods=["DELETE"]),
        Route("/gate/password", account.password, methods=["POST"]),
        Route("/gate/bans", account.bans, methods=["GET"]),
        Route("/gate/unban", account.unban, methods=["POST"]),
    ]


def application(gate: Gate, unbans: Unbans, admin: socket.socket | None = None) -> Starlette:
    """Return the application; its lifespan keeps house and answers root on `admin`."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        gate.start()
        house = asyncio.create_task(gate.keep_house())
        server = None if admin is None else await Admin(gate).listen(admin)
        try:
            yield
        finally:
            house.cancel()
            if server is not None:
                server.close()
            gate.close()

    return Starlette(routes=routes(gate, unbans), lifespan=lifespan)


def build(web: Web, runtime: Path) -> Gate:
    """Return the gate of this box, its passwords seeded."""
    store = Store(
        Path(web.gate.state), idle=web.gate.idle_days * DAY, absolute=web.gate.absolute_days * DAY
    )
    gate = Gate(web, store, Live(runtime / "live"), Known(runtime / "known"))
    for user, entry in sorted(web.users.items()):
        if user not in store.passwords:
            _seed(gate, user, entry.password_hash_file)
    if not any(user in store.passwords for user in web.users):
        _announce(gate)
    return gate


def _seed(gate: Gate, user: str, configured: str | None) -> None:
    """Take over the first password of `user` from a credential of the unit, or from its file."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(credentials) / f"password-{user}" if credentials else None
    if path is None or not path.exists():
        if configured is None:
            return
        path = Path(configured)
    try:
        hashed = path.read_text("ascii").strip()
        if hashed == MISSING:
            log.error("the password file of %s is missing: %s", user, configured)
            return
        gate.set_hash(user, hashed, "seed")
    except (OSError, UnicodeDecodeError) as error:
        log.error("cannot read the password hash of %s from %s: %s", user, path, error)
    except ValueError as error:
        log.error("the password hash of %s in %s is not usable: %s", user, path, error)


def _announce(gate: Gate) -> None:
    """Print a set-up code where only who owns the box can read it."""
    user = gate.web.root_user
    address = gate.web.origins[0] if gate.web.origins else f"https://{gate.web.domain}"
    waiting = gate.store.setups.get(user)
    if waiting is not None and waiting.expires is not None:
        # Somebody was handed one, by root or with the end of a launch: it goes on working.
        print(
            f"agent-box: nobody has a password yet. Open {address}/login and choose one for {user}"
            " with the set-up code that you were given, or with a new one that root makes:"
            f" agent-box-gate setup-code {user}",
            flush=True,
        )
        return
    code = setup.current(gate.store, user, lifetime=None)
    # To standard output, which the unit also connects to the console; the log goes elsewhere.
    print(
        f"agent-box: nobody has a password yet. Open {setup.link(address, user, code)}"
        f" or {address}/login, and choose one for {user} with the set-up code {code}",
        flush=True,
    )


def main() -> None:
    """Serve until told to stop."""
    httpd.setup_logging()
    os.umask(0o077)
    passwords.give_memory_back()
    sockets = activated()
    admin = next((sock for name, sock in sockets.items() if "admin" in name), None)
    # Whom the edge does not know comes in by the other one, and waits there for others like that.
    known = next((sock for name, sock in sockets.items() if "known" in name), None)
    front = next((sock for sock in sockets.values() if sock not in (admin, known)), None)
    try:
        web = config.load().web
        if web is None:
            raise InternalError("the box has no browser surface: services.agent-box.web is off")
        if sys.argv[1:] == ["--routes"]:
            with tempfile.TemporaryDirectory() as folder:
                here = Path(folder)
                gate = Gate(web, Store(here), Live(here / "live"), Known(here / "known"))
                sys.stdout.write(httpd.listed(routes(gate, Unbans(here / "unban"))))
            return
        runtime = Path(os.environ.get("RUNTIME_DIRECTORY") or RUNTIME_DIRECTORY)
        gate = build(web, runtime)
        app = application(gate, Unbans(WISHES), admin)
        httpd.run(app, sock=known, strangers=front, limits=LIMITS)
    except AgentBoxError as error:
        log.critical("%s", error)
        sys.exit(error.exit_code)
