"""The socket for root: newline-delimited JSON, as on the supervisor's control socket."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import TYPE_CHECKING, Any

from agent_box import peer
from agent_box.errors import AgentBoxError, UsageError
from agent_box.gate import addresses

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from agent_box.gate.authority import Gate

log = logging.getLogger(__name__)

_MAX_LINE = 64 * 1024


class Admin:
    """Carries out what root asks for."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._ops: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "status": self._status,
            "set-password": self._set_password,
            "logins": self._logins,
            "revoke": self._revoke,
            "unban": self._unban,
            "setup-code": self._setup_code,
        }

    async def listen(self, sock: socket.socket) -> asyncio.Server:
        """Answer on `sock`, a listening UNIX socket."""
        # Not as a server of a UNIX socket, which Python 3.13 removes with the last of them: this
        # one is systemd's and stays for the next process.
        return await asyncio.start_server(self._serve, sock=sock, limit=_MAX_LINE)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _peer(writer) not in (0, os.getuid()):
                return
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # gone, or a line without end
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            op, args = request["op"], dict(request.get("args", {}))
            work = self._ops[op]
        except (ValueError, KeyError, TypeError, AttributeError):
            return _refusal("usage", f"ask for one of: {', '.join(sorted(self._ops))}")
        try:
            return {"ok": True, "result": await work(args)}
        except AgentBoxError as error:
            # The finer kinds are for the browser; here the exit status counts.
            code = UsageError.code if isinstance(error, UsageError) else error.code
            return _refusal(code, str(error))
        except (OSError, ValueError, TypeError) as error:
            # Without the text, which may quote the request.
            log.error("operation %s: %s", op, type(error).__name__)
            return _refusal("internal", f"{op} failed: {type(error).__name__}")

    async def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        store = self._gate.store
        return {
            "users": {
                user: {
                    "password": user in store.passwords,
                    "setupCode": user in store.setups,
                    "logins": len(store.logins(user)),
                }
                for user in sorted(self._gate.users)
            },
            "throttled": len(self._gate.throttle),
            "waiting": self._gate.worker.waiting,
            "saved": not store.dirty,
        }

    async def _set_password(self, args: dict[str, Any]) -> dict[str, Any]:
        user = _text(args, "user")
        if "hash" in args:
            try:
                return {"ended": self._gate.set_hash(user, _text(args, "hash").strip())}
            except ValueError as error:
                raise UsageError(f"the hash is not usable: {error}") from None
        return {"ended": await self._gate.set_password(user, _text(args, "password"))}

    async def _logins(self, args: dict[str, Any]) -> dict[str, Any]:
        user = args.get("user")
        if user is not None:
            self._gate.check_user(user)
        store = self._gate.store
        return {
            "logins": [
                {
                    "id": login.id,
                    "user": login.user,
                    "device": login.device,
                    "address": login.address,
                    "created": login.created,
                    "lastUse": login.last_use,
                    "ends": store.ends(login),
                }
                for login in store.logins(user)
            ]
        }

    async def _revoke(self, args: dict[str, Any]) -> dict[str, Any]:
        store = self._gate.store
        if args.get("all"):
            ids = [login.id for login in store.logins()]
        elif "user" in args:
            self._gate.check_user(args["user"])
            ids = [login.id for login in store.logins(args["user"])]
        else:
            start = _text(args, "id")
            ids = [login.id for login in store.logins() if login.id.startswith(start)]
            if len(ids) > 1:
                raise UsageError(f"more than one login starts with {start}; give more of its id")
        return {"ended": self._gate.end(ids)}

    async def _unban(self, args: dict[str, Any]) -> dict[str, Any]:
        if args.get("all"):
            return {"forgiven": self._gate.throttle.forgive_all()}
        address = addresses.parse(_text(args, "address"))
        return {"forgiven": int(self._gate.throttle.forgive(address))}

    async def _setup_code(self, args: dict[str, Any]) -> dict[str, Any]:
        user, renew = _text(args, "user"), args.get("renew") is True
        code = self._gate.setup_code(user, renew=renew)
        expires = self._gate.store.setups[user].expires
        return {"code": code, "expires": expires}


def _peer(writer: asyncio.StreamWriter) -> int:
    return peer.uid_of(writer.get_extra_info("socket"))


def _text(args: dict[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"'{name}' is missing")
    return value


def _refusal(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}
