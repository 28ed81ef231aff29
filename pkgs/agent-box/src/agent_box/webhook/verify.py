"""Whether a request comes from who knows the secret: the signature schemes of real senders.

All compare in constant time, over the bytes as they came. Schemes with a timestamp also refuse
what is older than five minutes, and their timestamp is part of what a replay is told by.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TOLERANCE = 300.0
"""Seconds that a signed timestamp may be away from now."""

_HEX = re.compile(r"(?:sha256=)?([0-9a-f]{64})", re.IGNORECASE)
_BASE64_SIZE = 44
_TIME = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True)
class Request:
    """What a signature is about. Header names are in lower case; the first of several counts."""

    headers: Mapping[str, str]
    body: bytes
    now: float


@dataclass(frozen=True)
class Proof:
    """A signature that holds."""

    digest: bytes
    """Of everything that was signed: the same again is a replay."""


def _mac(secret: bytes, *parts: bytes) -> bytes:
    code = hmac.new(secret, digestmod=hashlib.sha256)
    for part in parts:
        code.update(part)
    return code.digest()


def _any(secrets: Sequence[bytes], candidates: Sequence[bytes], *parts: bytes) -> bool:
    """Tell whether one of the candidates is right for one secret, after trying them all."""
    right = False
    for secret in secrets:
        wanted = _mac(secret, *parts)
        for candidate in candidates:
            right |= hmac.compare_digest(wanted, candidate)
    return right


def _proof(*parts: bytes) -> Proof:
    code = hashlib.sha256()
    for part in parts:
        code.update(part)
    return Proof(code.digest())


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def _fresh(text: str, now: float) -> bool:
    return _TIME.fullmatch(text) is not None and abs(now - int(text)) <= TOLERANCE


def hmac_hex(request: Request, secrets: Sequence[bytes], header: str) -> Proof | None:
    """`sha256=HEX` or plain hex of the body: GitHub, Gitea, Bitbucket, Linear, Sentry."""
    found = _HEX.fullmatch(request.headers.get(header, "").strip())
    if found is None:
        return None
    given = bytes.fromhex(found[1])
    return _proof(request.body) if _any(secrets, [given], request.body) else None


def hmac_base64(request: Request, secrets: Sequence[bytes], header: str) -> Proof | None:
    """Base64 of the MAC of the body: Shopify."""
    text = request.headers.get(header, "").strip()
    if len(text) != _BASE64_SIZE:
        return None
    return _proof(request.body) if _any(secrets, [_base64(text)], request.body) else None


def stripe(request: Request, secrets: Sequence[bytes], header: str) -> Proof | None:
    """`t=TIME,v1=HEX[,v1=HEX]` over `TIME.BODY`."""
    times: list[str] = []
    given: list[bytes] = []
    for item in request.headers.get(header, "").split(","):
        name, _, value = item.strip().partition("=")
        if name == "t":
            times.append(value)
        elif name == "v1" and (found := _HEX.fullmatch(value)):
            given.append(bytes.fromhex(found[1]))
    if len(times) != 1 or not _fresh(times[0], request.now):
        return None
    signed = (times[0].encode(), b".", request.body)
    return _proof(*signed) if _any(secrets, given[:8], *signed) else None


def slack(request: Request, secrets: Sequence[bytes], header: str) -> Proof | None:
    """`v0=HEX` over `v0:TIME:BODY`, the time in a header of its own."""
    version, _, value = request.headers.get(header, "").strip().partition("=")
    found = _HEX.fullmatch(value)
    time = request.headers.get("x-slack-request-timestamp", "")
    if version != "v0" or found is None or not _fresh(time, request.now):
        return None
    signed = (b"v0:", time.encode(), b":", request.body)
    return _proof(*signed) if _any(secrets, [bytes.fromhex(found[1])], *signed) else None


def standard(request: Request, secrets: Sequence[bytes], header: str) -> Proof | None:
    """`v1,BASE64 [v1,BASE64]` over `ID.TIME.BODY`, the secret itself in base64."""
    prefix = header.removesuffix("-signature")
    ident = request.headers.get(f"{prefix}-id", "")
    time = request.headers.get(f"{prefix}-timestamp", "")
    if not ident or not _fresh(time, request.now):
        return None
    given = [
        _base64(value)
        for version, _, value in (
            item.partition(",") for item in request.headers.get(header, "").split(" ")
        )
        if version == "v1"
    ]
    keys = [_base64(secret.decode().removeprefix("whsec_")) or secret for secret in secrets]
    signed = (ident.encode("latin-1", "replace"), b".", time.encode(), b".", request.body)
    return _proof(*signed) if _any(keys, given[:8], *signed) else None


def token(request: Request, secrets: Sequence[bytes], header: str) -> Proof | None:
    """The secret itself in a header: GitLab. It does not prove the body."""
    given = hashlib.sha256(request.headers.get(header, "").encode("latin-1", "replace")).digest()
    right = False
    for secret in secrets:
        right |= hmac.compare_digest(hashlib.sha256(secret).digest(), given)
    return _proof(request.body) if right else None


@dataclass(frozen=True)
class Scheme:
    """A way to sign, with the header that it stands in unless a source says otherwise."""

    check: Callable[[Request, Sequence[bytes], str], Proof | None]
    header: str
    what: str


SCHEMES = {
    "hmac-sha256-hex": Scheme(
        hmac_hex, "x-hub-signature-256", "HMAC-SHA256 of the raw body, in hex"
    ),
    "hmac-sha256-base64": Scheme(
        hmac_base64, "x-shopify-hmac-sha256", "HMAC-SHA256 of the raw body, in base64"
    ),
    "stripe": Scheme(stripe, "stripe-signature", "Stripe's signature with a timestamp"),
    "slack": Scheme(slack, "x-slack-signature", "Slack's signature with a timestamp"),
    "standard-webhooks": Scheme(
        standard, "webhook-signature", "the signature of standardwebhooks.com, as of Svix"
    ),
    "token": Scheme(token, "x-gitlab-token", "the secret itself in a header"),
}
DEFAULT = "hmac-sha256-hex"


def sign(scheme: str, header: str, secret: bytes, body: bytes, now: int) -> dict[str, str]:
    """Return the headers with which a sender of that scheme signs `body` at unix time `now`."""
    time = str(now).encode()
    if scheme == "hmac-sha256-base64":
        return {header: base64.b64encode(_mac(secret, body)).decode()}
    if scheme == "stripe":
        return {header: f"t={now},v1={_mac(secret, time, b'.', body).hex()}"}
    if scheme == "slack":
        signature = _mac(secret, b"v0:", time, b":", body).hex()
        return {header: f"v0={signature}", "x-slack-request-timestamp": str(now)}
    if scheme == "standard-webhooks":
        prefix, ident = header.removesuffix("-signature"), b"msg_local"
        key = _base64(secret.decode().removeprefix("whsec_")) or secret
        signature = base64.b64encode(_mac(key, ident, b".", time, b".", body)).decode()
        return {
            header: f"v1,{signature}",
            f"{prefix}-id": ident.decode(),
            f"{prefix}-timestamp": str(now),
        }
    if scheme == "token":
        return {header: secret.decode("latin-1", "replace")}
    return {header: f"sha256={_mac(secret, body).hex()}"}
