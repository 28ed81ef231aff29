"""Requests to upstreams: retried until a deadline, bounded in size, never off TLS."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
import tenacity
import urllib3

from agent_box_harness.pins.errors import NotFoundError, PinError, TransientError, clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    T = TypeVar("T")

CHUNK = 1 << 20
LARGEST_ANSWER = 32 << 20
"""Bytes of an answer that is no download."""
LARGEST_DOWNLOAD = 1 << 30
CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
LONGEST_PAUSE = 8.0
"""Seconds between two tries, unless the server asks for more."""
MOST_TRIES = 6

TRANSIENT = frozenset({408, 425, 500, 502, 503, 504})


@dataclass
class Answer:
    """A whole answer with status 200."""

    url: str
    """Where it came from, after all redirects."""
    body: bytes


@dataclass
class Client:
    """Talks to upstreams. `seconds` is the time that one request may take with all its tries."""

    seconds: float = 60.0
    download_seconds: float = 900.0
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent to `headers_for` only: a token has no business anywhere else."""
    headers_for: str = ""
    note: Callable[[str], None] = lambda _: None
    """Told why a request is tried again."""

    def get(self, url: str, accept: str = "*/*") -> Answer:
        """Fetch a small document."""

        def attempt(deadline: float) -> Answer:
            with self._open(url, accept, deadline) as response:
                body = bytearray()
                _stream(response, deadline, LARGEST_ANSWER, body.extend)
                return Answer(response.url, bytes(body))

        return self._retry(url, self.seconds, attempt)

    def json(self, url: str) -> Any:
        """Fetch and parse a JSON document; one that is cut off is fetched again."""
        import json

        def attempt(deadline: float) -> Any:
            with self._open(url, "application/vnd.github+json", deadline) as response:
                body = bytearray()
                _stream(response, deadline, LARGEST_ANSWER, body.extend)
            try:
                return json.loads(bytes(body))
            except ValueError:
                raise TransientError(f"{url} answered something that is no JSON") from None

        return self._retry(url, self.seconds, attempt)

    def download(self, url: str, use: Callable[[IO[bytes]], T]) -> T:
        """Fetch a file into a temporary one and return what `use` makes of it.

        `use` may raise TransientError for a damaged file, which is then fetched again.
        """

        def attempt(deadline: float) -> T:
            with tempfile.TemporaryFile(prefix="agent-box-pins-") as file:
                with self._open(url, "*/*", deadline) as response:
                    _stream(response, deadline, LARGEST_DOWNLOAD, file.write)
                file.seek(0)
                return use(file)

        return self._retry(url, self.download_seconds, attempt)

    def _retry(self, url: str, seconds: float, attempt: Callable[[float], T]) -> T:
        deadline = time.monotonic() + seconds
        backoff = tenacity.wait_random_exponential(multiplier=0.2, max=LONGEST_PAUSE)

        def pause(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.retry_after if isinstance(error, TransientError) else 0.0
            return max(asked, backoff(state))

        def tell(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self.note(f"{error}; trying again")

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(TransientError),
            stop=tenacity.stop_before_delay(seconds) | tenacity.stop_after_attempt(MOST_TRIES),
            wait=pause,
            before_sleep=tell,
            reraise=True,
        )
        try:
            return retrying(attempt, deadline)
        except TransientError as error:
            host = urlsplit(url).netloc
            raise PinError(
                f"{error}, each time. Try again later; {host} must be reachable from here"
            ) from None

    def _open(self, url: str, accept: str, deadline: float) -> requests.Response:
        headers = {
            "Accept": accept,
            "Accept-Encoding": "identity",  # an archive is hashed as it is
            "User-Agent": "agent-box-update-pins",
        }
        if self.headers_for and url.startswith(self.headers_for):
            headers |= self.headers
        left = max(0.1, deadline - time.monotonic())
        timeout = (min(CONNECT_TIMEOUT, left), min(READ_TIMEOUT, left))
        try:
            response = requests.get(url, headers=headers, timeout=timeout, stream=True)
        except requests.TooManyRedirects:
            raise PinError(
                f"{url} redirects in a circle: tell its owner, try again later"
            ) from None
        except requests.RequestException as error:
            reason = clean(str(error.__cause__ or error))
            raise TransientError(f"{url} cannot be reached ({reason})") from None
        if url.startswith("https:"):
            hops = [*response.history, response]
            plain = [hop.url for hop in hops if not hop.url.startswith("https:")]
            if plain:
                raise PinError(f"{url} leads to {clean(plain[0])} without TLS: do not trust it")
        _judge(url, response)
        return response


def _judge(url: str, response: requests.Response) -> None:
    """Raise unless the answer is the document that was asked for."""
    status = response.status_code
    if status == requests.codes.ok:
        return
    with response:
        if status == 404 or status == 410:
            raise NotFoundError(
                f"{url} does not exist (status {status}): it was removed, renamed or made "
                "private. Check owner, name and revision of the pin"
            )
        wait = _retry_after(response)
        if status == 429 or (
            status == 403
            and (wait or response.headers.get("X-RateLimit-Remaining", "").strip() == "0")
        ):
            raise _rate_limit(url, response, wait)
        if status == 401:
            raise PinError(f"{url} refuses the token in GITHUB_TOKEN: renew or unset it")
        if status in TRANSIENT:
            raise TransientError(f"{url} answered with status {status}", wait)
        detail = clean(response.reason or "")
        raise PinError(
            f"{url} answered with status {status} {detail}: see what it says in a browser"
        )


def _retry_after(response: requests.Response) -> float:
    try:
        return max(0.0, float(response.headers.get("Retry-After", "0")))
    except ValueError:  # a date; only a limit of requests uses it, and names its end elsewhere
        return 0.0


def _rate_limit(url: str, response: requests.Response, wait: float) -> PinError:
    """Return the error for a server that wants fewer requests."""
    if 0 < wait <= LONGEST_PAUSE:
        return TransientError(f"{url} asks for a pause of {wait:g} s", wait)
    reset = response.headers.get("X-RateLimit-Reset", "")
    when = "later"
    if reset.isdecimal() and len(reset) <= 12:
        when = time.strftime("after %H:%M UTC", time.gmtime(int(reset)))
    elif wait:
        when = f"in {wait:g} s"
    return PinError(
        f"{urlsplit(url).netloc} allows no more requests from this address: try again {when}, "
        "or set GITHUB_TOKEN to any token of yours (it needs no rights)"
    )


def _stream(
    response: requests.Response, deadline: float, limit: int, take: Callable[[bytes], object]
) -> None:
    """Hand the whole body to `take`. Raises TransientError when it ends early or drips."""
    total = 0
    try:
        # `read1` returns what has arrived: a server that drips cannot hold us past the deadline
        while part := response.raw.read1(CHUNK):
            total += len(part)
            if total > limit:
                raise PinError(f"{response.url} answers more than {limit >> 20} MiB: look at it")
            take(part)
            if time.monotonic() > deadline:
                raise TransientError(f"{response.url} answers too slowly")
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise TransientError(
            f"the answer of {response.url} ended early ({clean(str(error))})"
        ) from None
