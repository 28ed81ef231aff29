"""The gate's decisions, without HTTP: who signs in, which logins live, what ends them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import logging
import secrets
import time
from typing import TYPE_CHECKING

from agent_box.errors import NotFoundError
from agent_box.gate import addresses, passwords, policy, setup, wire
from agent_box.gate.errors import DifferentError, PolicyError, WrongPasswordError
from agent_box.gate.store import Login, digest
from agent_box.gate.throttle import FREE, NOBODY, Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.datastructures import Headers

    from agent_box.config import Web
    from agent_box.gate.addresses import Address
    from agent_box.gate.known import Known
    from agent_box.gate.live import Live
    from agent_box.gate.store import Password, Store

log = logging.getLogger(__name__)

REMEMBER = 600.0
"""Seconds for which a right Basic credential is not hashed again."""

MAX_REMEMBERED = 256

MAX_FORGIVEN = 1024
"""Networks remembered that were forgiven: the ban that their failures led to may come late."""

FLUSH = 60.0
"""Seconds after which a last use is on the disk, and between tries when the disk is full."""

_LONGEST_SLEEP = 3600.0


@dataclasses.dataclass(frozen=True)
class Client:
    """Who sends a request."""

    address: Address
    device: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """A login that a request has shown, or has just opened."""

    login: Login
    token: str | None = dataclasses.field(default=None, repr=False)
    """The cookie to set, for a new login."""
    with_cookie: bool = True


class Gate:
    """Judges credentials and keeps logins."""

    def __init__(
        self,
        web: Web,
        store: Store,
        live: Live,
        known: Known,
        *,
        throttle: Throttle | None = None,
        worker: passwords.Worker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.web = web
        self.users = frozenset(web.users)
        self.store = store
        self.live = live
        self.known = known
        self.throttle = throttle or Throttle(clock)
        self.worker = worker or passwords.Worker()
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._remembered: dict[bytes, tuple[str, float]] = {}
        self._flights: dict[tuple[bytes, Address], asyncio.Future[Password | None]] = {}
        self._basic: dict[str, str] = {}
        self._forgiven: dict[tuple[str, bytes], None] = {}
        self._decoys: dict[passwords.Scheme, str] = {}
        self._wake = asyncio.Event()

    # -- showing a credential

    async def authenticate(self, headers: Headers, client: Client) -> Entry | None:
        """Return the login behind a request, or `None`.

        A cookie that is not (or no longer) one of ours is no guess and costs nothing; a wrong
        Basic credential is a failure. Raises ThrottledError and BusyError.
        """
        token = wire.cookie(headers)
        login = self.store.by_token(token) if token else None
        if login is not None and login.user in self.users:
            self._touch(login)
            self.known.add(token or "", login.id)
            return Entry(login)
        basic = wire.basic(headers)
        if basic is None:
            return None
        if not await self._judge_basic(basic, client.address):
            return None
        return Entry(self._basic_login(basic.user, client), with_cookie=False)

    async def sign_in(self, user: str, password: str, client: Client) -> Entry:
        """Open a login; WrongPasswordError, ThrottledError or BusyError."""
        if await self._judge(user, password, client.address) is None:
            raise WrongPasswordError("user name or password is wrong")
        return self._open(user, client)

    async def set_up(
        self, user: str, code: str, new: str, client: Client, again: str | None = None
    ) -> Entry:
        """Choose the password of `user` with a set-up code and open a login.

        WrongPasswordError for a wrong code; PolicyError leaves the code working.
        """
        with self.throttle.attempt(client.address, self._whose(user)) as attempt:
            if not self._is_code(user, code):
                attempt.failed = True
                self._report(client.address)
                raise WrongPasswordError("user name or set-up code is wrong")
        if again is not None and again != new:
            raise DifferentError("the two new passwords differ")
        self.check_new(user, new)
        hashed = await self.worker.run(lambda: passwords.make(new), preferred=True)
        if not self._is_code(user, code):  # somebody else was faster
            raise WrongPasswordError("user name or set-up code is wrong")
        self._replace(user, hashed, "setup")
        return self._open(user, client)

    # -- changing

    async def change_password(self, entry: Entry, current: str, new: str, client: Client) -> Entry:
        """Replace the password of the login's user: ends every login and terminal of theirs.

        Returns the login to go on with. PolicyError, WrongPasswordError, ThrottledError,
        BusyError and InternalError leave everything as it was.
        """
        user = entry.login.user
        self.check_new(user, new)
        # Not to be forgiven by who sends them: whoever found an open browser is signed in, too.
        judged = await self._judge(user, current, client.address, forgivable=False)
        if judged is None:
            raise WrongPasswordError("the current password is wrong")
        if passwords.normalise(new) == passwords.normalise(current):
            raise PolicyError("the new password is the current one")
        hashed = await self.worker.run(lambda: passwords.make(new), preferred=True)
        if self.store.passwords.get(user) != judged:
            raise WrongPasswordError("the password was changed elsewhere in the meantime")
        self._replace(user, hashed, "user")
        if not entry.with_cookie:
            return Entry(self._basic_login(user, client), with_cookie=False)
        return self._open(user, client)

    async def set_password(self, user: str, new: str) -> int:
        """Set a password on behalf of root; return how many logins that ended."""
        self.check_user(user)
        self.check_new(user, new)
        hashed = await self.worker.run(lambda: passwords.make(new), preferred=True)
        return self._replace(user, hashed, "root")

    def set_hash(self, user: str, hashed: str, origin: str = "root") -> int:
        """Set a password by its hash; ValueError when the hash is not acceptable."""
        self.check_user(user)
        passwords.scheme(hashed)
        return self._replace(user, hashed, origin)

    def setup_code(self, user: str, *, renew: bool = False) -> str:
        """Return the set-up code of `user` on behalf of root: another one if `renew` says so."""
        self.check_user(user)
        return (setup.create if renew else setup.current)(self.store, user)

    @property
    def only_user(self) -> str:
        """Who alone can sign in here, which forms need not ask; "" where there are several."""
        return next(iter(self.users)) if len(self.users) == 1 else ""

    def has_passwords(self) -> bool:
        """Tell whether anybody can sign in; otherwise a set-up code is what to ask for."""
        return any(user in self.users for user in self.store.passwords)

    def check_new(self, user: str, new: str) -> None:
        """Raise PolicyError when `new` is no acceptable password for `user`."""
        policy.check(new, (user, self.web.domain))

    def check_user(self, user: str) -> None:
        """Raise NotFoundError when nobody of that name can sign in."""
        if user not in self.users:
            names = ", ".join(sorted(self.users)) or "none"
            raise NotFoundError(f"'{user}' cannot sign in on this box (its users: {names})")

    def end(self, ids: Iterable[str]) -> list[str]:
        """End logins and their terminals; return the ids there were. Raises as `Store.end`."""
        wanted = list(ids)
        try:
            return self.store.end(wanted)
        finally:
            self.live.remove(wanted)

    # -- forgiving

    def may_forgive(self, user: str, address: Address) -> bool:
        """Tell whether a ban of `address` is for `user` to lift.

        It is where failures of the own name led to it, or did until they were forgiven, and those
        of other names would not have.
        """
        own = self.throttle.count(address, (user, NOBODY))
        if not own and (user, addresses.network(address)) not in self._forgiven:
            return False
        return self.throttle.count(address) - own < FREE

    def forgive(self, user: str, address: Address) -> int:
        """Forget the failures of `address` under the name of `user`; return how many there were."""
        count = self.throttle.forgive(address, (user, NOBODY))
        if count:
            self._forgiven[user, addresses.network(address)] = None
            while len(self._forgiven) > MAX_FORGIVEN:
                del self._forgiven[next(iter(self._forgiven))]
        return count

    # -- keeping house

    def start(self) -> None:
        """Bring the files of the logins in line with the store."""
        self.live.remove(self.store.expire(self.users))
        self.live.match((login.user, login.id) for login in self.store.logins())
        self.known.match(login.id for login in self.store.logins())

    async def keep_house(self) -> None:
        """End logins when their time has come and write last uses, for ever."""
        while True:
            self.live.remove(self.store.expire(self.users))
            self.known.match(login.id for login in self.store.logins())
            self.store.flush()
            self._wake.clear()
            wait = FLUSH if self.store.dirty else self._until_next_end()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
                # What woke us changes often; the disk hears of it together.
                await asyncio.sleep(min(FLUSH, self._until_next_end()))

    def close(self) -> None:
        """Write what is due and stop the worker. Logins and terminals live on."""
        self.worker.close()
        self.live.remove(self._basic.values())
        self.store.close()

    # -- inside

    def _until_next_end(self) -> float:
        end = self.store.next_end()
        if end is None:
            return _LONGEST_SLEEP
        return min(max(end - self.store.clock(), 0.05), _LONGEST_SLEEP)

    def _touch(self, login: Login) -> None:
        was = self.store.dirty
        self.store.touch(login)
        if self.store.dirty and not was:
            self._wake.set()

    def _open(self, user: str, client: Client) -> Entry:
        token = secrets.token_urlsafe(32)
        login = self._new_login(user, client, digest(token))
        self.known.add(token, login.id)
        return Entry(login, token)

    def _basic_login(self, user: str, client: Client) -> Login:
        """Return the one login that stands for all requests with the user's password."""
        known = self._basic.get(user)
        login = self.store.login(known) if known else None
        if login is None:
            login = self._new_login(user, client, None)
            self._basic[user] = login.id
        self._touch(login)
        return login

    def _new_login(self, user: str, client: Client, token: str | None) -> Login:
        now = self.store.clock()
        login = Login(
            id=secrets.token_hex(16),
            user=user,
            token=token,
            created=now,
            last_use=now,
            device=client.device,
            address=str(client.address),
        )
        self.live.add(user, login.id)
        self.live.remove(self.store.add(login))
        self._wake.set()
        return login

    def _replace(self, user: str, hashed: str, origin: str) -> int:
        ended = self.store.set_password(user, hashed, origin)
        self._basic.pop(user, None)
        self.live.remove(ended)
        log.info("password of %s set by %s; %d logins ended", user, origin, len(ended))
        return len(ended)

    def _is_code(self, user: str, code: str) -> bool:
        entry = self.store.setups.get(user) if user in self.users else None
        given = digest(setup.normalise(code))
        return hmac.compare_digest(entry.hash if entry else "", given)

    async def _judge_basic(self, basic: wire.Basic, address: Address) -> bool:
        text = f"{basic.user}\0{basic.password}".encode("utf-8", "replace")
        key = hmac.digest(self._salt, text, hashlib.sha256)
        entry = self.store.passwords.get(basic.user)
        hashed, until = self._remembered.get(key, ("", 0.0))
        if entry is not None and hashed == entry.hash and self._clock() < until:
            return basic.user in self.users
        # A client that opens many connections at once has one credential: judge it once.
        flight = self._flights.get((key, address))
        if flight is not None:
            judged = await asyncio.shield(flight)
            if judged is None:
                with self.throttle.attempt(address, self._whose(basic.user)) as attempt:
                    attempt.failed = True
                    self._report(address)
            return judged is not None
        flight = asyncio.ensure_future(self._judge(basic.user, basic.password, address))
        self._flights[key, address] = flight
        flight.add_done_callback(lambda _: self._flights.pop((key, address), None))
        judged = await asyncio.shield(flight)
        if judged is not None:
            self._remembered.pop(key, None)
            while len(self._remembered) >= MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            # The one that was judged: by now there may be another, or none.
            self._remembered[key] = (judged.hash, self._clock() + REMEMBER)
        return judged is not None

    async def _judge(
        self, user: str, password: str, address: Address, *, forgivable: bool = True
    ) -> Password | None:
        """Return the entry of `user` if `password` is theirs; count and report when not.

        `forgivable` failures are those that the user may forgive later.
        """
        whose = self._whose(user) if forgivable else None
        with self.throttle.attempt(address, whose) as attempt:
            entry = self.store.passwords.get(user) if user in self.users else None
            hashed = entry.hash if entry else self._decoy(user)
            right = await self.worker.run(
                lambda: passwords.matches(hashed, password), preferred=self._is_familiar(address)
            )
            # The password may have been changed while its turn had not come.
            if right and entry is not None and self.store.passwords.get(user) == entry:
                return entry
            attempt.failed = True
            self._report(address)
            return None

    def _whose(self, name: str) -> str:
        """Return who may forgive failures under `name`: that user, or everybody if it is none."""
        return name if name in self.users else NOBODY

    def _is_familiar(self, address: Address) -> bool:
        """Tell whether somebody is signed in from the network of `address`."""
        network = addresses.network(address)
        return any(
            addresses.network(addresses.parse(login.address)) == network
            for login in self.store.logins()
        )

    def _decoy(self, user: str) -> str:
        """Return a hash to check in vain, so that an unknown name takes as long as a known one.

        Users may have hashes of different cost. Each unknown name imitates the same one of them
        every time; nothing tells it from a user with such a hash.
        """
        schemes = [
            passwords.scheme(entry.hash)
            for name, entry in sorted(self.store.passwords.items())
            if name in self.users
        ] or [passwords.OURS]
        choice = hmac.digest(self.store.key, user.encode("utf-8", "replace"), hashlib.sha256)
        like = schemes[int.from_bytes(choice[:8], "big") % len(schemes)]
        if like not in self._decoys:
            self._decoys[like] = passwords.decoy(like)
        return self._decoys[like]

    def _report(self, address: Address) -> None:
        if address == addresses.UNKNOWN:
            log.warning("agent-box-gate: failed login from an address that the edge did not tell")
            return
        # The line that bans are made of. Nothing in it comes from the client but the address,
        # and that only after it was parsed. Of IPv6 it is the /64, so that failures from
        # neighbouring addresses count together.
        log.warning("agent-box-gate: failed login from %s", addresses.bannable(address))
