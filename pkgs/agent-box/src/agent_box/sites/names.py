"""Which host names a user's sites may have: none that looks like another user's, or official."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from agent_box.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_box.sites.model import Site

_LONGEST_LABEL = 63

DANGEROUS = """
    2fa account accounts admin administrator agentbox auth authenticate authentication authorize
    billing certificate credential credentials gate helpdesk identity idp login logon logout mfa
    oauth oauth2 oidc otp passkey password passwords passwd payment payments recovery root saml
    secure security signin signon signup sso sudo support sysadmin unlock verification verify
    webauthn
"""
"""Words, anywhere in a host name that somebody chose whole, under which people sign in."""

OFFICIAL = """
    abuse acme api autoconfig autodiscover box broadcasthost caddy cloud console contact dmarc dns
    email ftp git help home host hostmaster http https imap info internal isatap legal localhost
    mail main mx noc none ns ns1 ns2 null official pop pop3 postmaster privacy proxy public sftp
    smtp ssh ssl status sys system terms tls update updates vpn webhook webmail webmaster wpad
    www www1 www2
"""
"""Words that nobody begins to use as a host name. Who did before, keeps it."""

_LOOKALIKES = str.maketrans("0134578i", "oleastbl")


def tail(user: str) -> str:
    """Return what host names of a user's sites end in by default."""
    return "-" + _plain(user)


def label_of(
    name: str, site: Site, user: str, users: Iterable[str], *, domain: str = "", held: bool = False
) -> str:
    """Return the first part of the site's host name; UsageError when the user cannot have it.

    `held` says that the user has the name already: then it may be a merely official word.
    """
    label = site.host if site.host is not None else name + tail(user)
    if len(label) > _LONGEST_LABEL:
        raise UsageError("the host name is too long: give a shorter one with host")
    if label[2:4] == "--":
        raise UsageError(
            f"the host name {label} is shown in other letters than it is written: use one without"
            " -- behind its second letter"
        )
    _of_nobody_else(label, user, users)
    if site.host is not None:
        _nothing_official(label, user, domain.partition(".")[0], held=held)
    return label


def _of_nobody_else(label: str, user: str, users: Iterable[str]) -> None:
    """Raise UsageError where a name begins or ends in that of another user.

    Of two users whose names both fit, it belongs to the one with the longer name.
    """
    others = list(users)
    for where, fits in (("ends in", _ends), ("begins with", _begins)):
        owners = [other for other in others if fits(label, _plain(other))]
        longest = max((len(_plain(other)) for other in owners), default=0)
        if owners and user not in [each for each in owners if len(_plain(each)) == longest]:
            raise UsageError(f"the host name {label} {where} the name of another user")


def _ends(label: str, name: str) -> bool:
    return label == name or label.endswith(f"-{name}")


def _begins(label: str, name: str) -> bool:
    label, name = _looks(label), _looks(name)
    return label == name or label.startswith(f"{name}-")


def _nothing_official(label: str, user: str, own: str, *, held: bool) -> None:
    """Raise UsageError where people would take a name for one of the box."""
    inner = label.removesuffix(tail(user))
    words = [_looks(word) for word in inner.split("-")]
    words += [first + second for first, second in itertools.pairwise(words)]
    if label == own or any(word in _DANGEROUS for word in words):
        raise UsageError(
            f"the host name {label} is reserved, since people would take it for one of the box"
            f" itself: leave out host, which gives NAME{tail(user)}"
        )
    if label in _OFFICIAL and not held:
        raise UsageError(
            f"the host name {label} is reserved: leave out host, which gives NAME{tail(user)}"
        )


def _plain(user: str) -> str:
    return user.replace("_", "-").strip("-")


def _looks(text: str) -> str:
    """Return one spelling for all that look alike."""
    return text.translate(_LOOKALIKES).replace("rn", "m").replace("vv", "w")


_DANGEROUS = frozenset(map(_looks, DANGEROUS.split()))
_OFFICIAL = frozenset(OFFICIAL.split())
