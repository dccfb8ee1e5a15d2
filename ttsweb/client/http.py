"""Send requests of the client: with its key, repeated where that is safe, errors as exceptions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ttsweb.client.errors import (
    ClientError,
    ServerUnreachableError,
    error_of,
    not_our_answer,
    retry_after_of,
)

if TYPE_CHECKING:
    import httpx  # loaded with the first connection: a command's --help does not wait for it

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
LONGEST_RETRY_AFTER_SECONDS = 120.0  # a server that names more is not waited for
PAGE_SIZE = 100
WAIT_RETRIES = 10  # about a minute: a server that is started again does not end a wait
_GATEWAY = frozenset({502, 503, 504})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Http:
    """One connection pool to one server."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout: float,
        retries: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Check address and key; nothing is sent yet.

        Raises:
            ClientError: url_invalid or api_key_invalid.
        """
        import httpx

        self.url = _checked_url(url)
        key = api_key.strip()
        if not key or not (key.isascii() and key.isprintable()) or " " in key:
            raise ClientError(
                "api_key_invalid",
                "An API key is one word of printable ASCII characters, such as tts_….",
            )
        self.retries, self.timeout, self.sleep = retries, timeout, sleep
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}", "User-Agent": "ttsweb-client"},
            timeout=timeout,
            # A proxy of the environment does not lead back to this machine.
            trust_env=httpx.URL(self.url).host not in _LOOPBACK,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        wait_seconds: float = 0.0,
        retries: int | None = None,
    ) -> httpx.Response:
        """Return the answer to a GET, which the server may keep back for `wait_seconds`."""
        import httpx

        timeout = httpx.Timeout(self.timeout, read=self.timeout + wait_seconds)
        return self.send("GET", path, params=params, timeout=timeout, retries=retries)

    def send(
        self,
        method: str,
        path: str,
        *,
        repeatable: bool = True,
        retries: int | None = None,
        stream: bool = False,
        **parts: Any,
    ) -> httpx.Response:
        """Return a good answer; repeat what may pass next time, with growing pauses.

        Args:
            repeatable: whether the request may arrive twice. One that surely was not acted on (no
                connection, 429) is repeated in any case.
            stream: leave the body unread; the caller closes the answer.
            parts: what httpx builds the request of.

        Raises:
            ApiError: the server answered with an error.
            ServerUnreachableError: it did not answer.
        """
        import httpx

        allowed = self.retries if retries is None else retries
        attempt = 0
        while True:
            pause = pause_before(attempt)
            is_last = attempt >= allowed
            request = self._client.build_request(method, path, **parts)
            try:
                response = self._client.send(request, stream=stream)
                if response.is_success:
                    return response
                response.read()
                response.close()
            except httpx.RequestError as error:
                if is_last or not _may_repeat(error, repeatable=repeatable):
                    raise self.unreachable(error) from error
            else:
                after = retry_after_of(response) or 0.0
                is_passing = _may_pass(response.status_code, repeatable=repeatable)
                if is_last or not is_passing or after > LONGEST_RETRY_AFTER_SECONDS:
                    raise error_of(response)
                pause = max(pause, after)
            self.sleep(pause)
            attempt += 1

    def pages(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages of a list.

        Of the address of the next page only the cursor is used: the rest is how the server sees
        itself, which behind a proxy need not be where the key may be sent.
        """
        query = {"limit": PAGE_SIZE, **(params or {})}
        while True:
            page = read_json(self.get(path, query))
            yield from page["results"]
            cursor = parse_qs(urlsplit(page.get("next") or "").query).get("cursor")
            if not cursor:
                return
            query["cursor"] = cursor[0]

    def unreachable(self, error: Exception) -> ServerUnreachableError:
        """Return the error of a server that does not answer."""
        reason = str(error).strip() or type(error).__name__
        return ServerUnreachableError(
            "server_unreachable", f"No answer from {self.url} ({reason})."
        )


def pause_before(attempt: int) -> float:
    """Return the seconds before repetition `attempt` (from 0); by chance, so that many spread."""
    longest = min(FIRST_PAUSE_SECONDS * 2.0**attempt, LONGEST_PAUSE_SECONDS)
    return random.uniform(0.5, 1.0) * longest


def read_json(response: httpx.Response) -> Any:
    """Return the object that an answer holds.

    Raises:
        ApiError: not_ttsweb, it holds none.
    """
    try:
        found = response.json()
    except ValueError as error:
        raise not_our_answer(response) from error
    if not isinstance(found, dict):
        raise not_our_answer(response)
    return found


def _may_pass(status: int, *, repeatable: bool) -> bool:
    """Say whether another try may do better; a 429 was surely not acted on."""
    return status == 429 or (repeatable and status in _GATEWAY)


def _may_repeat(error: httpx.RequestError, *, repeatable: bool) -> bool:
    """Say whether another try may do better, and does no harm if the first one arrived."""
    import httpx

    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return True  # it was never sent
    passing = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)
    return repeatable and isinstance(error, passing)


def _checked_url(url: str) -> str:
    import httpx

    try:
        parts = httpx.URL(url.strip())
    except httpx.InvalidURL:
        parts = httpx.URL()
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ClientError(
            "url_invalid",
            f"{url!r} is not an address; expected for example https://tts.example.org.",
        )
    if parts.userinfo or parts.query or parts.fragment:
        raise ClientError(
            "url_invalid", "The server's address must have no user name, no ? and no #."
        )
    return str(parts).rstrip("/")
