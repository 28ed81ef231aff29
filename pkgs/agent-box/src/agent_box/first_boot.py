"""agent-box-first-boot: what a machine in a cloud does once, when it first runs this system.

The box is asked over its own address as a browser would, and the launch hears how that went, at
the address that CloudFormation made for it: a stack whose box does not answer fails with the
reason, and does not wait for its time to run out. What a machine is launched with can be read for
as long as it exists, so that no password comes that way. It is the box that makes a secret, a
set-up code which works once and for a day, and hands it to the launch with the good news.

A launch of an earlier template left a password, in a file that root alone reads. It becomes that of
the first user, and its file is removed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import socket
import ssl
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent_box import config
from agent_box.control_client import Client
from agent_box.errors import AgentBoxError, InternalError, UsageError
from agent_box.gate import cli as gate

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

FOLDER = Path("/var/lib/agent-box-launch")
"""Where the launch leaves its files, root's alone. Never in the store, which all can read."""

PASSWORD = "password"  # noqa: S105 - the name of a file
"""First password of the user whose workspace `/` leads to, as one line."""

SIGNAL = "signal"
"""Where the launch waits to hear from the box: the URL of a CloudFormation wait handle."""

PATIENCE = 600.0
"""Seconds that services and the certificate get. An issuer may take some minutes."""

PAUSE = 3.0
"""Seconds between two looks, and between two attempts to tell."""

TELLING = 600.0
"""Seconds for which telling the launch is attempted."""

TIMEOUT = 10.0

LONGEST_REASON = 1000
"""Characters of a reason; CloudFormation keeps 4096 bytes of all that it is told."""


def probe(domain: str, port: int, context: ssl.SSLContext) -> str | None:
    """Ask the box as a browser would; return what is wrong, None when it asks for a login."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=domain) as secure,
        ):
            request = f"GET / HTTP/1.1\r\nHost: {domain}\r\nConnection: close\r\n\r\n"
            secure.sendall(request.encode("ascii"))
            answer = http.client.HTTPResponse(secure)
            answer.begin()
    except ssl.SSLCertVerificationError as error:
        return f"no certificate for {domain} yet: {error.verify_message}"
    except (OSError, http.client.HTTPException) as error:
        return f"https://{domain}/ does not answer: {error}"
    if answer.status != HTTPStatus.UNAUTHORIZED:
        return f"https://{domain}/ answers {answer.status} instead of asking for a login"
    return None


def tell(url: str, reason: str | None, data: str = "") -> bool:
    """Tell the launch that all is well, or the reason why not; return whether it has heard."""
    body = json.dumps(
        {
            "Status": "SUCCESS" if reason is None else "FAILURE",
            "UniqueId": "first-boot",
            "Reason": (reason or "The box answers.")[:LONGEST_REASON],
            "Data": data,
        }
    )
    where = urlsplit(url)
    make = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    deadline = time.monotonic() + TELLING
    while True:
        try:
            connection = make(where.netloc, timeout=TIMEOUT)
            # Without a content type: the signature of the URL covers that there is none.
            connection.request("PUT", f"{where.path}?{where.query}", body.encode())
            status = connection.getresponse().status
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            trouble = str(error)
        else:
            if status == HTTPStatus.OK:
                return True
            trouble = f"status {status}"
        if time.monotonic() > deadline:
            log.error("the launch did not hear: %s", trouble)
            return False
        time.sleep(PAUSE)


class FirstBoot:
    """One run, with the files of one launch."""

    def __init__(self, box: config.Box, folder: Path, context: ssl.SSLContext, port: int) -> None:
        self.box = box
        self.folder = folder
        self.context = context
        self.port = port

    def run(self) -> int:
        """Do what is left to do; 0 when the box stands and whoever wants to know has heard so."""
        try:
            where = self._patiently(self._stands)
        except AgentBoxError as error:
            log.error("%s", error)
            self._tell(str(error))
            return error.exit_code
        log.info("the box answers at %s", where)
        try:
            data = self._code() if self._is_awaited() else None
        except AgentBoxError as error:
            log.error("there is no set-up code for the launch: %s", error)
            data = None
        return 0 if self._tell(None, data or where) else InternalError.exit_code

    def _is_awaited(self) -> bool:
        return (self.folder / SIGNAL).exists()

    def _code(self) -> str | None:
        """Return a code with which whoever launched the box chooses the first password."""
        if self.box.web is None:
            return None
        user = self.box.web.root_user
        if gate.call("status")["users"][user]["password"]:
            return None
        # Not the one that the console of the machine and its journal show.
        code: str = gate.call("setup-code", user=user, renew=True)["code"]
        return code

    def _patiently(self, attempt: Callable[[], str]) -> str:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return attempt()
            except InternalError as error:
                if time.monotonic() > deadline:
                    raise
                log.info("%s", error)
            time.sleep(PAUSE)

    def _stands(self) -> str:
        """Return the address of the box; InternalError while something is not there yet."""
        web = self.box.web
        user = web.root_user if web is not None else next(iter(self.box.users))
        Client(self.box.users[user].runtime_directory).call("status")
        if web is None:
            return ""
        self._set_password(user)
        if (trouble := probe(web.domain, self.port, self.context)) is not None:
            raise InternalError(trouble)
        return f"{web.origins[0]}/{user}/"

    def _set_password(self, user: str) -> None:
        file = self.folder / PASSWORD
        try:
            password = file.read_text().rstrip("\r\n")
        except FileNotFoundError:
            return
        try:
            gate.call("set-password", user=user, password=password)
        except UsageError as error:
            # It will not do better at the next boot.
            file.unlink()
            raise UsageError(f"the password of the launch is refused: {error}") from None
        file.unlink()
        log.info("the password of %s is that of the launch", user)

    def _tell(self, reason: str | None, data: str = "") -> bool:
        file = self.folder / SIGNAL
        try:
            url = file.read_text().strip()
        except FileNotFoundError:
            return True
        if not tell(url, reason, data):
            return False
        file.unlink()
        return True


def main(argv: list[str] | None = None) -> int:
    """Run once, as root; exit 0 when the box stands."""
    parser = argparse.ArgumentParser(prog="agent-box-first-boot", description="Once, after launch.")
    parser.add_argument(
        "--any-certificate", action="store_true", help="also one that browsers do not trust"
    )
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    context = ssl.create_default_context()
    if arguments.any_certificate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        box = config.load()
    except AgentBoxError as error:
        sys.stderr.write(f"agent-box-first-boot: {error}\n")
        return error.exit_code
    return FirstBoot(box, FOLDER, context, 443).run()


if __name__ == "__main__":
    sys.exit(main())
