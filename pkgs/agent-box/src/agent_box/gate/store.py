"""Passwords and logins of the whole box, in one file.

One file, so that every change is whole: a new password and the end of the logins under the old
one reach the disk together or not at all. Tokens and set-up codes are stored as hashes only.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import time
from typing import TYPE_CHECKING

import msgspec

from agent_box import locking
from agent_box.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

log = logging.getLogger(__name__)

FILE = "gate.json"
VERSION = 1

MAX_LOGINS = 64
"""Logins of one user; a further one ends the one that was unused for longest."""

COARSE = 300.0
"""Seconds by which the recorded last use may lag behind: spares the disk."""

DAY = 86400.0


class Password(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's password."""

    hash: str
    changed: float
    """Unix time."""
    origin: str
    """Who set it last: `seed`, `setup`, `user` or `root`."""


class Login(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One signed-in browser. Unix times."""

    id: str
    """Names the login; opens nothing."""
    user: str
    token: str | None = None
    """SHA-256 of the cookie; `None` for clients that send the password with each request."""
    created: float
    last_use: float
    device: str
    address: str


class SetupCode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A code that chooses a user's first password, once."""

    hash: str
    expires: float | None = None
    nonce: str = ""
    """What it was made from, together with the key of this box, and can be made from again."""


class State(msgspec.Struct, kw_only=True):
    """Everything that outlives the process."""

    version: int = VERSION
    key: str = ""
    """Random; makes what depends on a name unpredictable to others."""
    passwords: dict[str, Password] = {}
    logins: dict[str, Login] = {}
    setups: dict[str, SetupCode] = {}


def digest(token: str) -> str:
    """Return what is stored of a random token. Not for passwords."""
    return hashlib.sha256(token.encode()).hexdigest()


class Store:
    """The state and its file. Used by one process, from one thread."""

    def __init__(
        self,
        directory: Path,
        *,
        idle: float = 7 * DAY,
        absolute: float = 30 * DAY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take over `directory`; ConflictError when another process has it.

        `idle` and `absolute` are seconds after which a login ends without use and at all.
        """
        self.path = directory / FILE
        self.idle = idle
        self.absolute = absolute
        self.clock = clock
        self.dirty = False
        """Whether memory holds what the disk does not."""
        self._ownership = contextlib.ExitStack()
        self._ownership.enter_context(locking.locked(self.path, timeout=5.0))
        try:
            locking.clear_leftovers(self.path)
            self._state = self._load()
            self._by_token = self._index()
            if not self._state.key:
                self.commit(lambda state: setattr(state, "key", secrets.token_hex(32)))
        except BaseException:
            self._ownership.close()
            raise

    def close(self) -> None:
        """Write what is due and give up the directory."""
        self.flush()
        self._ownership.close()

    # -- reading

    @property
    def key(self) -> bytes:
        """A secret of this box."""
        return bytes.fromhex(self._state.key)

    @property
    def passwords(self) -> dict[str, Password]:
        """The passwords by user. Read only."""
        return self._state.passwords

    @property
    def setups(self) -> dict[str, SetupCode]:
        """The set-up codes that still work, by user. Read only."""
        now = self.clock()
        return {
            user: code
            for user, code in self._state.setups.items()
            if code.expires is None or now < code.expires
        }

    def by_token(self, token: str) -> Login | None:
        """Return the login that the cookie `token` belongs to, unless it has ended."""
        login = self._by_token.get(digest(token))
        return login if login is not None and self.lives(login) else None

    def login(self, login_id: str) -> Login | None:
        """Return a login by its id, unless it has ended."""
        login = self._state.logins.get(login_id)
        return login if login is not None and self.lives(login) else None

    def logins(self, user: str | None = None) -> list[Login]:
        """Return the logins (of `user`) that live, last used first."""
        found = [
            login
            for login in self._state.logins.values()
            if user in (None, login.user) and self.lives(login)
        ]
        return sorted(found, key=lambda login: -login.last_use)

    def ends(self, login: Login) -> float:
        """Return when `login` ends unless it is used."""
        return min(login.last_use + self.idle, login.created + self.absolute)

    def lives(self, login: Login) -> bool:
        """Tell whether `login` has neither idled nor lived for too long."""
        return self.clock() < self.ends(login)

    def next_end(self) -> float | None:
        """Return when the next login ends by itself."""
        return min((self.ends(login) for login in self._state.logins.values()), default=None)

    # -- changing

    def touch(self, login: Login) -> None:
        """Record that `login` is in use; reaches the disk with the next flush."""
        now = self.clock()
        if now - login.last_use >= min(COARSE, self.idle / 10):
            login.last_use = now
            if login.token is not None:
                self.dirty = True

    def add(self, login: Login) -> list[str]:
        """Keep a new login; return the ids of those that make room for it.

        It lives even if it cannot be written (the disk may be full, and somebody must be able to
        come in and clean up); then a restart of the gate may end it.
        """
        mine = [other for other in self._state.logins.values() if other.user == login.user]
        mine.sort(key=lambda other: other.last_use)
        surplus = [other.id for other in mine[: max(0, len(mine) + 1 - MAX_LOGINS)]]

        def change(state: State) -> None:
            for login_id in surplus:
                state.logins.pop(login_id, None)
            state.logins[login.id] = login

        self._apply(change)
        return surplus

    def end(self, ids: Iterable[str]) -> list[str]:
        """End logins; return the ids of those that existed.

        They end at once; InternalError says that the disk did not take it and that a restart of
        the gate before the next flush would bring them back.
        """
        found = [login_id for login_id in ids if login_id in self._state.logins]
        if not found:
            return []

        def change(state: State) -> None:
            for login_id in found:
                state.logins.pop(login_id, None)

        if not self._apply(change):
            raise InternalError(
                "signed out, but the box cannot record that (is its disk full?): free some space,"
                " or the login may come back when the box restarts"
            )
        return found

    def expire(self, users: Iterable[str]) -> list[str]:
        """Drop the logins that have ended or that belong to none of `users`; return their ids."""
        known = frozenset(users)
        ended = [
            login.id
            for login in self._state.logins.values()
            if login.user not in known or not self.lives(login)
        ]
        with contextlib.suppress(InternalError):  # stays dirty, and they have ended anyway
            self.end(ended)
        return ended

    def set_password(self, user: str, hashed: str, origin: str) -> list[str]:
        """Give `user` a new password and end all their logins, both or neither.

        Returns the ids of the ended logins; InternalError leaves everything as it was.
        """
        ended = [login.id for login in self._state.logins.values() if login.user == user]

        def change(state: State) -> None:
            state.passwords[user] = Password(hash=hashed, changed=self.clock(), origin=origin)
            state.setups.pop(user, None)
            for login_id in ended:
                state.logins.pop(login_id, None)

        self.commit(change)
        return ended

    def seed_password(self, user: str, hashed: str) -> None:
        """Give `user` a first password; does nothing when there is one."""
        if user not in self._state.passwords:
            self.set_password(user, hashed, "seed")

    def set_setup(self, user: str, code: str, expires: float | None, nonce: str = "") -> None:
        """Let `code` choose the next password of `user`, in place of an earlier code."""
        entry = SetupCode(hash=digest(code), expires=expires, nonce=nonce)
        self.commit(lambda state: state.setups.__setitem__(user, entry))

    def commit(self, change: Callable[[State], object]) -> None:
        """Apply `change` to the state durably, or not at all (InternalError)."""
        state = self._copy()
        change(state)
        try:
            self._write(state)
        except OSError as error:
            raise InternalError(
                f"cannot write {self.path}: {error.strerror}; nothing was changed"
            ) from error
        self._state = state
        self._by_token = self._index()
        self.dirty = False

    def flush(self) -> bool:
        """Write what is only in memory; tell whether the disk is up to date now."""
        if self.dirty:
            try:
                self._write(self._state)
            except OSError as error:
                log.warning("cannot write %s: %s; will try again", self.path, error.strerror)
                return False
            self.dirty = False
        return True

    # -- inside

    def _apply(self, change: Callable[[State], object]) -> bool:
        """Apply `change` in any case; tell whether it is on the disk."""
        change(self._state)
        self._by_token = self._index()
        self.dirty = True
        return self.flush()

    def _copy(self) -> State:
        now = self._state
        return State(
            key=now.key,
            passwords=dict(now.passwords),
            logins=dict(now.logins),
            setups=dict(now.setups),
        )

    def _index(self) -> dict[str, Login]:
        logins = self._state.logins.values()
        return {login.token: login for login in logins if login.token is not None}

    def _write(self, state: State) -> None:
        kept = msgspec.structs.replace(
            state,
            # Without a token nothing of it would work after a restart.
            logins={key: login for key, login in state.logins.items() if login.token is not None},
        )
        data = msgspec.json.format(msgspec.json.encode(kept), indent=1)
        locking.atomic_write(self.path, data + b"\n")

    def _load(self) -> State:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return State()
        except OSError as error:
            raise InternalError(f"cannot read {self.path}: {error.strerror}") from error
        try:
            state = msgspec.json.decode(raw, type=State)
        except msgspec.MsgspecError as error:
            raise InternalError(
                f"{self.path} is damaged ({error}). Nobody can sign in until it is restored from a"
                " backup or moved away; without it every user needs a new password"
            ) from error
        if state.version != VERSION:
            raise InternalError(
                f"{self.path} has version {state.version}, this program reads {VERSION}: it was"
                " written by another release of agent-box"
            )
        return state
