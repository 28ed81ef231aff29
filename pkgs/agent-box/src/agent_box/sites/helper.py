"""`agent-box-sites`: turns what users declare into the edge's configuration, as root.

Each user's file is read with that user's rights and each entry is judged by itself, so that a bad
one harms nobody. A new file takes the place of the former only after the edge has loaded it.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import pwd
import stat
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_box import config
from agent_box.errors import AgentBoxError, UsageError
from agent_box.locking import locked
from agent_box.sites import caddyfile, declared, listeners, model
from agent_box.sites.publish import publish, write

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = Path("/var/lib/agent-box-sites")
"""The edge's file and each user's last good list, root's alone."""

RESULTS = Path("/run/agent-box-sites")
"""What became of each user's entries: `<user>.json`."""

MOST_NEW, WEEK = 30, 7 * 86400.0
"""Host names that a user can begin to use in a week: issuers of certificates count them."""

_ROUNDS = 3
_TIMEOUT = 60.0


@dataclass
class Declaration:
    """What a user's file held."""

    user: config.User
    uid: int
    gid: int
    digest: str = ""
    """SHA-256 of the file's bytes, so that the command can tell which version was looked at."""
    problem: str | None = None
    sites: dict[str, object] = field(default_factory=dict)


@dataclass
class Verdict:
    """What became of one entry."""

    name: str
    state: str
    """`served`, `waiting` (served, but nothing listens behind it) or `refused`."""
    url: str | None = None
    target: str | None = None
    public: bool | None = None
    reason: str | None = None


def main() -> None:
    """Render until the users' files stop changing."""
    try:
        box = config.load()
        if box.web is None:
            return
        with locked(STATE / "render", timeout=_TIMEOUT):
            for _ in range(_ROUNDS):
                before = [_stamp(declared.path_of(box.user(name))) for name in box.web.users]
                run(box, box.web)
                if before == [_stamp(declared.path_of(box.user(name))) for name in box.web.users]:
                    break
    except AgentBoxError as error:
        print(f"agent-box-sites: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run(box: config.Box, web: config.Web) -> None:
    """Look at every user's file once, bring the edge up to date and leave the results."""
    found = [collect(box.user(name)) for name in sorted(web.users)]
    claimed = claims()
    verdicts, targets = judge(found, web, claimed)
    trouble = publish(caddyfile.render(targets, surroundings(web)), STATE, RESULTS)
    if trouble is None:
        write(STATE / "claims.json", json.dumps(claim(targets, claimed)).encode(), 0o600)
    marker = RESULTS / "any"
    if any(verdicts.values()):
        marker.touch()
    else:
        marker.unlink(missing_ok=True)
    for each in found:
        report(each, verdicts[each.user.name], trouble)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextlib.contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Have a user's rights over files and no more, when this is root."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([gid])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def collect(user: config.User) -> Declaration:
    """Read a user's file; one that does not parse leaves the last good one in force."""
    try:
        account = pwd.getpwnam(user.name)
    except KeyError:
        return Declaration(user, 0, 0, problem="there is no such account")
    found = Declaration(user, account.pw_uid, account.pw_gid)
    kept = STATE / f"{user.name}.last-good.json"
    try:
        with acting_as(found.uid, found.gid):
            data = _bounded(declared.path_of(user))
        found.digest = hashlib.sha256(data).hexdigest()
        found.sites = model.parse(data)
    except (OSError, UsageError) as error:
        reason = f"cannot read the file ({error.strerror})" if isinstance(error, OSError) else error
        found.problem = f"{reason}; the last good version stays in force"
        with contextlib.suppress(OSError, UsageError):
            found.sites = model.parse(kept.read_bytes())
        return found
    write(kept, data, 0o600)
    return found


def _bounded(path: Path) -> bytes:
    """Return the content of a regular file, at most a byte more than is allowed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError("it is no regular file")
        return file.read(model.MOST_BYTES + 1)


Claims = dict[str, tuple[str, float]]
"""Who has which host name, and since when (unix seconds)."""


def claims() -> Claims:
    """Return who has, or lately had, which host name."""
    try:
        known = json.loads((STATE / "claims.json").read_bytes())
        return {host: (str(user), float(since)) for host, (user, since) in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def claim(targets: list[caddyfile.Target], claimed: Claims) -> Claims:
    """Return the claims after these sites went into service."""
    now = time.time()
    lately = {host: each for host, each in claimed.items() if each[1] > now - WEEK}
    for target in targets:
        before = claimed.get(target.host)
        kept = before is not None and before[0] == target.user
        lately[target.host] = before if before is not None and kept else (target.user, now)
    return lately


def judge(
    found: list[Declaration], web: config.Web, claimed: Claims
) -> tuple[dict[str, list[Verdict]], list[caddyfile.Target]]:
    """Decide on every entry; a host name belongs to whoever had it first."""
    listening = listeners.listeners()
    names = [each.user.name for each in found]
    wanted: dict[str, set[str]] = {}
    for each in found:
        for name, raw in each.sites.items():
            with contextlib.suppress(UsageError):
                label = model.label_of(name, model.check(name, raw), each.user.name, names)
                wanted.setdefault(f"{label}.{web.domain}", set()).add(each.user.name)
    taken = {
        host: claimed[host][0]
        for host, users in wanted.items()
        if host in claimed and claimed[host][0] in users
    }
    week = time.time() - WEEK
    begun = collections.Counter(user for user, since in claimed.values() if since > week)
    used: set[str] = set()
    verdicts: dict[str, list[Verdict]] = {}
    targets: list[caddyfile.Target] = []
    for each in found:
        mine = verdicts.setdefault(each.user.name, [])
        for number, (name, raw) in enumerate(each.sites.items()):
            # Of a flood of entries, not each is worth a line.
            if number >= model.MOST_SITES:
                left = len(each.sites) - number
                reason = f"a user has {model.MOST_SITES} sites at most: {left} entries are left out"
                mine.append(Verdict(name[:60], "refused", reason=reason))
                break
            try:
                target, verdict = _entry(each, name, raw, web, names, taken, used, listening)
                if claimed.get(target.host, ("",))[0] != target.user:
                    begun[target.user] += 1
                    if begun[target.user] > MOST_NEW:
                        reason = f"{MOST_NEW} new host names in a week are most; use one again"
                        raise UsageError(reason)  # noqa: TRY301
            except UsageError as error:
                mine.append(Verdict(name[:60], "refused", reason=str(error)))
            else:
                targets.append(target)
                mine.append(verdict)
    return verdicts, targets


def _entry(
    owner: Declaration,
    name: str,
    raw: object,
    web: config.Web,
    names: list[str],
    taken: dict[str, str],
    used: set[str],
    listening: list[listeners.Listener],
) -> tuple[caddyfile.Target, Verdict]:
    user = owner.user
    site = model.check(name, raw)
    host = f"{model.label_of(name, site, user.name, names)}.{web.domain}"
    if host == web.domain or taken.get(host, user.name) != user.name:
        raise UsageError(f"{host} belongs to another user")
    if host in used:
        raise UsageError(f"{host} is the address of another site of yours")
    note: str | None = None
    folder: str | None = None
    if site.port is not None:
        upstream, note = _upstream(site.port, owner.uid, listening)
        shown = upstream
    else:
        folder = _folder(owner, site.dir or "")
        upstream = f"unix//run/agent-box-site-files/{user.name}.sock"
        shown = f"~/sites/{folder}"
    taken[host] = user.name
    used.add(host)
    port = _ports(web)[0]
    target = caddyfile.Target(host, user.name, site.public, upstream, folder)
    state = "served" if note is None else "waiting"
    return target, Verdict(name, state, f"https://{host}{port}/", shown, site.public, note)


def _upstream(port: int, uid: int, listening: list[listeners.Listener]) -> tuple[str, str | None]:
    """Return where to connect to, and what is amiss; UsageError if it is somebody else's port."""
    found = listeners.reached(port, listening)
    for target, address in (("127.0.0.1", f"127.0.0.1:{port}"), ("::1", f"[::1]:{port}")):
        if target in found and found[target].uid == uid:
            return address, None
    if found:
        raise UsageError(f"another user's program listens on port {port}")
    return f"127.0.0.1:{port}", f"nothing listens on port {port} yet"


def _folder(owner: Declaration, directory: str) -> str:
    home = str(owner.user.home)
    relative = model.below_sites(directory, home)
    root = Path(home, "sites")
    with acting_as(owner.uid, owner.gid):
        path = Path(os.path.realpath(root / relative))
        inside = path.is_relative_to(os.path.realpath(root)) and path.is_relative_to(
            os.path.realpath(home)
        )
        if not inside:
            raise UsageError(f"the folder leads out of {root}")
        if not path.is_dir():
            raise UsageError(f"there is no folder {root / relative}")
    return relative


def _ports(web: config.Web) -> tuple[str, ...]:
    """Return how browsers write the port of the box: "" or ":8443", the main one first."""
    found = [origin.removeprefix("https://").partition(":") for origin in web.origins]
    return tuple(dict.fromkeys(f"{colon}{port}" for _, colon, port in found)) or ("",)


def surroundings(web: config.Web) -> caddyfile.Surroundings:
    """Return the facts of the box that the templates need."""
    return caddyfile.Surroundings(_ports(web))


def report(found: Declaration, verdicts: list[Verdict], trouble: str | None) -> None:
    """Leave what the user's command shows."""
    document: dict[str, Any] = {
        "version": 1,
        "at": time.time(),
        "digest": found.digest,
        "problem": found.problem or trouble,
        "sites": [vars(verdict) for verdict in verdicts],
    }
    path = RESULTS / f"{found.user.name}.json"
    write(path, json.dumps(document).encode() + b"\n", 0o640)
    if os.geteuid() == 0:
        os.chown(path, 0, found.gid)
    for verdict in verdicts:
        if verdict.state == "refused":
            print(f"site of {found.user.name} refused: {verdict.name!r}: {verdict.reason}")
