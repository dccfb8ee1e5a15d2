"""Send requests of the client, repeated where that is safe, and name what can go wrong."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypedDict, cast
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import httpx


class ClientError(Exception):
    """Base of all errors of the client: `code` is stable, the text says what to do."""

    code: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerUnreachableError(ClientError):
    """No answer came, also after the repetitions; the request may have been acted on."""


class WaitTimeoutError(ClientError):
    """The time of a wait is over; what was waited for goes on."""


class VoiceFailedError(ClientError):
    """A voice could not be encoded; code and text are the server's."""


class DownloadError(ClientError):
    """A file did not arrive whole; what has arrived is kept for the next try."""


class ApiError(ClientError):
    """The server answered with an error.

    Attributes:
        status: the HTTP status.
        code: the stable name that the server gives, such as `voice_not_found`.
        detail: the sentence for a person.
        errors: `{attr, code, detail}` for each field at fault.
        retry_after: seconds after which another try makes sense; None where none were named.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.status, self.detail = status, detail
        self.errors, self.retry_after = list(errors), retry_after


class InvalidRequestError(ApiError):
    """400, 413, 415 or 422: the request itself has to change."""


class AuthenticationError(ApiError):
    """401 or 403: the key is missing, unknown, expired, or not allowed to do this."""


class NotFoundError(ApiError):
    """404 or 410: there is no such thing, or not any more."""


class ConflictError(ApiError):
    """409: not in the present state, such as the file of an unfinished job."""


class TooManyRequestsError(ApiError):
    """429: later."""


class ServerError(ApiError):
    """5xx: the server failed, or one before it could not reach it."""


_CLASSES: dict[int, type[ApiError]] = {
    **dict.fromkeys((400, 413, 415, 422), InvalidRequestError),
    **dict.fromkeys((401, 403), AuthenticationError),
    **dict.fromkeys((404, 410), NotFoundError),
    409: ConflictError,
    429: TooManyRequestsError,
}


def error_of(response: httpx.Response) -> ApiError:
    """Return the error that an answer tells, of a problem+json or of whatever a proxy sent."""
    status = response.status_code
    kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
    after = retry_after_of(response)
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if isinstance(problem, dict) and "code" in problem:
        code, errors = str(problem["code"]), problem.get("errors")
        errors = errors if isinstance(errors, list) else ()
        detail = str(problem.get("detail") or code)
        return kind(status, code, detail, errors=errors, retry_after=after)
    if response.is_redirect:
        target = response.headers.get("Location", "another address")
        return kind(status, "redirected", f"The server redirects to {target}; use that address.")
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
    where = response.url.copy_with(query=None)
    detail = f"{where} answered {status} {phrase}".rstrip() + "."
    return kind(status, f"http_{status}", detail, retry_after=after)


def retry_after_of(response: httpx.Response) -> float | None:
    """Return the seconds of `Retry-After`, a number or a date; None where it names none."""
    text = response.headers.get("Retry-After", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        seconds = (moment - dt.datetime.now(dt.UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
LONGEST_RETRY_AFTER_SECONDS = 120.0  # a server that names more is not waited for
PAGE_SIZE = 100
WAIT_RETRIES = 10  # about a minute: a server that is started again does not end a wait
_GATEWAY = frozenset({502, 503, 504})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Http:
    def __init__(
        self, url: str, api_key: str, timeout: float, retries: int, sleep: Callable[[float], None]
    ) -> None:
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
        self._client.close()

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
                if stream and _is_elsewhere(response):
                    # The storage has the file, behind an address that is signed: without our key.
                    response.close()
                    signed = response.headers["Location"]
                    request = httpx.Request("GET", signed, headers=request.headers)
                    del request.headers["Authorization"]
                    response = self._client.send(request, stream=True)
                if response.is_success:
                    return response
                response.read()
                response.close()
            except httpx.RequestError as error:
                if is_last or not _may_repeat(error, repeatable=repeatable):
                    raise self.unreachable(error) from error
            else:
                after, status = retry_after_of(response) or 0.0, response.status_code
                is_passing = status == 429 or (repeatable and status in _GATEWAY)
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
            page = read_json(self.send("GET", path, params=query))
            yield from page["results"]
            cursor = parse_qs(urlsplit(page.get("next") or "").query).get("cursor")
            if not cursor:
                return
            query["cursor"] = cursor[0]

    def unreachable(self, error: Exception) -> ServerUnreachableError:
        reason = str(error).strip() or type(error).__name__
        sentence = f"No answer from {self.url} ({reason})."
        return ServerUnreachableError("server_unreachable", sentence)


def _is_elsewhere(response: httpx.Response) -> bool:
    """Return whether a file is to be fetched from another address, not the same in another form."""
    target = urlsplit(response.headers.get("Location", ""))
    return response.status_code == HTTPStatus.FOUND and target.path != response.url.path


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
    except ValueError:  # such as another program's page
        found = None
    if not isinstance(found, dict):
        where = response.url.copy_with(query=None)
        sentence = f"The server at {where} is not ttsweb; check the address."
        raise ApiError(response.status_code, "not_ttsweb", sentence)
    return found


def _may_repeat(error: httpx.RequestError, *, repeatable: bool) -> bool:
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
    wrong = ""
    if parts.scheme not in ("http", "https") or not parts.host:
        wrong = f"{url!r} is not an address; expected for example https://tts.example.org."
    elif parts.userinfo or parts.query or parts.fragment:
        wrong = "The server's address must have no user name, no ? and no #."
    if wrong:
        raise ClientError("url_invalid", wrong)
    return str(parts).rstrip("/")


_NO_CONTENT = 204  # it has ended, and all of it was seen
SILENT_SECONDS = 60.0  # a stream that lives says something every 15 seconds


class Event(TypedDict):
    """One event; with its `id` (empty for some) a listener goes on after it."""

    id: str
    event: str
    data: dict[str, Any]


def follow(http: Http, path: str, last_event_id: str | None = None) -> Iterator[Event]:
    """Yield events until the `state` that is final, or until what they tell of was deleted.

    Args:
        last_event_id: of an event that was seen; what came after it is told.

    Raises:
        ApiError: the server answered with an error.
        ServerUnreachableError: it did not answer, or its streams broke too often in a row.
    """
    import httpx

    seen, attempt = last_event_id or "", 0
    while True:
        headers = {"Last-Event-ID": seen} if seen else {}
        timeout = httpx.Timeout(http.timeout, read=SILENT_SECONDS)
        answer = http.send(
            "GET", path, headers=headers, timeout=timeout, stream=True, retries=WAIT_RETRIES
        )
        try:
            if answer.status_code == _NO_CONTENT:
                return
            for event in _events_of(answer.iter_lines()):
                seen, attempt = event["id"] or seen, 0
                yield event
                if event["event"] == "deleted" or event["data"].get("final"):
                    return
        except httpx.RequestError as error:
            if attempt >= WAIT_RETRIES:
                raise http.unreachable(error) from error
        finally:
            answer.close()
        http.sleep(pause_before(attempt))
        attempt += 1


def _events_of(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:  # not a comment
            fields[name] = value.removeprefix(" ")
        elif not line and "event" in fields:
            data = cast("dict[str, Any]", json.loads(fields.get("data", "{}")))
            yield Event(id=fields.get("id", ""), event=fields["event"], data=data)
            fields = {}
