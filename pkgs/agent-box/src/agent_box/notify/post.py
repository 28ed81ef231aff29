"""Sends a text to one address. Slow to import: only who has something to send does that."""

from __future__ import annotations

import urllib.error
import urllib.request
from http import HTTPStatus

PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals that another attempt may get around."""


class FailedError(Exception):
    """A text did not arrive; the message says why."""

    def __init__(self, trouble: str, *, passing: bool) -> None:
        super().__init__(trouble)
        self.passing = passing
        """Whether it is worth another attempt."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is meant for one receiver goes to no other."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(url: str, text: str, headers: dict[str, str], timeout: float) -> None:
    """Send a text to an http or https URL; `timeout` is in seconds. Raises FailedError."""
    request = urllib.request.Request(url, text.encode(), headers)  # noqa: S310 - checked
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout):
            return
    except urllib.error.HTTPError as error:
        passing = error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code in PASSING
        raise FailedError(f"status {error.code}", passing=passing) from None
    except OSError as error:
        raise FailedError(str(getattr(error, "reason", error)), passing=True) from None
