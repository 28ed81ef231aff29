"""The certificate that the edge of this machine shows the world."""

from __future__ import annotations

import socket
from typing import Any


def state_of(domain: str) -> dict[str, Any] | None:
    """Look at the certificate for `domain`; None when no edge answers.

    Keys: `trusted`, `ends` (seconds since 1970), `issuer`, and `reason` where it is not trusted.
    """
    import ssl  # several megabytes, needed only here

    context = ssl.create_default_context()
    try:
        with (
            socket.create_connection(("127.0.0.1", 443), timeout=2) as plain,
            context.wrap_socket(plain, server_hostname=domain) as secure,
        ):
            shown = secure.getpeercert() or {}
            ends = ssl.cert_time_to_seconds(str(shown["notAfter"]))
            issuer = {key: value for part in _pairs(shown.get("issuer")) for key, value in part}
            return {
                "trusted": True,
                "ends": ends,
                "issuer": issuer.get("organizationName") or issuer.get("commonName"),
                "reason": None,
            }
    except ssl.SSLCertVerificationError as error:
        return {"trusted": False, "ends": None, "issuer": None, "reason": error.verify_message}
    except (OSError, KeyError, ValueError):
        return None


def _pairs(value: Any) -> list[list[tuple[str, str]]]:
    return [list(part) for part in value] if isinstance(value, tuple) else []
