"""Deciding on every entry of every list, and remembering who has which host name."""

from __future__ import annotations

import collections
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_box.errors import UsageError
from agent_box.sites import caddyfile, model, names, ports

if TYPE_CHECKING:
    from pathlib import Path

    from agent_box import config

MOST_NEW, WEEK = 30, 7 * 86400.0
"""Host names that a user can begin to use in a week: issuers of certificates count them. As long
does a name that was given up wait for its user."""


@dataclass
class Declaration:
    """What a user's list holds."""

    user: config.User
    gid: int
    digest: str = ""
    """SHA-256 of the file's bytes, so that the command can tell which version was looked at."""
    problem: str | None = None
    sites: dict[str, object] = field(default_factory=dict)
    data: bytes = b""
    """The file's bytes, where they are a list."""


@dataclass
class Verdict:
    """What became of one entry."""

    name: str
    state: str
    """`served` or `refused`. Whether anything answers behind it, only the user's programs know."""
    url: str | None = None
    target: str | None = None
    public: bool | None = None
    reason: str | None = None
    port: int | None = None
    dir: str | None = None


@dataclass
class Claim:
    """Who has a host name."""

    user: str
    since: float
    """Seconds of the epoch."""
    released: float | None = None
    """When it went out of use, if it did."""


Claims = dict[str, Claim]


def read_claims(path: Path) -> Claims:
    """Return who has, or lately had, which host name."""
    try:
        known = json.loads(path.read_bytes())
        return {
            # Those of earlier versions end with the second.
            host: Claim(str(each[0]), float(each[1]), *map(float, each[2:3]))
            for host, each in known.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, IndexError):
        return {}


def dump_claims(claims: Claims) -> bytes:
    """Return the claims as they are kept."""
    rows = {
        host: [each.user, each.since] + ([] if each.released is None else [each.released])
        for host, each in sorted(claims.items())
    }
    return json.dumps(rows).encode()


def claim(targets: list[caddyfile.Target], claimed: Claims, now: float) -> Claims:
    """Return the claims after these sites went into service."""
    kept: Claims = {}
    for host, each in claimed.items():
        released = now if each.released is None else each.released
        if released > now - WEEK:
            kept[host] = Claim(each.user, each.since, released)
    for target in targets:
        before = claimed.get(target.host)
        mine = before is not None and before.user == target.user
        since = before.since if before is not None and mine else now
        kept[target.host] = Claim(target.user, since)
    return kept


def judge(
    found: list[Declaration], web: config.Web, claimed: Claims
) -> tuple[dict[str, list[Verdict]], list[caddyfile.Target]]:
    """Decide on every entry; a host name belongs to whoever had it first."""
    now = time.time()
    held = {
        host: each.user
        for host, each in claimed.items()
        if each.released is None or each.released > now - WEEK
    }
    begun = collections.Counter(each.user for each in claimed.values() if each.since > now - WEEK)
    judging = _Judging(web, [each.user.name for each in found], held, begun)
    verdicts = {each.user.name: judging.list_of(each) for each in found}
    return verdicts, judging.targets


@dataclass
class _Judging:
    web: config.Web
    users: list[str]
    held: dict[str, str]
    begun: collections.Counter[str]
    used: set[str] = field(default_factory=set)
    targets: list[caddyfile.Target] = field(default_factory=list)

    def list_of(self, owner: Declaration) -> list[Verdict]:
        """Return the verdict on each entry of a user."""
        verdicts: list[Verdict] = []
        for number, (name, raw) in enumerate(owner.sites.items()):
            # Of a flood of entries, not each is worth a line.
            if number >= model.MOST_SITES:
                left = len(owner.sites) - number
                reason = f"a user has {model.MOST_SITES} sites at most: {left} entries are left out"
                verdicts.append(Verdict(name[:60], "refused", reason=reason))
                break
            try:
                verdicts.append(self._entry(owner.user, name, raw))
            except UsageError as error:
                verdicts.append(Verdict(name[:60], "refused", reason=str(error)))
        return verdicts

    def _entry(self, user: config.User, name: str, raw: object) -> Verdict:
        site = model.check(name, raw)
        host = self._host(user.name, name, site)
        folder = None if site.dir is None else model.below_sites(site.dir, str(user.home))
        if site.port is not None:
            socket, shown = ports.path_of(user.name, site.port), f"port {site.port}"
        else:
            socket, shown = f"/run/agent-box-site-files/{user.name}.sock", f"~/sites/{folder}"
        self._begin(host, user.name)
        self.targets.append(
            caddyfile.Target(host, user.name, site.public, f"unix/{socket}", folder, site.port)
        )
        url = f"https://{host}{box_ports(self.web)[0]}/"
        return Verdict(name, "served", url, shown, site.public, port=site.port, dir=folder)

    def _host(self, user: str, name: str, site: model.Site) -> str:
        """Return the host name of a site; UsageError unless the user can have it."""
        domain = self.web.sites_domain or self.web.domain
        label = site.host if site.host is not None else name + names.tail(user)
        held = self.held.get(f"{label}.{domain}") == user
        label = names.label_of(name, site, user, self.users, domain=self.web.domain, held=held)
        host = f"{label}.{domain}"
        if host == self.web.domain or self.held.get(host, user) != user:
            raise UsageError(f"{host} belongs to another user")
        if host in self.used:
            raise UsageError(f"{host} is the address of another site of yours")
        return host

    def _begin(self, host: str, user: str) -> None:
        """Take a host name; UsageError where that are too many in a week."""
        if host not in self.held:
            self.begun[user] += 1
            if self.begun[user] > MOST_NEW:
                raise UsageError(f"{MOST_NEW} new host names in a week are most; use one again")
            self.held[host] = user
        self.used.add(host)


def box_ports(web: config.Web) -> tuple[str, ...]:
    """Return how browsers write the port of the box: "" or ":8443", the main one first."""
    found = [origin.removeprefix("https://").partition(":") for origin in web.origins]
    return tuple(dict.fromkeys(f"{colon}{port}" for _, colon, port in found)) or ("",)
